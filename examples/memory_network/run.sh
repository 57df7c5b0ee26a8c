#!/usr/bin/env bash
# The look-up task with memory networks of one, two and three hops. The script writes all files to one folder:
#
#     examples/memory_network/run.sh [FOLDER, default look-up]
#
# Run it again to resume an interrupted run. FOLDER/results.json has the results. The script fails if three hops do not
# exceed 90 %, or if one hop reaches 50 %.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=${1:-look-up}
python=${PYTHON:-python}

# One thread: matrices this small gain little from a second one, and lose much if other programs use the cores.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

"$python" "$here/generate.py" "$folder/text" --links 3 --seed 1

nmt-preprocess --source-lang src --target-lang tgt --trainpref "$folder/text/train" \
    --validpref "$folder/text/valid" --testpref "$folder/text/test" \
    --destdir "$folder/corpus" --overwrite tokenizer=words

for hops in 1 2 3; do
    nmt-train "$folder/corpus" recipe=look_up --hops "$hops" --save-dir "$folder/run-$hops" --seed 1

    nmt-generate --path "$folder/run-$hops" --input "$folder/text/test.src" \
        --output "$folder/test.$hops.hypotheses" --overwrite

    nmt-score --sys "$folder/test.$hops.hypotheses" --ref "$folder/text/test.tgt" --metrics exact --format json \
        > "$folder/score.$hops.json"
    "$python" "$here/../results.py" add "$folder/results.json" --experiment "Memory network: three links" \
        --row "hops: $hops" --metric "exact match, %" --score "$folder/score.$hops.json" \
        --setting "1,000 held-out questions" --run "$folder/run-$hops"
done

"$python" - "$folder" <<'CHECK'
import json, sys

scores = []
for hops in (1, 2, 3):
    with open(f"{sys.argv[1]}/score.{hops}.json", encoding="utf-8") as file:
        (score,) = json.load(file)["scores"]
    print(f"{hops} hops: {score['score']:.2f} % exact match {score['detail']}")
    scores.append(score["score"])
one, _, three = scores
sys.exit(0 if one < 50 < 90 < three else "three hops should exceed 90 %, and one should stay under 50 %")
CHECK
