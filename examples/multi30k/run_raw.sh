#!/usr/bin/env bash
# Multi30k English-German, raw and cased text in and out: recipe=multi30k_raw, joint BPE of 8,000 tokens, sacreBLEU.
#
#     NMT_DATA=FOLDER examples/multi30k/run_raw.sh [OUTPUT, default runs/multi30k_raw]
#
# Run it again to resume an interrupted run. OUTPUT/results.json has the scores.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
text=${NMT_DATA:?set NMT_DATA to the folder that holds multi30k/}/multi30k
output=${1:-runs/multi30k_raw}
python=${PYTHON:-python}
. "$here/../needs.sh"
needs "$text"/{train,val,test_2016_flickr,test_2017_flickr}.{en,de}.gz

if [ ! -e "$output/corpus/manifest.json" ]; then
    nmt-preprocess --source-lang en --target-lang de --trainpref "$text/train" --validpref "$text/val" \
        --testpref "$text/test_2016_flickr,$text/test_2017_flickr" \
        --destdir "$output/corpus" --joined-dictionary --workers 2 tokenizer=bpe --vocab-size 8000
fi

nmt-train "$output/corpus" recipe=multi30k_raw --save-dir "$output/run" --seed 1

for year in 2016 2017; do
    test="test_${year}_flickr"
    nmt-generate --path "$output/run" --input "$text/$test.en.gz" \
        --output "$output/$test.hypotheses" --overwrite
    nmt-score --sys "$output/$test.hypotheses" --ref "$text/$test.de.gz" --metrics bleu,chrf --format json |
        tee "$output/$test.json"
    "$python" "$here/../results.py" add "$output/results.json" --experiment "Multi30k, raw text" \
        --row "Transformer, $test" --metric BLEU --score "$output/$test.json" \
        --setting "joint BPE of 8,000, 13 epochs, beam 5" --run "$output/run"
done
