#!/usr/bin/env bash
# Compare six architectures on Multi30k English-German with an equal budget: 13 epochs, or about 5.9 million target
# tokens. Each has 1.2 to 1.4 million parameters without the embeddings; the Transformer with experts has 2.1 million.
#
#     NMT_DATA=FOLDER examples/multi30k/run_family.sh [OUTPUT, default runs/multi30k_family]
#
# MODELS="lstm conv_s2s transformer" selects other models, at least two. Each is compared with the first one. Run the
# script again to resume an interrupted run. OUTPUT/results.json has the scores.
# shellcheck disable=SC2086  # $options holds several words
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
text=${NMT_DATA:?set NMT_DATA to the folder that holds multi30k/}/multi30k
output=${1:-runs/multi30k_family}
python=${PYTHON:-python}
models=${MODELS:-lstm gnmt conv_s2s bytenet transformer transformer_moe}
if [ "$(wc -w <<< "$models")" -lt 2 ]; then
    echo "run_family.sh: MODELS='$models' has nothing to compare; name at least two models" >&2
    exit 2
fi
. "$here/../needs.sh"
needs "$text"/{train,val,test_2016_flickr}.{en,de}.gz

if [ ! -e "$output/corpus/manifest.json" ]; then
    nmt-preprocess --source-lang en --target-lang de --trainpref "$text/train" --validpref "$text/val" \
        --testpref "$text/test_2016_flickr" \
        --destdir "$output/corpus" --joined-dictionary --workers 2 tokenizer=bpe --vocab-size 8000
fi

first="" others=()
for model in $models; do
    options="model=${model}_tiny"
    case $model in
        lstm)
            options="$options model.hidden_size=224 model.readout_size=128 model.share_all_embeddings=true"
            row="LSTM with attention"
            ;;
        gnmt)
            options="$options model.hidden_size=144"
            row=GNMT
            ;;
        conv_s2s)
            options="model=${model}_tiny --lr 0.002"
            row=ConvS2S
            ;;
        bytenet)
            options="model=${model}_tiny --lr 0.002"
            row=ByteNet
            ;;
        transformer) row=Transformer ;;
        transformer_moe) row="Transformer with experts" ;;
        *) row=$model ;;
    esac
    nmt-train "$output/corpus" recipe=multi30k_raw $options --save-dir "$output/$model" --valid-samples 0 --seed 1
    nmt-generate --path "$output/$model" --input "$text/test_2016_flickr.en.gz" \
        --output "$output/$model.hypotheses" --overwrite
    nmt-score --sys "$output/$model.hypotheses" --ref "$text/test_2016_flickr.de.gz" --metrics bleu,chrf --format json |
        tee "$output/$model.json"
    "$python" "$here/../results.py" add "$output/results.json" --experiment "Multi30k, one budget" \
        --row "$row" --metric BLEU --score "$output/$model.json" \
        --setting "raw text, test_2016_flickr, 13 epochs, beam 5" --run "$output/$model"
    if [ -z "$first" ]; then
        first=$output/$model.hypotheses
    else
        others+=("$output/$model.hypotheses")
    fi
done

nmt-score "$first" "${others[@]}" --ref "$text/test_2016_flickr.de.gz" --metrics bleu,chrf \
    --confidence --paired bootstrap --format markdown
nmt-compare "$first" "${others[@]}" --ref "$text/test_2016_flickr.de.gz" --src "$text/test_2016_flickr.en.gz" \
    --output "$output/compare.html" --overwrite
