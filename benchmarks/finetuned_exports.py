"""Fine-tune an imported multilingual model, export it, and compare the translations of three toolkits.

    python benchmarks/finetuned_exports.py DATA FOLDER [--updates 400] [--max-tokens 4096] [--lines 1000] [--pieces 4000]

DATA has the plain files of Multi30k that examples/multi30k downloads: train, valid and test, with the endings .en and .de.
Makes a random model in the form of NLLB (d_model 128, 2 + 2 layers) with a tokenizer of this text, imports it, fine-tunes it
from English to German, and exports it to Hugging Face, to CTranslate2 and in int8. Each translates the first lines of the
test split with beam 4 and scores divided by the length, and stops as CTranslate2 always does. Prints the number of lines
whose tokens equal those of nmt in float32; lines that the limit cut off are not compared, because toolkits end them
differently.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import ctranslate2
import sentencepiece
import torch
import transformers
from transformers.convert_slow_tokenizer import NllbConverter, SentencePieceExtractor

from nmt.translation import Translator

SOURCE, TARGET, BEAM, LIMIT = "eng_Latn", "deu_Latn", 4, 120
SIZES = {
    "d_model": 128,
    "max_position_embeddings": 512,
    "dropout": 0.1,
    **{f"{side}_layers": 2 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 256 for side in ("encoder", "decoder")},
}


def nmt(command: str, **options: Any) -> None:
    flags = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    subprocess.run([sys.executable, "-m", "nmt", command, *flags], check=True)


def write_model(folder: Path, text: list[str], pieces: int) -> None:
    """Write a random model with a tokenizer of ``text``."""
    folder.mkdir()
    content, path = io.BytesIO(), folder / "sentencepiece.bpe.model"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(text), model_writer=content, model_type="bpe", vocab_size=pieces, minloglevel=2
    )
    path.write_bytes(content.getvalue())
    options = NllbConverter.convert_from_spm(
        **SentencePieceExtractor(str(path)).extract(transformers.NllbTokenizer.model)
    )
    path.unlink()  # transformers writes tokenizer.json
    options["extra_special_tokens"] = [SOURCE, TARGET]
    tokenizer = transformers.NllbTokenizer(**options, src_lang=SOURCE)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(1)
    config = transformers.M2M100Config(vocab_size=len(tokenizer), **SIZES)
    transformers.M2M100ForConditionalGeneration(config).save_pretrained(folder)


def by_nmt(folder: Path, lines: list[str]) -> list[list[str]]:
    search = {"beam": BEAM, "length_penalty": "power", "lenpen": 1, "stop": "first"}
    search |= {"max_len_a": 0, "max_len_b": LIMIT - 3}
    translations = Translator.load(folder, device="cpu").translations(lines, **search)
    return [translation.hypotheses[0].pieces for translation in translations]


def by_ctranslate2(folder: Path, lines: list[str]) -> list[list[str]]:
    text = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer" / "joint.model"))
    tokens = [[SOURCE, *cut] for cut in text.encode(lines, out_type=str)]
    options = {"beam_size": BEAM, "length_penalty": 1, "max_decoding_length": LIMIT, "max_batch_size": 64}
    results = ctranslate2.Translator(str(folder)).translate_batch(
        tokens, [[TARGET]] * len(tokens), suppress_sequences=[["<pad>"], ["<s>"]], **options
    )
    return [result.hypotheses[0][1:] for result in results]


def by_transformers(folder: Path, lines: list[str]) -> list[list[str]]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, src_lang=SOURCE)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    options = {"num_beams": BEAM, "length_penalty": 1.0, "early_stopping": True, "max_length": LIMIT}
    options["forced_bos_token_id"] = tokenizer.convert_tokens_to_ids(TARGET)
    written = list[list[str]]()
    for begin in range(0, len(lines), 50):
        inputs = tokenizer(lines[begin : begin + 50], return_tensors="pt", padding=True)
        with torch.inference_mode():
            outputs = model.generate(**inputs, **options).tolist()
        written += map(tokenizer.convert_ids_to_tokens, outputs)
    return [[token for token in tokens if token not in ("</s>", "<pad>", TARGET)] for tokens in written]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--max-tokens", type=int, default=4096)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--pieces", type=int, default=4000, help="size of the sentencepiece model")
    chosen = parser.parse_args()
    folder = chosen.folder
    (folder / "text").mkdir(parents=True)
    for split in ("train", "valid", "test"):
        for ending, language in (("en", SOURCE), ("de", TARGET)):
            (folder / "text" / f"{split}.{language}").write_bytes((chosen.data / f"{split}.{ending}").read_bytes())
    text = [line for path in sorted((folder / "text").glob("train.*")) for line in path.open()]
    write_model(folder / "there", text, chosen.pieces)
    languages, prefix = {"source_lang": SOURCE, "target_lang": TARGET}, str(folder / "text")
    here, corpus, run = (str(folder / name) for name in ("here", "corpus", "run"))
    nmt("import", path=folder / "there", output=here, **languages)
    splits = {"trainpref": f"{prefix}/train", "validpref": f"{prefix}/valid"}
    nmt("preprocess", srcdict=here, tgtdict=here, destdir=corpus, **splits, **languages)
    options = {"lr": 2e-3, "warmup_updates": 100, "max_tokens": chosen.max_tokens, "max_update": chosen.updates}
    nmt("train", data=corpus, config=here, finetune_from_model=here, save_dir=run, **options)
    for kind in ("huggingface", "ctranslate2"):
        nmt("export", path=run, format=kind, output=folder / kind, sample=f"{prefix}/test.{SOURCE}", sentences=10)
    nmt("export", path=run, format="native", quantization="int8", output=folder / "int8")
    lines = (folder / "text" / f"test.{SOURCE}").read_text().splitlines()[: chosen.lines]
    expected = by_nmt(Path(run), lines)
    ended = [number for number, tokens in enumerate(expected) if len(tokens) < LIMIT - 10]
    written = {
        "nmt, int8": by_nmt(folder / "int8", lines),
        "CTranslate2": by_ctranslate2(folder / "ctranslate2", lines),
        "transformers": by_transformers(folder / "huggingface", lines),
    }
    print(f"| toolkit | lines like nmt in float32 | compared | different lines |\n{4 * '|---'}|")
    print(f"| nmt | {len(ended)} | {len(ended)} | {len({*map(tuple, expected)})} |")
    for name, others in written.items():
        same = sum(others[number] == expected[number] for number in ended)
        print(f"| {name} | {same} | {len(ended)} | {len({*map(tuple, others)})} |")


if __name__ == "__main__":
    main()
