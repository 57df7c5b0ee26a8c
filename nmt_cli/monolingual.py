"""nmt-monolingual: train a model with monolingual text, in stages that resume.

Standard output carries the scores and the run folder of the model; the messages of all stages go to stderr.
"""

from __future__ import annotations

from pathlib import Path

from nmt.config.monolingual import MonolingualConfig
from nmt.pipelines.monolingual import SCORES, MonolingualStages
from nmt.pipelines.stages import Pipeline
from nmt.storage.reading import read_json
from nmt_cli.command_line.composed import check_command
from nmt_cli.launch import launch
from nmt_cli.process import say


def run(config: MonolingualConfig) -> None:
    """Run the stages that are not done, and print the scores and the folder of the model."""
    pipeline = Pipeline(Path(config.save_dir), MonolingualStages(config).stages(), say)
    stages = pipeline.until(config.until or [*pipeline.stages][-1])
    pipeline.check(stages, check_command)
    if config.dry_run:
        print(*pipeline.described(stages), sep="\n")
        return
    pipeline.run(stages)
    if stages[-1].name == "scores":
        for result in read_json(pipeline.output / "scores" / SCORES):
            scores = "  ".join(f"{score['name']} {score['score']:.2f}" for score in result["scores"])
            print(f"{Path(result['test']).name}  {result['model']}  {scores}")
    print(pipeline.output / [name for name in (stage.name for stage in stages) if name != "scores"][-1])


def main() -> None:
    launch(MonolingualConfig, run)


if __name__ == "__main__":
    main()
