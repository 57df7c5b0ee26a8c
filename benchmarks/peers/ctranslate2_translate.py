"""Translate lines of tokens with CTranslate2. Prints ``load SECONDS`` and ``lines a second N``.

    python ctranslate2_translate.py MODEL SOURCE OUTPUT DEVICE COMPUTE_TYPE WORKERS THREADS BATCH BEAM LIMIT \
        [MAP] [FIXED]

Writes the best hypothesis of beam search, with scores divided by the length. LIMIT: maximum length of a translation in
tokens; MAP: use the vocabulary map in the model's folder; FIXED: every translation has LIMIT tokens.
"""

import sys
import time
from pathlib import Path

import ctranslate2

model, source, output, device, compute_type, *numbers = sys.argv[1:9]
workers, threads, batch = map(int, numbers)
beam, limit = map(int, sys.argv[9:11])
lines = [line.split(" ") for line in Path(source).read_text(encoding="utf-8").split("\n")[:-1]]
began = time.perf_counter()
translator = ctranslate2.Translator(
    model, device, compute_type=compute_type, inter_threads=workers, intra_threads=threads
)
loaded = time.perf_counter()
results = translator.translate_batch(
    lines,
    beam_size=beam,
    max_batch_size=batch,
    length_penalty=1,
    max_decoding_length=limit,
    min_decoding_length=limit if "FIXED" in sys.argv else 1,
    use_vmap="MAP" in sys.argv,
    suppress_sequences=[["<pad>"], ["<s>"]],  # the other engines never write these
)
ended = time.perf_counter()
Path(output).write_text("".join(" ".join(found.hypotheses[0]) + "\n" for found in results), encoding="utf-8")
print(f"load {loaded - began:.2f}")
print(f"lines a second {len(lines) / (ended - loaded):.2f}")
