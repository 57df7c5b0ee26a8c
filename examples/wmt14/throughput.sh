#!/usr/bin/env bash
# Training speed and memory of the base and the big model on this machine. With HOURS, the script also trains a row of
# Table 3 and the base model for comparison, both at full size:
#
#     examples/wmt14/throughput.sh [FOLDER, default runs/throughput] [OPTION OF nmt-train ...]
#
# Run it again to resume an interrupted run: each model trains for the rest of its time. FOLDER/results.json has the
# results. Variables, with their defaults in parentheses:
#
#     DEVICES=4                  number of GPUs of this machine (1)
#     MINUTES=5                  training time of base and of big in minutes, each (5)
#     CORPUS=FOLDER              corpus of run.sh, such as runs/wmt14/en-de/corpus (invented sentences)
#     HOURS=2                    training time of the base model and of the one with two layers on CORPUS in hours, each (0)
#     PAIRS=200000               number of invented sentence pairs (200,000)
#     PIECES=37000               vocabulary size of the invented sentences in tokens (37,000)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:-runs/throughput}
shift $(($# < 1 ? $# : 1))
python=${PYTHON:-python}
devices=${DEVICES:-1}
minutes=${MINUTES:-5}
hours=${HOURS:-0}
pieces=${PIECES:-37000}
pairs=${PAIRS:-200000}
corpus=${CORPUS:-$folder/corpus}

if [[ ! $devices =~ ^[1-9][0-9]*$ ]]; then
    echo "throughput.sh: DEVICES=$devices is not a number of GPUs; give 1 or more" >&2
    exit 2
fi
for given in "$minutes" "$hours"; do
    if [[ ! $given =~ ^[0-9]*\.?[0-9]+$ ]]; then
        echo "throughput.sh: MINUTES=$minutes and HOURS=$hours must be numbers, such as 5 and 0.5" >&2
        exit 2
    fi
done
if [[ ! $minutes =~ [1-9] ]]; then # 0 means no limit in nmt-train
    echo "throughput.sh: MINUTES=$minutes leaves no time to train; give more than 0" >&2
    exit 2
fi
if [[ $hours =~ [1-9] && -z ${CORPUS:-} ]]; then
    echo "throughput.sh: HOURS=$hours needs CORPUS=FOLDER: perplexity on invented sentences means nothing" >&2
    exit 2
fi

train() {
    if [ "$devices" -gt 1 ]; then
        torchrun --nproc-per-node "$devices" -m nmt_cli.train "$@"
    else
        nmt-train "$@"
    fi
}

if [[ -z ${CORPUS:-} && ! -e $corpus/manifest.json ]]; then
    mkdir -p "$folder"
    echo "$pairs pairs, $pieces pieces" > "$folder/invented"
    "$python" "$here/throughput.py" invent "$folder/text" --pairs "$pairs" --words "$pieces"
    nmt-preprocess --source-lang en --target-lang de --trainpref "$folder/text/train" --destdir "$corpus" \
        --joined-dictionary tokenizer=words --vocab-size "$pieces"
elif [[ -z ${CORPUS:-} && -e $folder/invented && $(cat "$folder/invented") != "$pairs pairs, $pieces pieces" ]]; then
    echo "throughput.sh: $corpus was made of $(cat "$folder/invented"), not $pairs pairs, $pieces pieces; choose another folder" >&2
    exit 2
fi

limit=$("$python" -c "import sys; print(float(sys.argv[1]) / 60)" "$minutes")
train "$corpus" recipe=vaswani_base --save-dir "$folder/base" --stop-time-hours "$limit" --precision auto \
    --validate-interval null --log-interval 10 "$@"
train "$corpus" recipe=vaswani_big --save-dir "$folder/big" --stop-time-hours "$limit" --precision auto \
    --validate-interval null --log-interval 10 "$@"

if [[ $hours =~ [1-9] ]]; then
    train "$corpus" recipe=vaswani_base --save-dir "$folder/base_row" --stop-time-hours "$hours" --precision auto \
        --validate-interval null --validate-interval-updates 1000 "$@"
    train "$corpus" recipe=vaswani_base --save-dir "$folder/c_2_layers" --stop-time-hours "$hours" --precision auto \
        --validate-interval null --validate-interval-updates 1000 "$@" model.encoder_layers=2 model.decoder_layers=2
fi

"$python" "$here/throughput.py" report "$folder" --results "$folder/results.json"
