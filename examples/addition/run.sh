#!/usr/bin/env bash
# The addition task of the textbook: is a sum easier to read from right to left? The script trains three models and
# draws their exact match per epoch.
#
#     examples/addition/run.sh addition.txt.gz [FOLDER, default addition]
#
# Run it again to resume an interrupted run. EPOCHS=5 trains for 5 epochs; the default is 25. FOLDER/results.json has
# the results.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
file=${1:?name the file addition.txt or addition.txt.gz}
folder=${2:-addition}
python=${PYTHON:-python}
epochs=${EPOCHS:-25}

# One thread: matrices this small gain little from a second one, and lose much if other programs use the cores.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

if [ ! -e "$folder/corpus/manifest.json" ]; then
    "$python" "$here/../date/convert.py" "$file" "$folder/text"
    nmt-preprocess --source-lang src --target-lang tgt --trainpref "$folder/text/train" \
        --validpref "$folder/text/valid" --destdir "$folder/corpus" tokenizer=char
fi

nmt-train "$folder/corpus" recipe=textbook model=lstm_plain model.reverse_source=false model.hidden_size=128 \
    --save-dir "$folder/as_written" --max-epoch "$epochs" --valid-samples 0 --seed 1

nmt-train "$folder/corpus" recipe=textbook model=lstm_plain model.reverse_source=true model.hidden_size=128 \
    --save-dir "$folder/reversed" --max-epoch "$epochs" --valid-samples 0 --seed 1

nmt-train "$folder/corpus" recipe=textbook model=lstm_peeky model.reverse_source=true model.hidden_size=128 \
    --save-dir "$folder/reversed_peeky" --max-epoch "$epochs" --valid-samples 0 --seed 1

"$python" "$here/../date/compare.py" "$folder/comparison.svg" --title "Addition, exact match, %" \
    "$folder/as_written" "$folder/reversed" "$folder/reversed_peeky" \
    --rows "read as written" "read backwards" "read backwards, last state at every step" --epochs 1 5 10 \
    --results "$folder/results.json" --experiment "Textbook: addition" \
    --setting "the textbook's data, its last tenth for validation; LSTM of 128"
"$python" "$here/../results.py" add "$folder/results.json" --experiment "Textbook: addition" --metric picture \
    --row "exact match by epoch" --picture images/addition.svg --drawn "$folder/comparison.svg" \
    --run "$folder/as_written" "$folder/reversed" "$folder/reversed_peeky"
