"""Train a small, fast student from parallel text, in stages that can be interrupted and resumed.

    python examples/student/pipeline.py output=runs/student dry_run=true      list all stages with their states
    python examples/student/pipeline.py output=runs/student                   run all stages that are not done
    python examples/student/pipeline.py output=runs/student until=teacher     run this stage and those that it needs
    python examples/student/pipeline.py output=runs/student stages=[student]  run only this stage
    python examples/student/pipeline.py preset=smoke output=runs/smoke        run a trial of minutes, with small sizes

conf/preset/ has the options of each preset, and steps.py explains them. The command line can set every option, such as
``teacher.train.max_epoch=8``. It can also add options of a command: ``student.ema_decay=0.999`` or
``student.model.d_model=64``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import hydra
from hydra.errors import MissingConfigException
from omegaconf import OmegaConf
from steps import Config, Steps

from nmt.config.composing.assignments import read
from nmt.config.composing.composition import compose
from nmt.config.composing.presets import Base
from nmt.errors import NMTError, OutputError, UsageError, did_you_mean
from nmt.pipelines.commands import Command
from nmt.pipelines.stages import Pipeline, PipelineStage, Standing
from nmt_cli.command_line.composed import check_command
from nmt_cli.process import Terminated, cleaning_up_on_sigterm, say, use_utf8

CONF = Path(__file__).resolve().parent / "conf"
MANDATORY = "???"


def configuration(arguments: Sequence[str]) -> Config:
    """Compose the options from assignments ``key=value`` and the preset that they select."""
    for argument in arguments:
        if "=" not in argument:
            raise UsageError(f"{argument} is not KEY=VALUE; --help explains the options")
    assignments = read(arguments)
    chosen = [str(assignment.value) for assignment in assignments if assignment.key == "preset"]
    others = [assignment for assignment in assignments if assignment.key != "preset"]
    config: Config = compose(Config, others, base=Base(read_preset(chosen[-1] if chosen else "multi30k"))).config
    for key, value in (("output", config.output), ("text.train", config.text.train), ("text.valid", config.text.valid)):
        if value == MANDATORY:
            raise UsageError(f"{key} has no default; set {key}=...")
    return config


def read_preset(name: str) -> dict[str, object]:
    """Compose a preset, which may extend another one, to a plain tree."""
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        try:
            tree = OmegaConf.to_container(hydra.compose(f"preset/{name}"))
        except MissingConfigException:
            presets = sorted(file.stem for file in CONF.glob("preset/*.yaml"))
            meant = did_you_mean(name, presets)
            raise UsageError(f"there is no preset {name!r}{meant}; there are: {', '.join(presets)}") from None
    assert isinstance(tree, dict)
    return {str(key): value for key, value in tree.items()}


def check(command: Command) -> None:
    """Check the options of a command without running it. Raise ``UsageError``."""
    if command.words[0] == "speed.py":
        done = subprocess.run([*command.arguments(), "--check"], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise UsageError(done.stderr.strip().rpartition("\n")[2].removeprefix("speed.py: "))
    check_command(command)


def choose(pipeline: Pipeline, config: Config) -> list[PipelineStage]:
    """Return the stages of ``stages=``, or that of ``until=`` and all it needs; by default all.

    ``teacher`` stands for ``teacher-1`` and ``teacher-2``.
    """
    names = config.stages if config.until is None else [config.until]
    numbered = [[name for name in pipeline.stages if name.startswith(f"{pattern}-")] for pattern in names]
    names = [name for pattern, found in zip(names, numbered) for name in found or [pattern]] or [*pipeline.stages]
    needed = pipeline.until(*names)
    return [stage for stage in needed if stage.name in names] if config.stages else needed


def run(config: Config) -> None:
    if not config.output:
        raise UsageError("output= is empty; name a folder")
    if config.stages and config.until is not None:
        raise UsageError("until= (a stage and all it needs) and stages= (these alone) exclude each other; give one")
    os.environ |= {"OMP_NUM_THREADS": str(config.threads), "PYTHONUNBUFFERED": "1"}  # of all commands
    pipeline = Pipeline(Path(config.output), Steps(config).stages(), say)
    chosen = choose(pipeline, config)
    pipeline.check(chosen, check)
    if config.dry_run:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # end silently if the reader of the pipe ends, as ``| head`` does
        print(*pipeline.described(chosen), sep="\n")
        return
    pipeline.run(chosen)
    report = pipeline.output / "evaluate" / "report.md"
    if report.exists() and pipeline.state(pipeline.stages["evaluate"]).standing is Standing.done:
        print(report.read_text(encoding="utf-8"), end="")


def main() -> None:
    use_utf8()
    if {"--help", "-h"} & {*sys.argv[1:]}:
        print(str(__doc__).strip())
        return
    try:
        with cleaning_up_on_sigterm():
            run(configuration(sys.argv[1:]))
    except NMTError as error:
        say(f"pipeline.py: {error}")
        sys.exit(error.exit_status)
    except OSError as error:
        say(f"pipeline.py: {error.filename or 'a file'}: {error.strerror or error}")
        sys.exit(OutputError.exit_status)
    except KeyboardInterrupt as interrupt:
        say("pipeline.py: interrupted; run the same command again to resume")
        sys.exit(143 if isinstance(interrupt, Terminated) else 130)


if __name__ == "__main__":
    main()
