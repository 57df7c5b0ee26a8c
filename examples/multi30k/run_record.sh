#!/usr/bin/env bash
# Multi30k English-German, lower-cased and tokenized as in run_tokenized.sh: recipe=multi30k_record, three seeds.
#
#     NMT_DATA=FOLDER examples/multi30k/run_record.sh [OUTPUT, default runs/multi30k_record]
#
# SEEDS="1" trains one seed. Run it again to resume an interrupted run. EPOCHS=2 trains for 2 epochs; the default is
# 32. OUTPUT/results.json has the scores.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
text=${NMT_DATA:?set NMT_DATA to the folder that holds multi30k_tok/}/multi30k_tok
output=${1:-runs/multi30k_record}
python=${PYTHON:-python}
epochs=${EPOCHS:-32}
seeds=${SEEDS:-1 2 3}
. "$here/../needs.sh"
needs "$text"/{train,val,test_2016_flickr,test_2017_flickr}.lc.norm.tok.{en,de}.gz

if [ ! -e "$output/corpus/manifest.json" ]; then
    nmt-preprocess --source-lang en --target-lang de --trainpref "$text/train.lc.norm.tok" \
        --validpref "$text/val.lc.norm.tok" \
        --testpref "$text/test_2016_flickr.lc.norm.tok,$text/test_2017_flickr.lc.norm.tok" \
        --destdir "$output/corpus" --joined-dictionary --workers 2 \
        tokenizer=bpe --vocab-size 10000 --normalization identity
fi

for seed in $seeds; do
    run="$output/seed-$seed"
    nmt-train "$output/corpus" recipe=multi30k_record --save-dir "$run" --max-epoch "$epochs" --threads 1 --seed "$seed"
    for year in 2016 2017; do
        test="test_${year}_flickr"
        nmt-generate --path "$run" --input "$text/$test.lc.norm.tok.en.gz" --output "$run/$test.hypotheses" --overwrite
        nmt-score --sys "$run/$test.hypotheses" --ref "$text/$test.lc.norm.tok.de.gz" --metrics bleu --tokenize none \
            --format json > "$run/$test.json"
    done
done

for year in 2016 2017; do
    test="test_${year}_flickr"
    runs=() scores=()
    for seed in $seeds; do
        runs+=("$output/seed-$seed")
        scores+=("$output/seed-$seed/$test.json")
    done
    published=(--setting "{epochs} epochs, recipe=multi30k_record")
    if [ "$year" = 2016 ]; then
        published=(--published 41.02 --comparable)
        published+=(--setting "{epochs} epochs, recipe=multi30k_record; published is a Transformer-Tiny")
    fi
    "$python" "$here/../results.py" add "$output/results.json" --experiment "Multi30k, tokenized text" \
        --row "lightweight convolutions with R-Drop, $test" --metric BLEU --score "${scores[@]}" --run "${runs[@]}" \
        "${published[@]}"
done
