#!/usr/bin/env bash
# Multi30k English-German at character level: transformer_tiny, raw text in and out.
#
#     NMT_DATA=FOLDER examples/characters/run.sh [OUTPUT, default runs/characters]
#
# Run it again to resume an interrupted run. EPOCHS=1 trains for one epoch; the default is 10. OUTPUT/results.json has
# the results.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
text=${NMT_DATA:?set NMT_DATA to the folder that holds multi30k/}/multi30k
output=${1:-runs/characters}
python=${PYTHON:-python}
epochs=${EPOCHS:-10}
. "$here/../needs.sh"
needs "$text"/{train,val,test_2016_flickr,test_2017_flickr}.{en,de}.gz

if [ ! -e "$output/corpus/manifest.json" ]; then
    nmt-preprocess --source-lang en --target-lang de --trainpref "$text/train" --validpref "$text/val" \
        --destdir "$output/corpus" --joined-dictionary --workers 2 tokenizer=char
fi

nmt-train "$output/corpus" recipe=multi30k_fast model=transformer_tiny model.dropout=0.1 --save-dir "$output/run" \
    --max-tokens 8192 --max-epoch "$epochs" --seed 1

for year in 2016 2017; do
    test="test_${year}_flickr"
    nmt-generate --path "$output/run" --input "$text/$test.en.gz" \
        --output "$output/$test.hypotheses" --overwrite
    nmt-score --sys "$output/$test.hypotheses" --ref "$text/$test.de.gz" --metrics bleu,chrf
    nmt-score --sys "$output/$test.hypotheses" --ref "$text/$test.de.gz" --metrics bleu --format json > "$output/$test.json"
    "$python" "$here/../results.py" add "$output/results.json" --experiment "Character level" \
        --row "$test" --metric BLEU --score "$output/$test.json" \
        --setting "Multi30k, transformer_tiny, characters" --run "$output/run"
done
