#!/usr/bin/env bash
# All rows of Table 3 in miniature on Multi30k English-German: an eighth of the widths, half of the layers, three seeds
# each.
#
#     NMT_DATA=FOLDER examples/table3/run.sh [OUTPUT, default runs/table3]
#
# SEEDS=1 trains one seed of each row. LAUNCHER=joblib trains one model per core at the same time; it needs
# pip install '.[sweep]' in the clone. Run the script again to resume interrupted runs; finished runs are skipped.
# OUTPUT/results.json has the results.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
text=${NMT_DATA:?set NMT_DATA to the folder that holds multi30k/}/multi30k
output=${1:-runs/table3}
python=${PYTHON:-python}
seeds=${SEEDS:-1,2,3}
launcher=${LAUNCHER:-basic}

if ! "$python" -c "import matplotlib" 2> /dev/null; then # fail before hours of training
    echo "run.sh: the picture needs matplotlib; pip install '.[plots]' in the clone" >&2
    exit 1
fi
. "$here/../needs.sh"
needs "$text"/{train,val}.{en,de}.gz

if [ ! -e "$output/corpus/manifest.json" ]; then
    nmt-preprocess --source-lang en --target-lang de --trainpref "$text/train" --validpref "$text/val" \
        --destdir "$output/corpus" --joined-dictionary --workers 2 tokenizer=bpe --vocab-size 4000
fi

nmt-train "$output/corpus" --user-dir "$here/miniatures" --save-dir "$output/runs" "seed=choice($seeds)" \
    recipe=table3_base,table3_a_1_head,table3_a_4_heads,table3_a_16_heads,table3_a_32_heads,table3_b_keys_16,\
table3_b_keys_32,table3_c_2_layers,table3_c_4_layers,table3_c_8_layers,table3_c_width_256,table3_c_width_1024,\
table3_c_inner_1024,table3_c_inner_4096,table3_d_dropout_0,table3_d_dropout_2,table3_d_smoothing_0,\
table3_d_smoothing_2,table3_e_learned,table3_big -m hydra/launcher="$launcher"

"$python" "$here/collect.py" "$output/runs" "$output"
