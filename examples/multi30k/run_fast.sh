#!/usr/bin/env bash
# Multi30k English-German on raw text as in run_raw.sh, in a few minutes of CPU time: recipe=multi30k_fast, three
# seeds.
#
#     NMT_DATA=FOLDER examples/multi30k/run_fast.sh [OUTPUT, default runs/multi30k_fast]
#
# SEEDS="1" trains one seed. Run it again to resume an interrupted run. Scores are in OUTPUT/seed-*/*.json, means over
# the seeds in OUTPUT/results.json. OUTPUT/seed-*.time has the CPU user time of each training run in seconds.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
text=${NMT_DATA:?set NMT_DATA to the folder that holds multi30k/}/multi30k
output=${1:-runs/multi30k_fast}
seeds=${SEEDS:-1 2 3}
python=${PYTHON:-python}
. "$here/../needs.sh"
needs "$text"/{train,val,test_2016_flickr,test_2017_flickr}.{en,de}.gz

if [ ! -e "$output/corpus/manifest.json" ]; then
    nmt-preprocess --source-lang en --target-lang de --trainpref "$text/train" --validpref "$text/val" \
        --testpref "$text/test_2016_flickr,$text/test_2017_flickr" \
        --destdir "$output/corpus" --joined-dictionary --workers 2 tokenizer=bpe --vocab-size 8000
fi

TIMEFORMAT=%U
for seed in $seeds; do
    run="$output/seed-$seed"
    { time nmt-train "$output/corpus" recipe=multi30k_fast --save-dir "$run" --threads 1 --seed "$seed" 2>&3; } \
        3>&2 2>> "$output/seed-$seed.time"
    for year in 2016 2017; do
        test="test_${year}_flickr"
        nmt-generate --path "$run" --input "$text/$test.en.gz" --output "$run/$test.hypotheses" --overwrite
        nmt-score --sys "$run/$test.hypotheses" --ref "$text/$test.de.gz" --metrics bleu --format json > "$run/$test.json"
    done
done

for year in 2016 2017; do
    test="test_${year}_flickr"
    runs=() scores=()
    for seed in $seeds; do
        runs+=("$output/seed-$seed")
        scores+=("$output/seed-$seed/$test.json")
    done
    "$python" "$here/../results.py" add "$output/results.json" --experiment "Multi30k, raw text" --metric BLEU \
        --row "lightweight convolutions, $test" --score "${scores[@]}" \
        --setting "joint BPE of 8,000, recipe=multi30k_fast, beam 5" --run "${runs[@]}"
done
