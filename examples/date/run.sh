#!/usr/bin/env bash
# The date task with an LSTM: the script trains, translates, scores and draws two pictures in one folder:
#
#     examples/date/run.sh [FOLDER, default lstm-demo]
#
# Run it again to resume an interrupted run. FOLDER/results.json has the results. The script fails if fewer than 99.5 %
# of the held-out dates are translated exactly.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:-lstm-demo}
python=${PYTHON:-python}

# One thread: matrices this small gain little from a second one, and lose much if other programs use the cores.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

"$python" "$here/generate.py" "$folder/text" --size 30000 --seed 1

nmt-preprocess --source-lang src --target-lang tgt --trainpref "$folder/text/train" \
    --validpref "$folder/text/valid" --testpref "$folder/text/test" \
    --destdir "$folder/corpus" --overwrite tokenizer=char

nmt-train "$folder/corpus" model=lstm_attention model.embedding_size=64 --save-dir "$folder/run" \
    --criterion cross_entropy --batch-size 128 --lr 0.005 --lr-scheduler linear --warmup-updates 100 --clip-norm 5 \
    --max-epoch 6 --valid-metrics exact --log-interval 20 --keep-last-epochs 3 --seed 1

nmt-average-checkpoints --inputs "$folder/run" --num-epoch-checkpoints 3 --output "$folder/averaged" --overwrite

nmt-generate --path "$folder/averaged" --input "$folder/text/test.src" \
    --output "$folder/test.hypotheses" --overwrite --beam 4

nmt-score --sys "$folder/test.hypotheses" --ref "$folder/text/test.tgt" --metrics exact --format json \
    > "$folder/score.json"

# Six held-out dates, each as a separate argument.
head -n 6 "$folder/text/test.src" | tr '\n' '\0' |
    xargs -0 "$python" "$here/plot.py" "$folder/run" "$folder/averaged" "$folder"

"$python" "$here/../results.py" add "$folder/results.json" --experiment "Dates: an LSTM with attention" --row "LSTM with attention" \
    --metric "exact match, %" --score "$folder/score.json" --setting "1,000 held-out dates" --run "$folder/run"
"$python" "$here/../results.py" add "$folder/results.json" --experiment "Dates: an LSTM with attention" --row "alignment maps" \
    --metric picture --picture images/date-attention.svg --drawn "$folder/attention.svg" --setting "held-out dates" --run "$folder/run"

"$python" - "$folder/score.json" <<'CHECK'
import json, sys

(score,) = json.load(open(sys.argv[1], encoding="utf-8"))["scores"]
print(f"held-out dates: {score['score']:.2f} % exact match {score['detail']}")
sys.exit(0 if score["score"] >= 99.5 else "the LSTM should reach 99.5 %")
CHECK
