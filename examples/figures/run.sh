#!/usr/bin/env bash
# Pictures of a trained Transformer as the paper has them: positional encodings, and figures 3 to 5.
#
#     NMT_DATA=FOLDER examples/figures/run.sh MODEL [OUTPUT, default runs/figures]
#
# MODEL is a run folder that translates from English, such as that of examples/multi30k/run_raw.sh.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
text=${NMT_DATA:?set NMT_DATA to the folder that holds multi30k/}/multi30k
model=${1:?name a run folder, such as runs/multi30k_raw/run}
output=${2:-runs/figures}
python=${PYTHON:-python}

mkdir -p "$output"
nmt-visualize --path "$model" --positions --output "$output/positions.svg" --overwrite
"$python" "$here/heads.py" "$model" "$text/val.en.gz" "$text/val.de.gz" "$output" --lines 1000
