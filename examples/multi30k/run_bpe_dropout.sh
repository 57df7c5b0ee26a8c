#!/usr/bin/env bash
# Multi30k English-German on raw text as in run_raw.sh: three seeds with BPE-dropout, and three without.
#
#     NMT_DATA=FOLDER examples/multi30k/run_bpe_dropout.sh [OUTPUT, default runs/multi30k_bpe_dropout]
#
# SEEDS="1 2" selects other seeds, and DIGITS="0 05 1" other dropouts: 05 is a dropout of 0.05. Run the script again to
# resume an interrupted run; finished runs are skipped. UPDATES=300 trains for 300 updates; the default is 3,224. Set
# it before the first call, since the learning rate falls to zero at the last update. Scores are in OUTPUT/*/*.json,
# means over the seeds in OUTPUT/results.json.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
text=${NMT_DATA:?set NMT_DATA to the folder that holds multi30k/}/multi30k
output=${1:-runs/multi30k_bpe_dropout}
updates=${UPDATES:-3224}
seeds=${SEEDS:-1 2 3}
python=${PYTHON:-python}
. "$here/../needs.sh"
needs "$text"/{train,val,test_2016_flickr,test_2017_flickr}.{en,de}.gz

if [ ! -e "$output/corpus/manifest.json" ]; then
    nmt-preprocess --source-lang en --target-lang de --trainpref "$text/train" --validpref "$text/val" \
        --testpref "$text/test_2016_flickr,$text/test_2017_flickr" \
        --destdir "$output/corpus" --joined-dictionary --workers 2 tokenizer=bpe --vocab-size 8000
fi

for seed in $seeds; do
    for digits in ${DIGITS:-0 1}; do
        run="$output/dropout-0.$digits-seed-$seed"
        # BPE-dropout makes sentences longer, so that an epoch has more updates. All runs make the 3,224 updates of
        # run_raw.sh.
        if [ "$digits" = 0 ]; then
            nmt-train "$output/corpus" recipe=multi30k_raw --save-dir "$run" --max-epoch 0 --max-update "$updates" --seed "$seed"
        else
            nmt-train "$output/corpus" recipe=multi30k_bpe_dropout --save-dir "$run" --bpe-dropout "0.$digits" \
                --max-update "$updates" --seed "$seed"
        fi
        for year in 2016 2017; do
            test="test_${year}_flickr"
            nmt-generate --path "$run" --input "$text/$test.en.gz" \
                --output "$run/$test.hypotheses" --overwrite
            nmt-score --sys "$run/$test.hypotheses" --ref "$text/$test.de.gz" --metrics bleu,chrf --format json |
                tee "$run/$test.json"
        done
    done
done

for digits in ${DIGITS:-0 1}; do
    for test in test_2016_flickr test_2017_flickr; do
        runs=() scores=()
        for seed in $seeds; do
            runs+=("$output/dropout-0.$digits-seed-$seed")
            scores+=("$output/dropout-0.$digits-seed-$seed/$test.json")
        done
        "$python" "$here/../results.py" add "$output/results.json" --experiment "Multi30k, BPE-dropout" \
            --row "Transformer, BPE-dropout of 0.$digits, $test" --metric BLEU --score "${scores[@]}" \
            --setting "raw text, joint BPE of 8,000, beam 5" --run "${runs[@]}"
    done
done
