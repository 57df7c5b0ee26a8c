#!/usr/bin/env bash
# Low-rank adapters beside full fine-tuning, from an English-German model: to a domain with few sentences, and to
# English-French.
#
#     NMT_DATA=FOLDER examples/finetuning/adapters.sh [OUTPUT, default runs/adapters]
#
# Run it again to resume an interrupted run. EPOCHS=2 trains the general model for 2 epochs and the French ones for 1;
# the defaults are 8 and 4. OUTPUT/table.md has the results.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
text=${NMT_DATA:?set NMT_DATA to the folder that holds multi30k/}/multi30k
output=${1:-runs/adapters}
python=${PYTHON:-python}
epochs=${EPOCHS:-8}
. "$here/../needs.sh"
needs "$text"/{train,val,test_2016_flickr,test_2017_flickr}.{en,de,fr}.gz

"$python" "$here/split.py" "$text" "$output/text"
parts="$output/text"
mkdir -p "$parts"
# The vocabulary covers all three languages, as if French were German.
folder=$(cd "$text" && pwd)
ln -sf "$folder/train.en.gz" "$parts/french.en.gz"
ln -sf "$folder/train.fr.gz" "$parts/french.de.gz"
if [ ! -e "$output/vocabulary/manifest.json" ]; then
    nmt-preprocess --source-lang en --target-lang de --trainpref "$text/train,$parts/french" \
        --validpref "$parts/land.valid" --destdir "$output/vocabulary" --joined-dictionary --workers 2 tokenizer=bpe --vocab-size 8000
fi
prepare() { # CORPUS TARGET-LANGUAGE TRAIN VALID
    if [ ! -e "$output/$1/manifest.json" ]; then
        nmt-preprocess --source-lang en --target-lang "$2" --trainpref "$3" --validpref "$4" \
            --destdir "$output/$1" --joined-dictionary --workers 2 --srcdict "$output/vocabulary"
    fi
}
prepare land de "$parts/land.train" "$parts/land.valid"
prepare water de "$parts/water.train" "$parts/water.valid"
prepare french fr "$text/train" "$text/val"

train() { # RUN CORPUS [OPTION...]
    local run="$output/$1" corpus="$output/$2"
    shift 2
    nmt-train "$corpus" --save-dir "$run" --seed 1 --threads 1 "$@"
}
adapt() { # RUN CORPUS [OPTION...]: from the general model
    train "$@" --finetune-from-model "$output/general"
}
train general land recipe=multi30k_fast --max-epoch "$epochs"

# Domain: five epochs. Adapters learn at ten times the rate of full fine-tuning.
adapt water-full water recipe=domain_finetuning --max-epoch 5
for rank in 4 16; do
    adapt "water-rank-$rank" water recipe=domain_finetuning --max-epoch 5 --lr 0.003 --lora-rank "$rank"
done
adapt water-biases water recipe=domain_finetuning --max-epoch 5 --lr 0.003 --train-only '*bias'

# French: its tokens need new embeddings, so the adapters of two runs include those, or they are trained whole.
french=(french recipe=multi30k_fast --max-epoch "$(((epochs + 1) / 2))")
adapt french-full "${french[@]}"
adapt french-rank-16 "${french[@]}" --lora-rank 16
adapt french-rank-64-all "${french[@]}" --lora-rank 64 --lora-on '*'
adapt french-rank-16-embeddings "${french[@]}" --lora-rank 16 --train-only '*embedding*'

for run in general water-full water-rank-4 water-rank-16 water-biases; do
    for test in water land; do
        nmt-generate --path "$output/$run" --input "$parts/$test.test.en" --output "$output/$run.$test" --overwrite
        nmt-score --sys "$output/$run.$test" --ref "$parts/$test.test.de" --metrics bleu --format json \
            > "$output/$run.$test.json"
    done
done
for run in french-full french-rank-16 french-rank-64-all french-rank-16-embeddings; do
    nmt-generate --path "$output/$run" --input "$text/test_2016_flickr.en.gz" --output "$output/$run.french" --overwrite
    nmt-score --sys "$output/$run.french" --ref "$text/test_2016_flickr.fr.gz" --metrics bleu --format json \
        > "$output/$run.french.json"
done

# Merged and with the adapter, the same lines.
for run in water-rank-16 french-rank-16; do
    test=${run%%-*}
    input=$parts/water.test.en
    if [ "$test" = french ]; then
        input=$text/test_2016_flickr.en.gz
    fi
    nmt-export --path "$output/$run" --merge --output "$output/$run-merged" --overwrite
    nmt-generate --path "$output/$run-merged" --input "$input" --output "$output/$run-merged.$test" --overwrite
    cmp "$output/$run.$test" "$output/$run-merged.$test"
done
"$python" "$here/adapters_table.py" "$output" | tee "$output/table.md"
