#!/usr/bin/env bash
# "Attention Is All You Need" on WMT 2014, from the archives to the scores of Table 2:
#
#     examples/wmt14/run.sh MODEL PAIR [FOLDER, default runs/wmt14] [OPTION OF nmt-train ...]
#
# MODEL is base or big, and PAIR is en-de or en-fr. Run it again to resume an interrupted run: downloads, extraction
# and training resume; an incomplete corpus and the translations are made again. Variables, with their defaults in
# parentheses:
#
#     DEVICES=4                  number of GPUs of this machine (1); the updates are the same with 1, 2, 4 and 8
#     ARCHIVES=FOLDER            folder of the archives, also for downloads (archives/ in the third argument)
#     OFFLINE=1                  download nothing
#     ARCHIVE_LIST=FILE          list of archives (archives.json next to this script)
#     PIECES=8000                vocabulary size in tokens (37,000 for en-de, 32,000 for en-fr)
#     WORKERS=8                  processes that prepare text (4)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
model=${1:?name the model: base or big}
pair=${2:?name the pair of languages: en-de or en-fr}
folder=${3:-runs/wmt14}
shift $(($# < 3 ? $# : 3))
python=${PYTHON:-python}
devices=${DEVICES:-1}
archives=${ARCHIVES:-$folder/archives}
workers=${WORKERS:-4}

case $pair in
    en-de)
        target=de pieces=${PIECES:-37000} ratio=3
        corpora="europarl-v7 commoncrawl news-commentary-v9"
        ;;
    en-fr)
        target=fr pieces=${PIECES:-32000} ratio=1.5
        corpora="europarl-v7 commoncrawl news-commentary-v9 un giga-fren"
        ;;
    *)
        echo "run.sh: there is no pair '$pair'; name en-de or en-fr" >&2
        exit 2
        ;;
esac

case $model-$pair in
    base-en-de | base-en-fr) recipe=vaswani_base averaged=5 ;;
    big-en-de) recipe=vaswani_big averaged=20 ;;
    big-en-fr) recipe=vaswani_big_en_fr averaged=20 ;;  # dropout 0.1 instead of 0.3
    *)
        echo "run.sh: there is no model '$model'; name base or big" >&2
        exit 2
        ;;
esac

if ! "$python" -c "import sacremoses" 2> /dev/null; then # fail before days of training
    echo "run.sh: the paper's BLEU cuts words by the rules of Moses; pip install '.[moses]' in the clone" >&2
    exit 1
fi

if [[ ! $devices =~ ^[1-9][0-9]*$ ]]; then
    echo "run.sh: DEVICES=$devices is not a number of GPUs; give 1 or more" >&2
    exit 2
fi

text=$folder/$pair/text
corpus=$folder/$pair/corpus
output=$folder/$pair/$model

train() {
    if [ "$devices" -gt 1 ]; then
        torchrun --nproc-per-node "$devices" -m nmt_cli.train "$@"
    else
        nmt-train "$@"
    fi
}

if [ ! -e "$corpus/manifest.json" ]; then
    mkdir -p "$folder/$pair"
    echo "$pieces" > "$folder/$pair/pieces"
    "$python" "$here/download.py" "$pair" "$archives" --list "${ARCHIVE_LIST:-$here/archives.json}" ${OFFLINE:+--offline}
    "$python" "$here/extract.py" "$pair" "$archives" "$text"

    training=""
    for name in $corpora; do
        training="$training,$text/$name"
    done
    training=${training#,}
    nmt-preprocess --source-lang en --target-lang "$target" --trainpref "$training" \
        --validpref "$text/newstest2013" --testpref "$text/newstest2014" --destdir "$corpus" \
        --joined-dictionary tokenizer=bpe --vocab-size "$pieces" --workers "$workers" \
        --max-length 250 --max-ratio "$ratio" --drop-leaked pairs --on-invalid-utf8 skip \
        --keep-dropped "$folder/$pair/dropped.tsv.gz" --overwrite
elif [ -e "$folder/$pair/pieces" ] && [ "$(cat "$folder/$pair/pieces")" != "$pieces" ]; then
    echo "run.sh: $corpus was made with PIECES=$(cat "$folder/$pair/pieces"), not $pieces; choose another folder" >&2
    exit 2
fi

train "$corpus" --save-dir "$output/run" "recipe=$recipe" "$@"
case " $* " in *" --dry-run "* | *" dry_run=true "*) exit 0 ;; esac

nmt-average-checkpoints --inputs "$output/run" --num-update-checkpoints "$averaged" --output "$output/averaged" --overwrite

nmt-generate --path "$output/averaged" --input "$text/newstest2014.en" --output "$output/newstest2014.$target" --overwrite \
    --beam 4 --lenpen 0.6 --max-len-a 1 --max-len-b 50

nmt-score --sys "$output/newstest2014.$target" --ref "$text/newstest2014.$target" --metrics bleu,paper_bleu \
    --language "$target" --format json > "$output/score.json"

"$python" "$here/costs.py" "$output" --results "$output/results.json"
