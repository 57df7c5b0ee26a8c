"""Options as a plugin may declare them."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional  # noqa: F401 - an annotation below

import pytest

from nmt.config.option import FlagKind, flags_of, option
from nmt.config.sections import TrainConfig
from nmt_cli.command_line.argv import rewrite
from nmt_cli.command_line.flags import grammar_of


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        ("bool", FlagKind.switch),
        ("str", FlagKind.text),
        ("str | None", FlagKind.text),
        ("Optional[str]", FlagKind.text),
        ("list[str]", FlagKind.many),
        ("tuple[int, ...]", FlagKind.many),
        ("list[str] | None", FlagKind.many),
        ("list", FlagKind.many),
        ("int", FlagKind.plain),
        ("float | None", FlagKind.plain),
        ("int | str", FlagKind.plain),
        ("dict[str, float]", FlagKind.plain),
    ],
)
@pytest.mark.parametrize("as_text", [False, True])
def test_a_flag_is_of_the_kind_of_its_annotation_however_that_is_written(
    annotation: str, kind: FlagKind, as_text: bool
) -> None:
    """With ``from __future__ import annotations`` in the plugin's file annotations are texts."""
    written: Any = annotation if as_text else eval(annotation)
    config = dataclasses.make_dataclass(
        "Config", [("own", written, option(None, help="a help text", flag="--own"))], namespace={"__module__": __name__}
    )
    assert [flag.kind for flag in flags_of(config)] == [kind]


@pytest.mark.parametrize("name", ["share-all-embeddings", "share-decoder-input-output-embed"])
def test_a_switch_that_is_on_in_one_component_can_be_switched_off(name: str) -> None:
    [key] = {flag.key for flag in flags_of(TrainConfig) if flag.name == f"--{name}"}
    assert rewrite([f"--no-{name}"], grammar_of(TrainConfig)).overrides == (f"{key}=false",)
