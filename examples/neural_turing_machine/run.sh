#!/usr/bin/env bash
# The copy task: a Neural Turing Machine and an LSTM learn to copy up to 20 vectors, and are tested with up to 120.
# The script writes all files to one folder:
#
#     examples/neural_turing_machine/run.sh [FOLDER, default copy]
#
# Run it again to resume an interrupted run. FOLDER/results.json has the results. The script fails if the Neural Turing
# Machine copies less than 90 % of the sequences of 120 vectors.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:-copy}
python=${PYTHON:-python}
lengths=10,20,40,60,80,100,120

# One thread: matrices this small gain little from a second one, and lose much if other programs use the cores.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

"$python" "$here/generate.py" "$folder/text" --task copy --longest 20 --size 200000 --held-out 100 \
    --test-lengths "$lengths" --seed 1

nmt-preprocess --source-lang src --target-lang tgt --trainpref "$folder/text/train" --validpref "$folder/text/valid" \
    --srcdict "$folder/text/source.pieces" --tgtdict "$folder/text/target.pieces" \
    --destdir "$folder/corpus" --overwrite tokenizer=words

nmt-train "$folder/corpus" recipe=copying --save-dir "$folder/run-ntm" --seed 1

nmt-train "$folder/corpus" --user-dir "$here/stacked_lstm" recipe=copying model=stacked_lstm_copy --batch-size 32 \
    --max-update 10000 --save-dir "$folder/run-lstm" --seed 1

nmt-average-checkpoints --inputs "$folder/run-ntm" --num-update-checkpoints 3 --output "$folder/averaged-ntm" --overwrite

mkdir -p "$folder/ntm" "$folder/lstm"
for length in ${lengths//,/ }; do
    nmt-generate --path "$folder/averaged-ntm" --search greedy --input "$folder/text/test.$length.src" \
        --output "$folder/ntm/test.$length.hypotheses" --overwrite
    nmt-generate --user-dir "$here/stacked_lstm" --path "$folder/run-lstm" --search greedy \
        --input "$folder/text/test.$length.src" --output "$folder/lstm/test.$length.hypotheses" --overwrite
done

"$python" "$here/table.py" "$folder" --systems ntm,lstm --lengths "$lengths"

for length in ${lengths//,/ }; do
    for system in ntm lstm; do
        row="LSTM, three layers of 256"
        if [ "$system" = ntm ]; then
            row="Neural Turing Machine"
        fi
        nmt-score --sys "$folder/$system/test.$length.hypotheses" --ref "$folder/text/test.$length.tgt" --metrics exact \
            --format json > "$folder/$system/score.$length.json"
        "$python" "$here/../results.py" add "$folder/results.json" --experiment "Neural Turing Machine: copying" \
            --row "$row, $length vectors" --metric "exact match, %" --score "$folder/$system/score.$length.json" \
            --setting "100 sequences; trained with up to 20 vectors" --run "$folder/run-$system"
    done
done

"$python" - "$folder/ntm/score.120.json" <<'CHECK'
import json, sys

(score,) = json.load(open(sys.argv[1], encoding="utf-8"))["scores"]
print(f"120 vectors: {score['score']:.2f} % exact match {score['detail']}")
sys.exit(0 if score["score"] >= 90 else "a machine that learned to copy 20 vectors should copy 90 % of the sequences of 120")
CHECK
