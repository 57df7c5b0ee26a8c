"""Translate lines of tokens with MarianMTModel. Prints ``lines a second N``.

    python transformers_translate.py MODEL PIECES SOURCE OUTPUT DEVICE THREADS BATCH BEAM LIMIT [FIXED]

PIECES is a file with the tokens of the joint vocabulary, one per line. Writes the best hypothesis of beam search, with
scores divided by the length. Lines are sorted by length, as in common practice. LIMIT: maximum length of a translation
in tokens; FIXED: every translation has LIMIT tokens.
"""

import sys
import time
from pathlib import Path

import torch
from transformers import MarianMTModel

PAD, UNK, BOS, EOS = range(4)


def main():
    model, pieces, source, output, device, *numbers = sys.argv[1:10]
    threads, batch, beam, limit = map(int, numbers)
    torch.set_num_threads(threads)
    entries = Path(pieces).read_text(encoding="utf-8").split("\n")[:-1]
    number = {piece: index for index, piece in enumerate(entries)}
    lines = Path(source).read_text(encoding="utf-8").split("\n")[:-1]
    ids = [[*(number.get(piece, UNK) for piece in line.split(" ") if piece), EOS] for line in lines]
    dtype = torch.float32 if device == "cpu" else torch.float16
    translator = MarianMTModel.from_pretrained(model, dtype=dtype).to(device).eval()
    found = [""] * len(ids)
    order = sorted(range(len(ids)), key=lambda index: -len(ids[index]))
    began = time.perf_counter()
    with torch.inference_mode():
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            rows = torch.full((len(chosen), len(ids[chosen[0]])), PAD)
            for row, index in zip(rows, chosen):
                row[: len(ids[index])] = torch.tensor(ids[index])
            rows = rows.to(device)
            results = translator.generate(
                input_ids=rows, attention_mask=(rows != PAD).long(), num_beams=beam, length_penalty=1.0,
                early_stopping=True, max_new_tokens=limit, min_new_tokens=limit if "FIXED" in sys.argv else 2,
                bad_words_ids=[[PAD], [BOS]], do_sample=False,
            )  # fmt: skip
            for index, result in zip(chosen, results.tolist()):
                found[index] = " ".join(entries[token] for token in result if token not in (PAD, BOS, EOS))
    ended = time.perf_counter()
    Path(output).write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
    print(f"lines a second {len(lines) / (ended - began):.2f}")


if __name__ == "__main__":
    main()
