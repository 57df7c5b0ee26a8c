#!/usr/bin/env bash
# Six architectures on Multi30k English-German with an equal budget: 13 epochs, about 5.9 million target tokens each, over
# 1.2 to 1.4 million parameters besides the embeddings (the experts: 2.1 million).
#
#     NMT_DATA=FOLDER examples/multi30k/run_family.sh [OUTPUT, default runs/multi30k_family]
#
# Stop it and run it again: training continues where it was.
set -euo pipefail
text=${NMT_DATA:?set NMT_DATA to the folder that holds multi30k/}/multi30k
output=${1:-runs/multi30k_family}

if [ ! -e "$output/corpus/manifest.json" ]; then
    nmt-preprocess --source-lang en --target-lang de --trainpref "$text/train" --validpref "$text/val" \
        --testpref "$text/test_2016_flickr" \
        --destdir "$output/corpus" --joined-dictionary --workers 2 tokenizer=bpe --vocab-size 8000
fi

nmt-train "$output/corpus" model=lstm_tiny model.hidden_size=224 model.readout_size=128 model.share_all_embeddings=true --save-dir "$output/lstm" \
    --max-tokens 2048 --lr 0.003 --lr-scheduler linear --adam-betas 0.9,0.98 --dropout 0.2 --clip-norm 1 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --max-epoch 13 --keep-last-epochs 1 --valid-samples 0 --seed 1

nmt-train "$output/corpus" model=gnmt_tiny model.hidden_size=144 --save-dir "$output/gnmt" \
    --max-tokens 2048 --lr 0.003 --lr-scheduler linear --adam-betas 0.9,0.98 --dropout 0.2 --clip-norm 1 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --max-epoch 13 --keep-last-epochs 1 --valid-samples 0 --seed 1

nmt-train "$output/corpus" model=conv_s2s_tiny --save-dir "$output/conv_s2s" \
    --max-tokens 2048 --lr 0.002 --lr-scheduler linear --adam-betas 0.9,0.98 --dropout 0.2 --clip-norm 1 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --max-epoch 13 --keep-last-epochs 1 --valid-samples 0 --seed 1

nmt-train "$output/corpus" model=bytenet_tiny --save-dir "$output/bytenet" \
    --max-tokens 2048 --lr 0.002 --lr-scheduler linear --adam-betas 0.9,0.98 --dropout 0.2 --clip-norm 1 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --max-epoch 13 --keep-last-epochs 1 --valid-samples 0 --seed 1

nmt-train "$output/corpus" model=transformer_tiny --save-dir "$output/transformer" \
    --max-tokens 2048 --lr 0.003 --lr-scheduler linear --adam-betas 0.9,0.98 --dropout 0.2 --clip-norm 1 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --max-epoch 13 --keep-last-epochs 1 --valid-samples 0 --seed 1

nmt-train "$output/corpus" model=transformer_moe_tiny --save-dir "$output/transformer_moe" \
    --max-tokens 2048 --lr 0.003 --lr-scheduler linear --adam-betas 0.9,0.98 --dropout 0.2 --clip-norm 1 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --max-epoch 13 --keep-last-epochs 1 --valid-samples 0 --seed 1

for model in lstm gnmt conv_s2s bytenet transformer transformer_moe; do
    nmt-generate --path "$output/$model" --input "$text/test_2016_flickr.en.gz" \
        --output "$output/$model.hypotheses" --overwrite --beam 5 --length-penalty power --lenpen 1
    echo "$model"
    nmt-score --sys "$output/$model.hypotheses" --ref "$text/test_2016_flickr.de.gz" --metrics bleu,chrf
done
