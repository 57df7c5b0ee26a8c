"""From parallel text to a small, fast student, in stages that can be stopped at any time and started again.

    python examples/student/pipeline.py output=runs/student dry_run=true      which stages there are, and how far they are
    python examples/student/pipeline.py output=runs/student                   what is not done
    python examples/student/pipeline.py output=runs/student until=teacher     this stage and what it needs
    python examples/student/pipeline.py output=runs/student stages=[student]  this stage alone
    python examples/student/pipeline.py preset=smoke output=runs/smoke        sizes for a trial of minutes

conf/preset/ has the options of a preset, steps.py what each one means. Every one can be given here, such as
``teacher.train.max_epoch=8``; one that a preset does not have takes a plus sign, ``+student.ema_decay=0.999``. A key with a
point of its own, as the sizes of a model have, stands in braces: ``++student={model.d_model:64}`` changes this one alone.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import hydra
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from stages import Pipeline, Stage, Standing, say
from steps import GROUPS, Config, Steps

from nmt.errors import NMTError, OutputError, UsageError, did_you_mean
from nmt_cli.process import Terminated, cleaning_up_on_sigterm, use_utf8

ConfigStore.instance().store("schema", Config)
COMPOSED: list[DictConfig] = []


def configuration(composed: DictConfig) -> Config:
    missing = sorted(OmegaConf.missing_keys(composed))
    if missing:
        raise UsageError(f"give {missing[0]}=..., which has no default")
    config = OmegaConf.to_object(composed)
    assert isinstance(config, Config)
    return config


def show(pipeline: Pipeline, chosen: Sequence[Stage]) -> None:
    """Each chosen stage with its state, and the commands of those that would run."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # ends as other filters do before ``| head``
    for stage in chosen:
        state = pipeline.state(stage)
        print(f"{stage.name}: {state}")
        if state.standing is not Standing.done:
            print("".join(f"    {command}\n" for command in stage.commands), end="")


@hydra.main(version_base="1.3", config_path="conf", config_name="pipeline")
def compose(composed: DictConfig) -> None:
    """One configuration, or with --multirun several. They run when Hydra, which has words of its own for errors, is done."""
    COMPOSED.append(composed)


def run(config: Config) -> None:
    if not config.output:
        raise UsageError("output= names no folder")
    if config.stages and config.until is not None:
        raise UsageError("give until= (a stage and what it needs) or stages= (these alone), not both")
    environment = {"OMP_NUM_THREADS": str(config.threads), "PYTHONUNBUFFERED": "1"}
    pipeline = Pipeline(Path(config.output), Steps(config).stages(), environment)
    chosen = pipeline.chosen(config.stages, config.until)
    pipeline.check(chosen)
    if config.dry_run:
        show(pipeline, chosen)
        return
    pipeline.run(chosen)
    report = pipeline.output / "evaluate" / "report.md"
    if report.exists() and pipeline.state(pipeline.stages["evaluate"]).standing is Standing.done:
        print(report.read_text(encoding="utf-8"), end="")


def sentence(error: Exception) -> str:
    """What Hydra and OmegaConf say in several lines, in one."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        name, there = error.missing_cfg_file.rpartition("/")[2], sorted(error.options or ())
        return f"there is no preset {name!r}{did_you_mean(name, there)}; there are: {', '.join(there)}"
    unknown = re.search(r"Could not override '([^']*)'", str(error))
    if unknown is not None:
        section, _, key = unknown[1].partition(".")
        if key.partition(".")[0] in GROUPS:
            return (
                f"{unknown[1]} has a key with a point of its own, which stands in braces: ++{section}={{{key}:VALUE}}"
            )
        known = list(_keys(OmegaConf.structured(Config)))
        if unknown[1] in known:
            return f"what is not yet in {unknown[1]} is added with plus signs: ++{unknown[1]}={{KEY:VALUE}}"
        meant = did_you_mean(unknown[1], known)
        return (
            f"there is no option {unknown[1]}{meant}; what a command has is added with a plus sign: +{unknown[1]}=VALUE"
        )
    unset = re.search(r"Environment variable '([^']*)' not found", str(error))
    if unset is not None:
        return f"{unset[1]} is not set: export {unset[1]}=FOLDER, or give text.train=, text.valid= and text.tests="
    causes = [error, error.__cause__] if error.__cause__ is not None else [error]
    lines = [line.strip() for cause in causes for line in str(cause).splitlines() if line.strip()]
    said = [
        line for line in lines if not line.startswith(("full_key:", "object_type=", "reference_type=", "See ", "^"))
    ]
    return "; ".join(said) or type(error).__name__


def _keys(config: DictConfig, prefix: str = "") -> Iterator[str]:
    for key in config:
        yield f"{prefix}{key!s}"
        inner = config._get_node(key)
        if isinstance(inner, DictConfig) and not inner._is_none():
            yield from _keys(inner, f"{prefix}{key!s}.")


def main() -> None:
    use_utf8()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # exceptions reach this function instead of being printed by Hydra
    try:
        with cleaning_up_on_sigterm():
            compose()
            for composed in COMPOSED:
                run(configuration(composed))
    except NMTError as error:
        say(f"pipeline.py: {error}")
        sys.exit(error.exit_status)
    except (HydraException, OmegaConfBaseException) as error:
        say(f"pipeline.py: {sentence(error)}")
        sys.exit(UsageError.exit_status)
    except OSError as error:
        say(f"pipeline.py: {error.filename or 'a file'}: {error.strerror or error}")
        sys.exit(OutputError.exit_status)
    except KeyboardInterrupt as interrupt:
        say("pipeline.py: interrupted; run the same command again to go on")
        sys.exit(143 if isinstance(interrupt, Terminated) else 130)


if __name__ == "__main__":
    main()
