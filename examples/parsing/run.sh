#!/usr/bin/env bash
# Table 4 of "Attention Is All You Need" on a sample of the Penn Treebank: three parsers and a baseline, scored like
# EVALB.
#
#     NMT_DATA=FOLDER examples/parsing/run.sh [OUTPUT, default runs/parsing]
#
# FOLDER/treebank holds train.mrg.gz, dev.mrg.gz and test.mrg.gz (split.py makes them). Run the script again to resume
# an interrupted run; finished training runs are skipped. OUTPUT/results.json has the results. SYSTEMS="lstm" trains
# only this parser. EPOCHS=10 trains for 10 epochs; the recipes have 30 (vinyals: 50).
# shellcheck disable=SC2086  # $limit holds two words or none
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
treebank=${NMT_DATA:?set NMT_DATA to the folder that holds treebank/}/treebank
output=${1:-runs/parsing}
systems=${SYSTEMS:-lstm transformer vinyals}
python=${PYTHON:-python}
limit=${EPOCHS:+--max-epoch $EPOCHS}
fewer=${EPOCHS:+", {epochs} epochs"}
for system in $systems; do
    case $system in
    lstm | transformer | vinyals) ;;
    *)
        echo "run.sh: SYSTEMS names '$system', which is not a parser; there are lstm, transformer and vinyals" >&2
        exit 2
        ;;
    esac
done

# One thread: matrices this small gain little from a second one, and lose much if other programs use the cores.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

# Words and trees. Rare words become classes. The symbol of a word is its tag in tagged/, and always XX in plain/.
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

"$python" "$here/published.py" "$output/results.json"
"$python" "$here/baseline.py" < "$output/trees/test.src" > "$output/test.right_branching.parses"
nmt-score --sys "$output/test.right_branching.parses" --ref "$output/trees/test.trees" --metrics brackets \
    --format json > "$output/test.right_branching.json"
"$python" "$here/../results.py" add "$output/results.json" --experiment "Table 4" --metric F1 \
    --row "right-branching trees" --score "$output/test.right_branching.json" --setting "test of the sample"

# The recipes set the search. A parse is the first tree in ten hypotheses; for vinyals (the paper's baseline), the best
# one.
trees=$(wc -l < "$output/trees/train.trees")
for system in $systems; do
    nbest=10
    case $system in
    lstm)
        row=(--row "LSTM with guided attention") published=
        row+=(--setting "$trees trees with tags, recipe=parsing_small$fewer")
        nmt-train "$output/tagged/corpus" recipe=parsing_small --save-dir "$output/lstm" $limit --seed 1
        ;;
    transformer)
        row=(--row "Transformer, WSJ only") published=91.3
        row+=(--setting "$trees trees with tags, attention guided, relative positions, recipe=parsing_small_transformer$fewer")
        nmt-train "$output/tagged/corpus" recipe=parsing_small_transformer --save-dir "$output/transformer" \
            $limit --seed 1
        ;;
    vinyals)
        nbest=1
        row=(--row "Vinyals & Kaiser et al. (2014), WSJ only") published=88.3
        row+=(--setting "$trees trees, recipe=parsing_vinyals$fewer")
        nmt-train "$output/plain/corpus" recipe=parsing_vinyals --save-dir "$output/vinyals" $limit --seed 1
        ;;
    esac
    for split in dev test; do
        nmt-generate --path "$output/$system" --input "$output/tagged/$split.src" \
            --output "$output/$split.$system.hypotheses" --overwrite --nbest "$nbest"
        "$python" "$here/restore.py" "$output/trees/$split.src" --nbest "$nbest" < "$output/$split.$system.hypotheses" \
            > "$output/$split.$system.parses" 2> "$output/$split.$system.repairs" ||
            { cat "$output/$split.$system.repairs" >&2 && exit 1; }
        nmt-score --sys "$output/$split.$system.parses" --ref "$output/trees/$split.trees" --metrics brackets \
            --format json > "$output/$split.$system.json"
        case $split in
        dev) measure=(--metric "F1 on dev") ;; # no published figure is for dev
        test) measure=(--metric F1 ${published:+--published "$published"}) ;;
        esac
        "$python" "$here/../results.py" add "$output/results.json" --experiment "Table 4" "${row[@]}" "${measure[@]}" \
            --score "$output/$split.$system.json" --run "$output/$system"
        echo "$system, $split"
        nmt-score --sys "$output/$split.$system.parses" --ref "$output/trees/$split.trees" --metrics brackets
        cat "$output/$split.$system.repairs"
    done
done
