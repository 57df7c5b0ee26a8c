#!/usr/bin/env bash
# Multi30k English-German, lower-cased and tokenized: the Transformer-Tiny of Wu et al. 2021, scored with tokenized
# BLEU.
#
#     NMT_DATA=FOLDER examples/multi30k/run_tokenized.sh [OUTPUT, default runs/multi30k_tok]
#
# Run it again to resume an interrupted run. UPDATES=2500 trains for 2,500 updates; the default is 8,000.
# OUTPUT/results.json has the scores.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
text=${NMT_DATA:?set NMT_DATA to the folder that holds multi30k_tok/}/multi30k_tok
output=${1:-runs/multi30k_tok}
updates=${UPDATES:-8000}
python=${PYTHON:-python}
. "$here/../needs.sh"
needs "$text"/{train,val,test_2016_flickr,test_2017_flickr}.lc.norm.tok.{en,de}.gz

if [ ! -e "$output/corpus/manifest.json" ]; then
    nmt-preprocess --source-lang en --target-lang de --trainpref "$text/train.lc.norm.tok" \
        --validpref "$text/val.lc.norm.tok" \
        --testpref "$text/test_2016_flickr.lc.norm.tok,$text/test_2017_flickr.lc.norm.tok" \
        --destdir "$output/corpus" --joined-dictionary --workers 2 \
        tokenizer=bpe --vocab-size 10000 --normalization identity
fi

nmt-train "$output/corpus" recipe=multi30k_tiny --save-dir "$output/run" --max-update "$updates" --seed 1

nmt-average-checkpoints --inputs "$output/run" --num-epoch-checkpoints 10 --output "$output/averaged" --overwrite

for year in 2016 2017; do
    test="test_${year}_flickr"
    nmt-generate --path "$output/averaged" --input "$text/$test.lc.norm.tok.en.gz" \
        --output "$output/$test.hypotheses" --overwrite --beam 5 --length-penalty power --lenpen 1
    nmt-score --sys "$output/$test.hypotheses" --ref "$text/$test.lc.norm.tok.de.gz" --metrics bleu,chrf --tokenize none \
        --format json | tee "$output/$test.json"
    published=()
    if [ "$year" = 2016 ]; then
        published=(--published 41.02 --comparable)
    fi
    "$python" "$here/../results.py" add "$output/results.json" --experiment "Multi30k, tokenized text" \
        --row "Transformer, $test" --metric BLEU --score "$output/$test.json" "${published[@]}" \
        --setting "joint BPE of 10,000, mean of ten epochs, beam 5" --run "$output/run"
done
