#!/usr/bin/env bash
# The figure of the textbook: validation exact match per epoch of four models on the textbook's file, in one picture.
#
#     examples/date/compare.sh date.txt.gz [FOLDER, default date-comparison]
#
# Run it again to resume an interrupted run. It takes about an hour of CPU time. FOLDER/results.json has the results.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
file=${1:?name the file date.txt or date.txt.gz}
folder=${2:-date-comparison}
python=${PYTHON:-python}

# One thread: matrices this small gain little from a second one, and lose much if other programs use the cores.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

if [ ! -e "$folder/corpus/manifest.json" ]; then
    "$python" "$here/convert.py" "$file" "$folder/text"
    nmt-preprocess --source-lang src --target-lang tgt --trainpref "$folder/text/train" \
        --validpref "$folder/text/valid" --destdir "$folder/corpus" tokenizer=char
fi

# The recurrent models use the settings of the textbook; a Transformer needs warmup.
nmt-train "$folder/corpus" recipe=textbook model=lstm_plain --save-dir "$folder/lstm_plain" --seed 1

nmt-train "$folder/corpus" recipe=textbook model=lstm_peeky --save-dir "$folder/lstm_peeky" --seed 1

nmt-train "$folder/corpus" recipe=textbook model=lstm_attention --save-dir "$folder/lstm_attention" --seed 1

nmt-train "$folder/corpus" recipe=textbook model=transformer_tiny --save-dir "$folder/transformer_tiny" \
    --lr 0.002 --lr-scheduler inverse_sqrt --warmup-updates 400 --dropout 0.1 --seed 1

# --published: approximate figures that the textbook's code reports.
"$python" "$here/compare.py" "$folder/comparison.svg" \
    "$folder/lstm_plain" "$folder/lstm_peeky" "$folder/lstm_attention" "$folder/transformer_tiny" \
    --epochs 1 2 6 --rows "LSTM" "LSTM, last state at every step" "LSTM with attention" "Transformer" \
    --results "$folder/results.json" --setting "the textbook's data, its last tenth for validation" \
    --published "LSTM with attention" 1 9 --published "LSTM with attention" 2 99.9
"$python" "$here/../results.py" add "$folder/results.json" --experiment "Textbook: dates" --metric picture \
    --row "exact match by epoch" --picture images/date.svg --drawn "$folder/comparison.svg" \
    --setting "four models, ten epochs" \
    --run "$folder/lstm_plain" "$folder/lstm_peeky" "$folder/lstm_attention" "$folder/transformer_tiny"
