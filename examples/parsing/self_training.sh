#!/usr/bin/env bash
# Semi-supervised parsing in miniature: the LSTM of run.sh parses sentences without trees. A new parser learns from
# these and from the treebank, with equal shares of sentences.
#
#     examples/parsing/self_training.sh SENTENCES [OUTPUT, default runs/parsing]
#
# SENTENCES is an uncompressed file with one sentence per line, split into words like the treebank (words.py does
# this). OUTPUT is the folder of run.sh; the script adds results to its results.json. Run it again to resume an
# interrupted run. EPOCHS=10 trains for 10 epochs; the default is 15.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
sentences=${1:?name a file of sentences}
output=${2:-runs/parsing}
epochs=${EPOCHS:-15}
python=${PYTHON:-python}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

if [ ! -r "$sentences" ] || [ -d "$sentences" ]; then
    echo "self_training.sh: there is no file $sentences; name a file of sentences" >&2
    exit 1
fi
case $sentences in
*.gz | *.xz | *.zst)
    echo "self_training.sh: $sentences is compressed; unpack it, and cut it into words with words.py" >&2
    exit 1
    ;;
esac
mkdir -p "$output/parsed"
if ! LC_ALL=C grep -av '^[[:space:]]*$' "$sentences" > "$output/parsed/words.new"; then
    echo "self_training.sh: $sentences has no sentence" >&2
    exit 1
fi
if [ ! -e "$output/parsed/corpus/manifest.json" ]; then
    mv "$output/parsed/words.new" "$output/parsed/words"
    "$python" "$here/classes.py" "$output/trees/train.src" < "$output/parsed/words" > "$output/parsed/classes"
    nmt-generate --path "$output/lstm" --input "$output/parsed/classes" --output "$output/parsed/hypotheses" \
        --overwrite --beam 5
    "$python" "$here/restore.py" "$output/parsed/words" < "$output/parsed/hypotheses" > "$output/parsed/parses"
    # The new trees form a second treebank.
    "$python" "$here/prepare.py" "$output/parsed/parses" "$output/parsed/train" --tags keep --guide next
    cp "$output/parsed/classes" "$output/parsed/train.src"
    nmt-preprocess --source-lang src --target-lang tgt --trainpref "$output/parsed/train" --align-suffix align \
        --srcdict "$output/tagged/corpus" --tgtdict "$output/tagged/corpus" --destdir "$output/parsed/corpus"
elif ! cmp -s "$output/parsed/words.new" "$output/parsed/words"; then
    echo "self_training.sh: $output/parsed was made from other sentences than $sentences; move it and $output/self_trained" >&2
    exit 1
fi

nmt-train "$output/tagged/corpus" "$output/parsed/corpus" --sampling-weights 1,1 recipe=parsing_small \
    --save-dir "$output/self_trained" --max-epoch "$epochs" --seed 1

nmt-generate --path "$output/self_trained" --input "$output/tagged/dev.src" \
    --output "$output/dev.self_trained.hypotheses" --overwrite --nbest 10
"$python" "$here/restore.py" "$output/trees/dev.src" --nbest 10 < "$output/dev.self_trained.hypotheses" \
    > "$output/dev.self_trained.parses"
nmt-score --sys "$output/dev.self_trained.parses" --ref "$output/trees/dev.trees" --metrics brackets --format json |
    tee "$output/dev.self_trained.json"
trees=$(wc -l < "$output/trees/train.trees")
parsed=$(wc -l < "$output/parsed/train.trees")
"$python" "$here/../results.py" add "$output/results.json" --experiment "Table 4" --metric "F1 on dev" \
    --row "LSTM with guided attention, semi-supervised" --score "$output/dev.self_trained.json" \
    --setting "$trees trees and $parsed sentences parsed by the LSTM, {epochs} epochs" --run "$output/self_trained"
