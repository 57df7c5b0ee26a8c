"""nmt-doctor: show versions and devices, and check that the devices compute correctly."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from nmt.config.doctor import DoctorConfig
from nmt.storage.files import check_new_file, write_json
from nmt_cli.launch import launch

logger = logging.getLogger("nmt.doctor")


def run(config: DoctorConfig) -> None:
    """Print facts and results; exit with status 1 if a check failed."""
    if config.output is not None:
        check_new_file(Path(config.output), overwrite=config.overwrite)
    from nmt.doctor import suite
    from nmt.doctor.facts import devices, facts
    from nmt.doctor.outcomes import Outcome, Result, results
    from nmt.doctor.report import fact_lines, record, result_lines
    from nmt.threads import set_threads

    set_threads(config.threads)
    environment = facts(config.threads)
    print(*fact_lines(environment), sep="\n", flush=True)
    all_results: list[Result] = []
    for result in results(suite.full() if config.full else suite.QUICK, devices()):
        all_results.append(result)
        logger.info("%s on %s: %s (%.1f s)", result.check, result.device, result.outcome.value, result.seconds)
    print("checks", *(f"  {line}" for line in result_lines(all_results)), sep="\n")
    if config.full:
        print(*record(devices(), all_results), sep="\n")
    if config.output is not None:
        write_json(Path(config.output), environment | {"checks": [result.plain() for result in all_results]})
    if any(result.outcome is Outcome.failed for result in all_results):
        sys.exit(1)


def main() -> None:
    launch(DoctorConfig, run)


if __name__ == "__main__":
    main()
