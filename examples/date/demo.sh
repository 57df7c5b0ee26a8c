#!/usr/bin/env bash
# The demo: a small Transformer learns to read dates. The script trains, translates, scores and draws attention in one
# folder:
#
#     examples/date/demo.sh [FOLDER, default demo]
#
# Run it again to resume an interrupted demo. It fails if fewer than 99.5 % of the held-out dates are translated
# exactly.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:-demo}
python=${PYTHON:-python}

# One thread: matrices this small gain little from a second one, and lose much if other programs use the cores.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

say() { printf '\n== %s\n' "$*" >&2; }

say "1/5 Write 30,000 dates in 37 spellings, and what they mean"
"$python" "$here/generate.py" "$folder/text" --size 30000 --seed 1

say "2/5 Prepare a corpus: tokens are characters"
nmt-preprocess --source-lang src --target-lang tgt --trainpref "$folder/text/train" \
    --validpref "$folder/text/valid" --testpref "$folder/text/test" \
    --destdir "$folder/corpus" --overwrite tokenizer=char

say "3/5 Train a small Transformer for six epochs (one to two minutes on one core)"
nmt-train "$folder/corpus" recipe=dates --save-dir "$folder/run" --seed 1

say "4/5 Translate 1,000 held-out dates with the native engine, and score them"
nmt-generate --path "$folder/run" --input "$folder/text/test.src" --output "$folder/test.hypotheses" --overwrite
nmt-score --sys "$folder/test.hypotheses" --ref "$folder/text/test.tgt" --metrics exact --format json \
    > "$folder/score.json"

say "5/5 Draw what the model attends to"
head -n 6 "$folder/text/test.src" > "$folder/few.src"
nmt-visualize --path "$folder/run" --input "$folder/few.src" --output "$folder/attention.html" --overwrite
nmt-visualize --path "$folder/run" --input "$folder/few.src" --output "$folder/attention.svg" --overwrite \
    --kind cross --style map

say "Done"
"$python" - "$folder" <<'END'
import json, sys
from pathlib import Path

folder = Path(sys.argv[1])
(score,) = json.loads((folder / "score.json").read_text(encoding="utf-8"))["scores"]
sources = (folder / "text/test.src").read_text(encoding="utf-8").splitlines()
hypotheses = (folder / "test.hypotheses").read_text(encoding="utf-8").splitlines()
width = max(map(len, sources[:6]))
for source, hypothesis in zip(sources[:6], hypotheses):
    print(f"  {source:<{width}}  ->  {hypothesis}")
print(f"""
Exactly right: {score["score"]:.1f} % of {len(sources):,} dates that were not in the training text {score["detail"]}

Look at   {folder}/attention.html   attention of all layers and heads
          {folder}/run/report.html  the training run
Try       echo "4th of July 1976" | nmt-generate --path {folder}/run
          nmt-serve --path {folder}/run     and open http://localhost:8000
Next      docs/tutorials/english-german.md: real text, from download to BLEU""")
sys.exit(0 if score["score"] >= 99.5 else "the demo should reach 99.5 %")
END
