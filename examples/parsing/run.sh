#!/usr/bin/env bash
# Table 4 of "Attention Is All You Need" on a sample of the Penn Treebank: three parsers and a baseline, scored as EVALB does.
#
#     NMT_DATA=FOLDER examples/parsing/run.sh [OUTPUT, default runs/parsing]
#
# FOLDER/treebank holds train.mrg.gz, dev.mrg.gz and test.mrg.gz. Stop the script and run it again: trainings that are done
# are passed over, the one at hand continues where it was. Scores are in OUTPUT/results.json. SYSTEMS="lstm" makes one parser
# alone, and EPOCHS=10 trains for fewer epochs than 30.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
treebank=${NMT_DATA:?set NMT_DATA to the folder that holds treebank/}/treebank
output=${1:-runs/parsing}
systems=${SYSTEMS:-lstm transformer vinyals}
epochs=${EPOCHS:-30}
python=${PYTHON:-python}

# Matrices this small gain little from a second thread, and lose much where other programs want the cores.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

# Words and trees. Rare words become classes; in tagged/ the symbols of words are their tags, in plain/ all are XX.
for split in train dev test; do
    "$python" "$here/prepare.py" "$treebank/$split.mrg.gz" "$output/trees/$split" --tags keep --guide next
    "$python" "$here/prepare.py" "$treebank/$split.mrg.gz" "$output/plain/$split"
    mkdir -p "$output/tagged"
    cp "$output/trees/$split.tgt" "$output/trees/$split.align" "$output/tagged"
    for form in tagged plain; do
        "$python" "$here/classes.py" "$output/trees/train.src" < "$output/trees/$split.src" > "$output/$form/$split.src"
    done
done
for form in tagged plain; do
    if [ ! -e "$output/$form/corpus/manifest.json" ]; then
        nmt-preprocess --source-lang src --target-lang tgt --trainpref "$output/$form/train" \
            --validpref "$output/$form/dev" --align-suffix align --destdir "$output/$form/corpus" tokenizer=words
    fi
done

"$python" "$here/baseline.py" < "$output/trees/test.src" > "$output/test.right_branching.parses"
nmt-score --sys "$output/test.right_branching.parses" --ref "$output/trees/test.trees" --metrics brackets \
    --format json > "$output/test.right_branching.json"
"$python" "$here/../results.py" add "$output/results.json" --experiment "Table 4" --metric F1 \
    --row "right-branching trees" --score "$output/test.right_branching.json" --setting "test of the sample"

for system in $systems; do
    case $system in
    lstm)
        nmt-train "$output/tagged/corpus" recipe=parsing_small --save-dir "$output/lstm" --max-epoch "$epochs" --seed 1
        ;;
    transformer)
        nmt-train "$output/tagged/corpus" recipe=parsing_small_transformer --save-dir "$output/transformer" \
            --max-epoch "$epochs" --seed 1
        ;;
    vinyals)
        nmt-train "$output/plain/corpus" recipe=parsing_vinyals --save-dir "$output/vinyals" --max-epoch "$epochs" --seed 1
        ;;
    esac
    for split in dev test; do
        nmt-generate --path "$output/$system" --input "$output/tagged/$split.src" \
            --output "$output/$split.$system.hypotheses" --overwrite --beam 10 --nbest 10 --lenpen 0.6 --max-len-b 300
        "$python" "$here/restore.py" "$output/trees/$split.src" --nbest 10 < "$output/$split.$system.hypotheses" \
            > "$output/$split.$system.parses" 2> "$output/$split.$system.repairs"
        nmt-score --sys "$output/$split.$system.parses" --ref "$output/trees/$split.trees" --metrics brackets \
            --format json > "$output/$split.$system.json"
        echo "$system, $split"
        nmt-score --sys "$output/$split.$system.parses" --ref "$output/trees/$split.trees" --metrics brackets
        cat "$output/$split.$system.repairs"
    done
    case $system in
    lstm) row=(--row "LSTM with guided attention") ;;
    transformer) row=(--row "Transformer, WSJ only" --published 91.3) ;;
    vinyals) row=(--row "Vinyals & Kaiser et al. (2014), WSJ only" --published 88.3) ;;
    esac
    "$python" "$here/../results.py" add "$output/results.json" --experiment "Table 4" --metric F1 "${row[@]}" \
        --score "$output/test.$system.json" --setting "3,396 trees, $epochs epochs" --run "$output/$system"
done
