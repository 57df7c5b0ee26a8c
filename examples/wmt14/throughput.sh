#!/usr/bin/env bash
# How fast a machine trains the base and the big model, and in how much memory; then, if there are hours for it, a row of
# Table 3 beside the base model, both at full size:
#
#     examples/wmt14/throughput.sh [FOLDER, default runs/throughput] [OPTION OF nmt-train ...]
#
# Stop it and run it again: each training goes on for the rest of its time. Figures are in FOLDER/results.json.
#
#     DEVICES=4                  GPUs of this machine (1)
#     MINUTES=5                  how long base and big are trained, each
#     CORPUS=FOLDER              corpus that run.sh made (runs/wmt14/en-de/corpus), in place of invented sentences
#     HOURS=2                    how long the base model and the one with two layers are trained on CORPUS, each (0)
#     PAIRS=200000               how many pairs of sentences are invented
#     PIECES=37000               size of their vocabulary
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
    echo "throughput.sh: DEVICES=$devices is no number of GPUs; give 1 or more" >&2
    exit 2
fi
for given in "$minutes" "$hours"; do
    if [[ ! $given =~ ^[0-9]*\.?[0-9]+$ ]]; then
        echo "throughput.sh: MINUTES=$minutes and HOURS=$hours must be numbers, such as 5 and 0.5" >&2
        exit 2
    fi
done
if [[ ! $minutes =~ [1-9] ]]; then # nmt-train takes 0 for no limit
    echo "throughput.sh: MINUTES=$minutes leaves no time to train; give more than 0" >&2
    exit 2
fi
if [[ $hours =~ [1-9] && -z ${CORPUS:-} ]]; then
    echo "throughput.sh: HOURS=$hours needs CORPUS=FOLDER: what is learnt from invented sentences says nothing" >&2
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
