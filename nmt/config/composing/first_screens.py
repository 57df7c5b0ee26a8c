"""What ``--help`` shows first for each command: examples, and the options that most runs need."""

from __future__ import annotations

from dataclasses import dataclass

# The everyday flags of each command, then examples. The first two examples are on the first screen.
_TEXT = """
preprocess: --source-lang --target-lang --trainpref --validpref --testpref --destdir --tokenizer --vocab-size
    --joined-dictionary --workers
# text/train.de, text/train.en, text/valid.de and text/valid.en become a corpus with one vocabulary
nmt-preprocess --source-lang de --target-lang en --trainpref text/train --validpref text/valid --destdir data-bin/de-en
    --vocab-size 8000 --joined-dictionary
# a test set for a trained model, with the vocabulary of its corpus
nmt-preprocess --source-lang de --target-lang en --testpref news --only-source --srcdict data-bin/de-en
    --tgtdict data-bin/de-en --destdir data-bin/news

train: --save-dir --arch --max-update --max-epoch --max-tokens --update-freq --lr --warmup-updates --dropout
    --valid-metrics --device --precision
# a small Transformer; the same command resumes an interrupted run
nmt-train data-bin/de-en model=transformer_tiny --save-dir runs/de-en --max-update 20000 --valid-metrics bleu
# a recipe: all options of an experiment, with one changed
nmt-train data-bin/de-en recipe=vaswani_base --max-update 50000 --save-dir runs/base
# sizes of your own, written as keys
nmt-train data-bin/de-en model.d_model=256 model.d_ff=1024 model.num_heads=4 --dropout 0.2 --save-dir runs/own
# four runs, one for each pair of values
nmt-train data-bin/de-en --lr 0.0005,0.001 --dropout 0.1,0.3 --save-dir runs/sweep -m

average_checkpoints: --inputs --output --num-epoch-checkpoints --num-update-checkpoints --num-best-checkpoints --metric
    --overwrite
# the last ten checkpoints that were saved at the end of an epoch
nmt-average-checkpoints --inputs runs/de-en --num-epoch-checkpoints 10 --output runs/de-en/averaged
# two checkpoints by name
nmt-average-checkpoints --inputs runs/x/checkpoint-0003-00000282 runs/x/checkpoint-0004-00000300 --output runs/x/mean

generate: --path --input --output --format --beam --nbest --lenpen --max-tokens --workers --device
# the translation of a file
nmt-generate --path runs/de-en --input news.de --output news.en
# an ensemble of two runs, three hypotheses of each line
nmt-generate --path runs/x:runs/y --beam 10 --nbest 3
# the test set of a corpus, in fairseq's format
nmt-generate data-bin/de-en --path runs/de-en --gen-subset test --format fairseq

serve: --path --host --port --beam --lenpen --workers --max-tokens --max-queue --timeout --device
# translations from two models over HTTP, on port 8000
nmt-serve --path runs/de-en,runs/en-de --port 8000

shortlist: --output --per-piece --frequent --max-pairs --overwrite
# the most probable target tokens of each source token, for faster translation
nmt-shortlist data-bin/de-en --output runs/de-en/shortlist

score: --sys --ref --metrics --tokenize --confidence --paired --lowercase --format
# two metrics with their signatures
nmt-score --sys news.hyp --ref news.en --metrics bleu,chrf
# two systems with p-values of their difference, as JSON
nmt-score --sys base.hyp,big.hyp --ref news.en --paired bootstrap --format json

compare: --sys --ref --src --train --metrics --names --output --overwrite
# a page that shows where two systems differ
nmt-compare base.hyp big.hyp --ref news.en --src news.de --train train.en --output compare.html

align: --path --src --ref --reverse --symmetrize --layer --head --output --overwrite
# word alignments by two models, from the heads that agree best
nmt-align --path runs/de-en --reverse runs/en-de --src news.de --ref news.en --output news.align
# by one model, from the head that is closest to manual alignments
nmt-align --path runs/de-en --src news.de --ref news.en --valid-src valid.de --valid-ref valid.en --gold valid.align

visualize: --path --input --output --kind --layer --head --positions --embeddings --over --smoothing --overwrite
# attention of all layers and heads, as a page
nmt-visualize --path runs/de-en --input few.de --output attention.html
# training curves of two runs, over time
nmt-visualize runs/x runs/y --over seconds --smoothing 0.9 --output curves.html
# two heads of the decoder's third layer, as a picture
nmt-visualize --path runs/de-en --input few.de --kind decoder --layer 3 --head 1,5 --output heads.png

monolingual: --trainpref --validpref --testpref --target-text --source-text --save-dir --dry-run preprocess= train= forward=
# tagged back-translation: a model from German to English learns from pairs, and from translations of text/mono.en
nmt-monolingual method=tagged --source-lang de --target-lang en --trainpref text/train --validpref text/valid
    --target-text text/mono.en --save-dir runs/mono train.model=transformer_tiny train.max_update=20000
# the stages with their states and commands, without running them
nmt-monolingual method=iterated --source-lang de --target-lang en --trainpref text/train --validpref text/valid
    --target-text text/mono.en --source-text text/mono.de --save-dir runs/mono --dry-run

import_: --from --path --output --source-lang --target-lang --srcdict --tgtdict --bpe --bpe-model --overwrite
# a folder of OPUS-MT as published on Hugging Face
nmt-import --from huggingface --path opus-mt-en-de --source-lang en --target-lang de --output models/opus-en-de
# a checkpoint of fairseq
nmt-import --from fairseq --path checkpoint_best.pt --srcdict dict.en.txt --tgtdict dict.de.txt --bpe sentencepiece
    --bpe-model bpe.model --source-lang en --target-lang de --output models/en-de

export: --path --format --output --quantization --sample --tolerance --overwrite
# an int8 model for CTranslate2
nmt-export --path runs/de-en --format ctranslate2 --quantization int8 --output de-en.ct2
# a folder for Hugging Face's transformers, compared with the original on your sentences
nmt-export --path runs/de-en --format huggingface --sample news.de --output de-en.hf

doctor: --full --output --threads --overwrite
# versions, settings, and a training step and a translation on each device
nmt-doctor
# all checks of each device, with a file to send with a bug report
nmt-doctor --full --output doctor.json
"""


@dataclass(frozen=True)
class FirstScreen:
    everyday: str  # flags, separated by spaces
    examples: tuple[tuple[str, str], ...]  # purpose and command line

    @classmethod
    def parse(cls, block: str) -> tuple[str, FirstScreen]:
        """Return the command of a block of text, and its screen."""
        head, *examples = block.split("\n# ")
        command, _, everyday = head.strip().partition(": ")
        pairs = (example.partition("\n") for example in examples)
        return command, cls(_joined(everyday), tuple((purpose, _joined(line)) for purpose, _, line in pairs))


def _joined(text: str) -> str:
    return " ".join(text.split())


FIRST_SCREENS = dict(map(FirstScreen.parse, _TEXT.split("\n\n")))
