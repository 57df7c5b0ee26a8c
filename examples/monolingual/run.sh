#!/usr/bin/env bash
# Monolingual text for few pairs: a quarter of Multi30k English-German as pairs, the English side of three eighths and
# the German side of the other three eighths as monolingual text. Each method makes an equal number of updates.
#
#     NMT_DATA=FOLDER examples/monolingual/run.sh [OUTPUT, default runs/monolingual]
#
# METHODS="pairs tagged" runs some methods, SEEDS="1 2" some seeds, UPDATES=100 trains each model for 100 updates; the
# default is 600. Run it again to resume an interrupted run. Scores are in OUTPUT/*/scores/, those of the pairs in
# OUTPUT/pairs-*/*.json.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
text=${NMT_DATA:?set NMT_DATA to the folder that holds multi30k/}/multi30k
output=${1:-runs/monolingual}
methods=${METHODS:-pairs tagged sampled noised iterated denoising}
seeds=${SEEDS:-1}
updates=${UPDATES:-600}
python=${PYTHON:-python}
. "$here/../needs.sh"
needs "$text"/{train,val,test_2016_flickr,test_2017_flickr}.{en,de}.gz

mkdir -p "$output/text"
if [ ! -e "$output/text/only.de" ]; then
    part=$(($(gzip -dc "$text/train.en.gz" | wc -l) * 3 / 8))
    "$python" "$here/../student/text.py" split --source "$text/train.en.gz" --target "$text/train.de.gz" \
        --languages en de --source-lines "$part" --target-lines "$part" --output "$output/text"
fi

# All methods have the same vocabulary. With seed 1, "tagged" makes the stages that others share.
run() {
    nmt-monolingual --source-lang en --target-lang de --trainpref "$output/text/train" --validpref "$text/val" \
        --testpref "$text/test_2016_flickr,$text/test_2017_flickr" --target-text "$output/text/only.de" \
        --source-text "$output/text/only.en" preprocess.tokenizer=bpe preprocess.vocab_size=4000 \
        "preprocess.user_defined_symbols=['<bt>']" train.recipe=multi30k_fast train.max_epoch=0 \
        "train.max_update=$updates" train.threads=1 < /dev/null "$@"
}
shared="$output/tagged-1"
run method=tagged --save-dir "$shared" --until translate-de

for method in $methods; do
    for seed in $seeds; do
        folder="$output/$method-$seed"
        if [ "$method" = pairs ]; then
            nmt-train "$shared/pairs-en-de/corpus" recipe=multi30k_fast --max-epoch 0 --max-update "$updates" --threads 1 \
                --seed "$seed" --save-dir "$folder"
            for test in test_2016_flickr test_2017_flickr; do
                nmt-generate --path "$folder" --input "$text/$test.en.gz" --output "$folder/$test.de" --overwrite
                nmt-score --sys "$folder/$test.de" --ref "$text/$test.de.gz" --metrics bleu,chrf --format json \
                    > "$folder/$test.json"
            done
            continue
        fi
        mkdir -p "$folder"
        for stage in pairs-en-de pairs-de-en reverse translate-de; do
            if [ -e "$shared/$stage" ] && [ ! -e "$folder/$stage" ]; then
                cp -a "$shared/$stage" "$folder/$stage.copy" && mv "$folder/$stage.copy" "$folder/$stage"
            fi
        done
        run "method=$method" --save-dir "$folder" "forward.seed=$seed"
    done
done
