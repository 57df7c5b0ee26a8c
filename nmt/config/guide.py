"""What the first screen and the end of each ``--help`` page show: the options of most runs, and examples."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Guide:
    """``everyday``: flags that most runs need. ``examples``: what for, and the arguments."""

    everyday: tuple[str, ...] = ()  # none: the command has so few options that all of them stand on the first screen
    examples: tuple[tuple[str, str], ...] = ()


GUIDES: dict[str, Guide] = {
    "preprocess": Guide(
        (
            *("--source-lang", "--target-lang", "--trainpref", "--validpref", "--testpref", "--destdir"),
            *("--tokenizer", "--vocab-size", "--joined-dictionary", "--workers"),
        ),
        (
            (
                "train.de, train.en, valid.de, valid.en become a corpus of one vocabulary",
                "--source-lang de --target-lang en --trainpref train --validpref valid --destdir data-bin/x "
                "--vocab-size 8000 --joined-dictionary",
            ),
            (
                "text to translate, cut as the corpus of the model is",
                "--source-lang de --target-lang en --testpref news --only-source --srcdict data-bin/x "
                "--tgtdict data-bin/x --destdir data-bin/news",
            ),
        ),
    ),
    "train": Guide(
        (
            *("--save-dir", "--arch", "--max-update", "--max-epoch", "--max-tokens", "--update-freq", "--lr"),
            *("--warmup-updates", "--dropout", "--valid-metrics", "--device", "--precision"),
        ),
        (
            (
                "a small Transformer; the same command again continues the run",
                "data-bin/x model=transformer_tiny --save-dir runs/x --max-update 20000 --valid-metrics bleu",
            ),
            (
                "sizes of your own, written as keys",
                "data-bin/x model.d_model=256 model.d_ff=1024 model.num_heads=4 --dropout 0.2 --save-dir runs/own",
            ),
            (
                "a whole experiment, with one difference",
                "data-bin/x recipe=vaswani_base --max-update 50000 --save-dir runs/base",
            ),
            (
                "four runs, one for each pair of values",
                "data-bin/x --lr 0.0005,0.001 --dropout 0.1,0.3 --save-dir runs/sweep -m",
            ),
        ),
    ),
    "average_checkpoints": Guide(
        examples=(
            (
                "the last ten that were written at an epoch's end",
                "--inputs runs/x --num-epoch-checkpoints 10 --output runs/x/averaged",
            ),
            ("two that you name", "--inputs runs/x/checkpoint_best runs/y/checkpoint_best --output runs/mean"),
        )
    ),
    "generate": Guide(
        (
            *("--path", "--input", "--output", "--format", "--beam", "--nbest", "--lenpen"),
            *("--max-tokens", "--workers", "--device"),
        ),
        (
            ("a file", "--path runs/x --input news.de --output news.en"),
            ("an ensemble of two runs, three translations of each line", "--path runs/x:runs/y --beam 10 --nbest 3"),
            (
                "the test set of a corpus folder, as fairseq prints it",
                "data-bin/x --path runs/x --gen-subset test --format fairseq",
            ),
        ),
    ),
    "shortlist": Guide(
        examples=(("fifty target pieces for each source piece", "data-bin/x --output runs/x/shortlist"),)
    ),
    "score": Guide(
        examples=(
            ("two metrics with their signatures", "--sys news.hyp --ref news.en --metrics bleu,chrf"),
            ("two references, as JSON", "--sys news.hyp --ref news.en1,news.en2 --format json"),
        )
    ),
}
