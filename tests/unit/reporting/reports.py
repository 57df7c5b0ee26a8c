"""Updates to report."""

from __future__ import annotations

from nmt.reporting.figures import UpdateReport


def update_report(number: int) -> UpdateReport:
    """The n-th one: its figures tell which it is."""
    return UpdateReport(
        loss=10.0 * number,
        nll=8.0 * number,
        denominator=5.0,
        tokens=4,
        sentences=2,
        grad_norm=0.1 * number,
        learning_rate=0.01 * number,
        seconds=0.5,
        auxiliary={"balance": 1.0},
    )
