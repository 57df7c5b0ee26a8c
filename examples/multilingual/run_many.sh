#!/usr/bin/env bash
# One model for English-German, English-French, German-English and French-English of Multi30k, with the token of the
# target language before the source, before the target, or before both. For comparison, the script trains one model for
# each direction, with the same vocabulary and a fourth of the updates. The models of all directions also translate
# German-French and French-German, for which there is no training text: directly, and through English.
#
#     NMT_DATA=FOLDER examples/multilingual/run_many.sh [OUTPUT, default runs/many]
#
# Run it again to resume an interrupted run. UPDATES=100 trains 100 updates for each direction; the default is 992,
# four epochs. SIDES="source both" trains some of the models of all directions, DIRECTIONS="en-de fr-en" some of the
# models of one direction. OUTPUT/results.json has the results.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
text=${NMT_DATA:?set NMT_DATA to the folder that holds multi30k/}/multi30k
output=${1:-runs/many}
python=${PYTHON:-python}
updates=${UPDATES:-992}
trained="en-de en-fr de-en fr-en"
zero_shot="de-fr fr-de"
sides=${SIDES:-source target both}
directions=${DIRECTIONS:-$trained}
. "$here/../needs.sh"
needs "$text"/{train,val,test_2016_flickr}.{en,de,fr}.gz

has() { # SIDE
    [ -e "$output/$1/manifest.json" ]
}

train() { # CORPUS RUN UPDATES
    nmt-train "$output/$1" recipe=multi30k_many --save-dir "$output/$2" --max-update "$3" --max-epoch 0 --threads 1 \
        --seed 1
}

translate() { # RUN SOURCE TARGET INPUT OUTPUT
    nmt-generate --path "$output/$1" --source-lang "$2" --target-lang "$3" --input "$4" --output "$5" --overwrite
}

score() { # RUN DIRECTION ROW [MIDDLE]
    local source=${2%-*} target=${2#*-} translations="$output/$1.$2${4:+.$4}"
    local input="$text/test_2016_flickr.$source.gz"
    if [ -n "${4:-}" ]; then
        translate "$1" "$source" "$4" "$input" "$translations.middle"
        source=$4 input="$translations.middle"
    fi
    translate "$1" "$source" "$target" "$input" "$translations"
    nmt-score --sys "$translations" --ref "$text/test_2016_flickr.$target.gz" --metrics bleu --format json \
        > "$translations.json"
    "$python" "$here/../results.py" add "$output/results.json" --experiment "Several directions" --row "$2, $3" \
        --metric BLEU --score "$translations.json" --run "$output/$1" \
        --setting "Multi30k, test_2016_flickr, recipe=multi30k_many, joint BPE of 8,000"
}

has source || nmt-preprocess --pairs en-de,en-fr,de-en,fr-en --zero-shot de-fr,fr-de --trainpref "$text/train" \
    --validpref "$text/val" --destdir "$output/source" --workers 2 --tag-side source tokenizer=bpe --vocab-size 8000
has target || nmt-preprocess --pairs en-de,en-fr,de-en,fr-en --zero-shot de-fr,fr-de --trainpref "$text/train" \
    --validpref "$text/val" --destdir "$output/target" --workers 2 --tag-side target --srcdict "$output/source"
has both || nmt-preprocess --pairs en-de,en-fr,de-en,fr-en --zero-shot de-fr,fr-de --trainpref "$text/train" \
    --validpref "$text/val" --destdir "$output/both" --workers 2 --tag-side both --srcdict "$output/source"

for direction in $directions; do
    train "source/$direction" "only-$direction" "$updates"
    score "only-$direction" "$direction" "one model for each direction"
done
for side in $sides; do
    train "$side" "many-$side" $((4 * updates))
    for direction in $trained; do
        score "many-$side" "$direction" "one model, --tag-side $side"
    done
    for direction in $zero_shot; do
        score "many-$side" "$direction" "zero-shot, --tag-side $side"
        score "many-$side" "$direction" "through English, --tag-side $side" en
    done
done
