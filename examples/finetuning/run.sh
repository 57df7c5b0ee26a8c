#!/usr/bin/env bash
# Fine-tune a general model to a domain with few sentences: on the domain alone, and on the domain mixed with general
# text.
#
#     NMT_DATA=FOLDER examples/finetuning/run.sh [OUTPUT, default runs/finetuning]
#
# Run it again to resume an interrupted run. EPOCHS=2 trains the general model for 2 epochs; the default is 8.
# OUTPUT/results.json has the results.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
text=${NMT_DATA:?set NMT_DATA to the folder that holds multi30k/}/multi30k
output=${1:-runs/finetuning}
python=${PYTHON:-python}
epochs=${EPOCHS:-8}
. "$here/../needs.sh"
needs "$text"/{train,val,test_2016_flickr,test_2017_flickr}.{en,de}.gz

"$python" "$here/split.py" "$text" "$output/text"

# Both corpora use the vocabulary of the general text.
if [ ! -e "$output/land/manifest.json" ]; then
    nmt-preprocess --source-lang en --target-lang de --trainpref "$output/text/land.train" \
        --validpref "$output/text/land.valid" --destdir "$output/land" --joined-dictionary --workers 2 \
        tokenizer=bpe --vocab-size 8000
fi
if [ ! -e "$output/water/manifest.json" ]; then
    nmt-preprocess --source-lang en --target-lang de --trainpref "$output/text/water.train" \
        --validpref "$output/text/water.valid" --destdir "$output/water" --joined-dictionary --workers 2 \
        --srcdict "$output/land"
fi

nmt-train "$output/land" recipe=multi30k_fast --save-dir "$output/general" --max-epoch "$epochs" --seed 1

for model in domain mixed; do
    if [ "$output/general/log.jsonl" -nt "$output/$model/log.jsonl" ] && [ -e "$output/$model/log.jsonl" ]; then
        echo "run.sh: $output/general was trained further after $output/$model was made from it; move $output/domain and $output/mixed" >&2
        exit 1
    fi
done

# A tenth of the learning rate and few epochs, so that the model keeps what it learned from general text.
nmt-train "$output/water" recipe=domain_finetuning --save-dir "$output/domain" --finetune-from-model "$output/general" \
    --max-epoch 5 --seed 1

# Half of the pairs are from the domain. With twice the updates, the model sees each of these as often as above.
updates=$(sed -n 's/^{"event": "end", "update": \([0-9]*\),.*/\1/p' "$output/domain/log.jsonl" | tail -n 1)
twice=$((2 * ${updates:?$output/domain/log.jsonl has no end of a run}))
nmt-train "$output/water" "$output/land" --sampling-weights 1,1 recipe=domain_finetuning --save-dir "$output/mixed" \
    --finetune-from-model "$output/general" --max-update "$twice" --seed 1

pairs=$(wc -l < "$output/text/water.train.en")
for test in water land; do
    captions="captions with water"
    if [ "$test" = land ]; then
        captions="other captions"
    fi
    for model in general domain mixed; do
        case $model in
            general) row="general model" ;;
            domain) row="fitted to the domain alone" ;;
            mixed) row="fitted to the domain and general text" ;;
        esac
        nmt-generate --path "$output/$model" --input "$output/text/$test.test.en" \
            --output "$output/$model.$test" --overwrite
        nmt-score --sys "$output/$model.$test" --ref "$output/text/$test.test.de" --metrics bleu --format json \
            > "$output/$model.$test.json"
        "$python" "$here/../results.py" add "$output/results.json" --experiment "Fine-tuning to a domain" \
            --row "$row, $captions" --metric BLEU --score "$output/$model.$test.json" \
            --setting "Multi30k, lightconv_tiny, $pairs pairs of the domain" --run "$output/$model"
    done
    echo "$captions"
    nmt-score --sys "$output/general.$test" "$output/domain.$test" "$output/mixed.$test" \
        --ref "$output/text/$test.test.de" --metrics bleu,chrf --confidence --paired bootstrap --format markdown
done
