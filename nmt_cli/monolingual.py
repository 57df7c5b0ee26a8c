"""nmt-monolingual: train a model with monolingual text, in stages that resume.

Standard output carries the scores and the run folder of the model; the messages of all stages go to stderr.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nmt.config.monolingual import MonolingualConfig
from nmt.errors import UsageError
from nmt.pipelines.monolingual import SCORES, MonolingualStages
from nmt.pipelines.stages import Pipeline, PipelineStage
from nmt.storage.reading import read_json
from nmt_cli.command_line.composed import check_command
from nmt_cli.launch import launch
from nmt_cli.process import say


def run(config: MonolingualConfig) -> None:
    """Run the stages that are not done, and print the scores and the folder of the model."""
    pipeline = Pipeline(Path(config.save_dir), MonolingualStages(config).stages(), say)
    stages = pipeline.until(config.until or [*pipeline.stages][-1])
    pipeline.check(stages, check_command)
    if config.pretrain:
        _require_same_shapes(stages)
    if config.dry_run:
        print(*pipeline.described(stages), sep="\n")
        return
    pipeline.run(stages)
    if stages[-1].name == "scores":
        for result in read_json(pipeline.output / "scores" / SCORES):
            scores = "  ".join(f"{score['name']} {score['score']:.2f}" for score in result["scores"])
            print(f"{Path(result['test']).name}  {result['model']}  {scores}")
    print(pipeline.output / [name for name in (stage.name for stage in stages) if name != "scores"][-1])


def _require_same_shapes(stages: Sequence[PipelineStage]) -> None:
    """Refuse models that cannot start from the stage ``pretraining``."""
    from nmt.training.setup.parts import shapes_without_corpus

    trainings = [stage for stage in stages if stage.commands[0].words[0] == "nmt-train"]
    shapes = {stage.name: shapes_without_corpus(check_command(stage.commands[0])) for stage in trainings}
    first = shapes["pretraining"]
    for name, of_model in shapes.items():
        changed = [tensor for tensor in of_model | first if of_model.get(tensor) != first.get(tensor)]
        if changed:
            raise UsageError(
                f"the models of {name} and pretraining must have the same sizes, but {changed[0]} differs; set model "
                f"options in the section train only, such as train.model.d_model=128"
            )


def main() -> None:
    launch(MonolingualConfig, run)


if __name__ == "__main__":
    main()
