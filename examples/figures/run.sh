#!/usr/bin/env bash
# Pictures of a trained Transformer, as in the paper: positional encodings, and figures 3 to 5.
#
#     NMT_DATA=FOLDER examples/figures/run.sh MODEL [OUTPUT, default runs/figures]
#
# MODEL is a run folder that translates from English, such as that of examples/multi30k/run_raw.sh. OUTPUT/results.json
# lists the pictures as results. For another model, set SETTING to its description in the results.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
text=${NMT_DATA:?set NMT_DATA to the folder that holds multi30k/}/multi30k
model=${1:?name a run folder, such as runs/multi30k_raw/run}
output=${2:-runs/figures}
setting=${SETTING:-4 + 4 layers, 4 heads, Multi30k}
python=${PYTHON:-python}
. "$here/../needs.sh"
needs "$text"/val.{en,de}.gz

mkdir -p "$output"
nmt-visualize --path "$model" --positions --output "$output/positions.svg" --overwrite
"$python" "$here/heads.py" "$model" "$text/val.en.gz" "$text/val.de.gz" "$output" --lines 1000

keep() {
    "$python" "$here/../results.py" add "$output/results.json" --metric picture --experiment "$1" --row "$2" \
        --picture "images/$3" --drawn "$output/$3" --setting "$setting" "${run[@]}"
}
run=()
if [ -e "$model/log.jsonl" ]; then # a checkpoint without its run folder has no record of training
    run=(--run "$model")
fi
keep "Positional encoding" "the first positions" positions.svg
keep "Figures 3-5" "figure 3: a word and what is far from it" figure3.svg
keep "Figures 3-5" "figure 4: whom a pronoun means" figure4.svg
keep "Figures 3-5" "figure 5: heads that keep to phrases" figure5.svg
