#!/usr/bin/env bash
# Monolingual text for few pairs: a quarter of Multi30k English-German as pairs, the English side of three eighths and
# the German side of the other three eighths as monolingual text. Each method makes an equal number of updates.
#
#     NMT_DATA=FOLDER examples/monolingual/run.sh [OUTPUT, default runs/monolingual]
#
# METHODS="pairs tagged" runs some methods, SEEDS="1 2" some seeds, UPDATES=100 trains each model for 100 updates; the
# default is 600. Run it again to resume an interrupted run. OUTPUT/results.json has the results: of each method, the
# mean over the seeds of this run.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
text=${NMT_DATA:?set NMT_DATA to the folder that holds multi30k/}/multi30k
output=${1:-runs/monolingual}
methods=${METHODS:-pairs tagged sampled noised iterated denoising}
seeds=${SEEDS:-1}
updates=${UPDATES:-600}
tests=(test_2016_flickr test_2017_flickr)
python=${PYTHON:-python}
. "$here/../needs.sh"
needs "$text"/{train,val,test_2016_flickr,test_2017_flickr}.{en,de}.gz

mkdir -p "$output/text"
if [ ! -e "$output/text/only.de" ]; then
    part=$(($(gzip -dc "$text/train.en.gz" | wc -l) * 3 / 8))
    "$python" "$here/../student/text.py" split --source "$text/train.en.gz" --target "$text/train.de.gz" \
        --languages en de --source-lines "$part" --target-lines "$part" --output "$output/text"
fi

pipeline() { # method=NAME OPTION...
    local source=()
    case $1 in *=iterated | *=denoising) source=(--source-text "$output/text/only.en") ;; esac
    nmt-monolingual --source-lang en --target-lang de --trainpref "$output/text/train" --validpref "$text/val" \
        --testpref "$text/${tests[0]},$text/${tests[1]}" --target-text "$output/text/only.de" \
        "${source[@]}" preprocess.tokenizer=bpe preprocess.vocab_size=4000 \
        "preprocess.user_defined_symbols=['<bt>']" train.recipe=multi30k_fast train.max_epoch=0 \
        "train.max_update=$updates" train.threads=1 < /dev/null "$@"
}

train_pairs() { # FOLDER SEED
    nmt-train "$shared/pairs-en-de/corpus" recipe=multi30k_fast --max-epoch 0 --max-update "$updates" --threads 1 \
        --seed "$2" --save-dir "$1/forward"
    mkdir -p "$1/scores"
    for number in 0 1; do
        nmt-generate --path "$1/forward" --input "$text/${tests[number]}.en.gz" --output "$1/scores/$number.forward" \
            --overwrite
        nmt-score --sys "$1/scores/$number.forward" --ref "$text/${tests[number]}.de.gz" --metrics bleu,chrf \
            --format json > "$1/scores/$number.forward.json"
    done
}

record() { # METHOD MODEL
    local folders=() seed number
    for seed in $seeds; do folders+=("$output/$1-$seed"); done
    for number in 0 1; do
        "$python" "$here/../results.py" add "$output/results.json" --experiment "Monolingual text" --row "$1" \
            --metric "BLEU, ${tests[number]}" --score "${folders[@]/%//scores/$number.$2.json}" \
            --run "${folders[@]/%//$2}" \
            --setting "a quarter of Multi30k as pairs, recipe=multi30k_fast, joint BPE of 4,000"
    done
}

# All methods have the same vocabulary. With seed 1, "tagged" makes the stages that others share. The seeds of a method
# differ in the final model only.
shared="$output/tagged-1"
pipeline method=tagged --save-dir "$shared" --until translate-de

for method in $methods; do
    for seed in $seeds; do
        folder="$output/$method-$seed"
        mkdir -p "$folder"
        if [ "$method" = pairs ]; then
            train_pairs "$folder" "$seed"
            continue
        fi
        stages="pairs-en-de pairs-de-en sentences pretraining reverse translate-de"
        [ "$method-$seed" != iterated-1 ] || stages+=" synthetic-en-de forward"
        for made in "$output/$method-1" "$shared"; do
            for stage in $stages; do
                if [ -e "$made/$stage" ] && [ ! -e "$folder/$stage" ]; then
                    cp -a "$made/$stage" "$folder/$stage.copy" && mv "$folder/$stage.copy" "$folder/$stage"
                fi
            done
        done
        pipeline "method=$method" --save-dir "$folder" "forward.seed=$seed"
    done
    model=forward
    [ "$method" != iterated ] || model=forward-2
    record "$method" "$model"
done
