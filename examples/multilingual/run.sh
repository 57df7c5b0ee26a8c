#!/usr/bin/env bash
# One model for two target languages: English to German and German to English of Multi30k, selected by a tag. For
# comparison, the script trains one model for each direction, with the same vocabulary and half as many updates.
#
#     NMT_DATA=FOLDER examples/multilingual/run.sh [OUTPUT, default runs/multilingual]
#
# Run it again to resume an interrupted run. UPDATES=100 trains the model of each direction for 100 updates; the
# default is 1,984. OUTPUT/results.json has the results.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
text=${NMT_DATA:?set NMT_DATA to the folder that holds multi30k/}/multi30k
output=${1:-runs/multilingual}
python=${PYTHON:-python}
updates=${UPDATES:-1984}
twice=$((2 * updates))
. "$here/../needs.sh"
needs "$text"/{train,val,test_2016_flickr}.{en,de}.gz

if [ ! -e "$output/to-de/manifest.json" ]; then
    nmt-preprocess --source-lang en --target-lang de --trainpref "$text/train" --validpref "$text/val" \
        --destdir "$output/to-de" --joined-dictionary --workers 2 tokenizer=bpe --vocab-size 8000 \
        --tag de --user-defined-symbols '<2en>'
fi
if [ ! -e "$output/to-en/manifest.json" ]; then
    nmt-preprocess --source-lang de --target-lang en --trainpref "$text/train" --validpref "$text/val" \
        --destdir "$output/to-en" --joined-dictionary --workers 2 --srcdict "$output/to-de" --tag en
fi

nmt-train "$output/to-de" "$output/to-en" recipe=multi30k_fast --save-dir "$output/both" --max-update "$twice" \
    --max-epoch 0 --seed 1
nmt-train "$output/to-de" recipe=multi30k_fast --save-dir "$output/only-de" --max-update "$updates" \
    --max-epoch 0 --seed 1
nmt-train "$output/to-en" recipe=multi30k_fast --save-dir "$output/only-en" --max-update "$updates" \
    --max-epoch 0 --seed 1

for target in de en; do
    source=en
    direction="to German"
    if [ "$target" = en ]; then
        source=de
        direction="to English"
    fi
    for model in both "only-$target"; do
        row="one model for each direction"
        if [ "$model" = both ]; then
            row="one model for both directions"
        fi
        nmt-generate --path "$output/$model" --tag "$target" --input "$text/test_2016_flickr.$source.gz" \
            --output "$output/$model.$target" --overwrite
        nmt-score --sys "$output/$model.$target" --ref "$text/test_2016_flickr.$target.gz" --metrics bleu --format json \
            > "$output/$model.$target.json"
        "$python" "$here/../results.py" add "$output/results.json" --experiment "Several target languages" \
            --row "$row, $direction" --metric BLEU --score "$output/$model.$target.json" \
            --setting "Multi30k, test_2016_flickr, lightconv_tiny" --run "$output/$model"
    done
    echo "$direction"
    nmt-score --sys "$output/only-$target.$target" "$output/both.$target" --ref "$text/test_2016_flickr.$target.gz" \
        --metrics bleu,chrf --confidence --paired bootstrap --format markdown
done
