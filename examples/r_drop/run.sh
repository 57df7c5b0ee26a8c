#!/usr/bin/env bash
# The effect of R-Drop on Multi30k English-German: the same model with and without it, for the same number of epochs.
#
#     NMT_DATA=FOLDER examples/r_drop/run.sh [OUTPUT, default runs/r_drop]
#
# SEEDS="1 2 3" trains three seeds; the default is one. EPOCHS=2 trains for 2 epochs; the default is 16. Run it again
# to resume an interrupted run. OUTPUT/results.json has the results.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
text=${NMT_DATA:?set NMT_DATA to the folder that holds multi30k_tok/}/multi30k_tok
output=${1:-runs/r_drop}
python=${PYTHON:-python}
epochs=${EPOCHS:-16}
seeds=${SEEDS:-1}
. "$here/../needs.sh"
needs "$text"/{train,val,test_2016_flickr}.lc.norm.tok.{en,de}.gz

if [ ! -e "$output/corpus/manifest.json" ]; then
    nmt-preprocess --source-lang en --target-lang de --trainpref "$text/train.lc.norm.tok" \
        --validpref "$text/val.lc.norm.tok" --destdir "$output/corpus" --joined-dictionary --workers 2 \
        tokenizer=bpe --vocab-size 10000 --normalization identity
fi

for seed in $seeds; do
    nmt-train "$output/corpus" recipe=multi30k_record criterion=label_smoothed_cross_entropy --save-dir "$output/without-$seed" \
        --max-epoch "$epochs" --threads 1 --seed "$seed"
    nmt-train "$output/corpus" recipe=multi30k_record --save-dir "$output/with-$seed" \
        --max-epoch "$epochs" --threads 1 --seed "$seed"
    for system in without with; do
        run="$output/$system-$seed"
        for test in val test_2016_flickr; do
            nmt-generate --path "$run" --input "$text/$test.lc.norm.tok.en.gz" --output "$run/$test.hypotheses" --overwrite
            nmt-score --sys "$run/$test.hypotheses" --ref "$text/$test.lc.norm.tok.de.gz" --metrics bleu --tokenize none \
                --format json > "$run/$test.json"
        done
    done
done

for system in without with; do
    for test in val test_2016_flickr; do
        runs=() scores=()
        for seed in $seeds; do
            runs+=("$output/$system-$seed")
            scores+=("$output/$system-$seed/$test.json")
        done
        "$python" "$here/../results.py" add "$output/results.json" --experiment "R-Drop" --row "$system R-Drop, $test" \
            --metric BLEU --score "${scores[@]}" \
            --setting "Multi30k, tokenized text, lightconv_tiny, {epochs} epochs" --run "${runs[@]}"
    done
done
