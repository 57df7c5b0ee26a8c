#!/usr/bin/env bash
# Variants of the Transformer on Multi30k English-German, with the budget and the settings of run_family.sh.
#
#     NMT_DATA=FOLDER examples/multi30k/run_variants.sh [OUTPUT, default runs/multi30k_family]
#
# The script uses the corpus of run_family.sh if it is in OUTPUT. Run it again to resume an interrupted run.
# OUTPUT/results.json has the scores.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
text=${NMT_DATA:?set NMT_DATA to the folder that holds multi30k/}/multi30k
output=${1:-runs/multi30k_family}
python=${PYTHON:-python}
. "$here/../needs.sh"
needs "$text"/{train,val,test_2016_flickr}.{en,de}.gz

if [ ! -e "$output/corpus/manifest.json" ]; then
    nmt-preprocess --source-lang en --target-lang de --trainpref "$text/train" --validpref "$text/val" \
        --testpref "$text/test_2016_flickr" \
        --destdir "$output/corpus" --joined-dictionary --workers 2 tokenizer=bpe --vocab-size 8000
fi

nmt-train "$output/corpus" recipe=multi30k_raw model.positions=alibi --save-dir "$output/alibi" --valid-samples 0 --seed 1

nmt-train "$output/corpus" recipe=multi30k_raw model=lightconv_tiny --save-dir "$output/lightconv" --valid-samples 0 --seed 1

nmt-train "$output/corpus" recipe=multi30k_raw model=dynamicconv_tiny --save-dir "$output/dynamicconv" --valid-samples 0 --seed 1

for model in alibi lightconv dynamicconv; do
    case $model in
        alibi) row="Transformer with ALiBi" ;;
        lightconv) row="lightweight convolutions" ;;
        dynamicconv) row="dynamic convolutions" ;;
    esac
    nmt-generate --path "$output/$model" --input "$text/test_2016_flickr.en.gz" \
        --output "$output/$model.hypotheses" --overwrite
    nmt-score --sys "$output/$model.hypotheses" --ref "$text/test_2016_flickr.de.gz" --metrics bleu,chrf --format json |
        tee "$output/$model.json"
    "$python" "$here/../results.py" add "$output/results.json" --experiment "Multi30k, one budget" \
        --row "$row" --metric BLEU --score "$output/$model.json" \
        --setting "raw text, test_2016_flickr, 13 epochs, beam 5" --run "$output/$model"
done
