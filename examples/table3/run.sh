#!/usr/bin/env bash
# All rows of Table 3 in miniature on Multi30k English-German: an eighth of the widths, half of the layers, three seeds each.
#
#     NMT_DATA=FOLDER examples/table3/run.sh [OUTPUT, default runs/table3]
#
# SEEDS=1 trains one of each. JOBS=4 trains four side by side (pip install 'nmt-toolkit[sweep]'). Stop it and run it again:
# finished runs are passed over, interrupted ones go on.
# shellcheck disable=SC2086  # $launcher is several words
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
text=${NMT_DATA:?set NMT_DATA to the folder that holds multi30k/}/multi30k
output=${1:-runs/table3}
python=${PYTHON:-python}

if [ ! -e "$output/corpus/manifest.json" ]; then
    nmt-preprocess --source-lang en --target-lang de --trainpref "$text/train" --validpref "$text/val" \
        --destdir "$output/corpus" --joined-dictionary --workers 2 tokenizer=bpe --vocab-size 4000
fi

rows=$("$python" "$here/rows.py" --recipes)
launcher=""
if [ "${JOBS:-1}" != 1 ]; then
    launcher="hydra/launcher=joblib hydra.launcher.n_jobs=$JOBS"
fi
nmt-train "$output/corpus" --save-dir "$output/runs" recipe="$rows" --seed "${SEEDS:-1,2,3}" \
    -m --config-dir "$here/conf" $launcher

"$python" "$here/collect.py" "$output/runs" "$output"
