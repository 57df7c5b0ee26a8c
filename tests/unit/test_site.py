"""The documentation site: its generated pages have every option, its menu every page, its links a target."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from nmt import DOCUMENTATION
from nmt.config.composing.presets import preset_names
from nmt.config.composing.programs import program_of
from nmt.config.option import groups_of, options_of
from nmt.registry import registry_for
from nmt_cli.command_line.programs import COMMANDS, options_class

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://github.com/nmt-toolkit/nmt"
RAW = "https://raw.githubusercontent.com/nmt-toolkit/nmt/main/"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
TEXTS = [*ROOT.glob("*.md"), *PAGES, *ROOT.glob("examples/**/*.md"), *ROOT.glob("benchmarks/**/*.md")]


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs/hooks/reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def generated(reference: ModuleType) -> dict[str, str]:
    pages: dict[str, str] = reference.pages()
    return pages


def cells(page: str) -> dict[str, list[str]]:
    """The cells of each row of the tables of options, by key."""
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in page.splitlines() if line.startswith("| `")]
    return {keys[-1]: row for row in rows if (keys := re.findall(r"`([\w.]+)`", row[0]))}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_each_option_has_a_row_with_type_default_and_meaning(generated: dict[str, str], command: str) -> None:
    config = options_class(command)
    groups = groups_of(config)
    rows = cells(generated[f"reference/commands/{program_of(command)}.md"])
    for option in options_of(config):
        group, *rest = option.key.split(".")
        if group in groups:
            assert rest or group in rows
            continue
        name, kind, default, meaning = (cell.strip() for cell in rows[option.key])
        assert option.name.rstrip("=") in name and kind and default and meaning


@pytest.mark.slow
@pytest.mark.parametrize("role", ["model", "criterion", "optimizer", "scheduler", "tokenizer", "search"])
def test_each_component_has_a_section_with_its_options(generated: dict[str, str], role: str) -> None:
    page = generated[f"reference/components/{role}.md"]
    sections = dict(re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", page, flags=re.DOTALL | re.MULTILINE))
    registry = registry_for(role)
    assert set(sections) == set(registry.names())
    for name in registry.names():
        keys = {option.key for option in options_of(registry.config_class(name), f"{role}.")}
        assert set(cells(sections[name])) == keys


@pytest.mark.slow
@pytest.mark.parametrize("group", ["model", "scheduler", "recipe", "method"])
def test_each_preset_has_a_row_and_each_model_a_size(generated: dict[str, str], group: str) -> None:
    _, _, rest = generated["reference/presets.md"].partition(f"\n## {group}\n")
    section = rest.partition("\n## ")[0]
    for name in preset_names(group):
        (row,) = re.findall(rf"^\| `{name}` \|.*", section, flags=re.MULTILINE)
        assert group != "model" or re.search(r"\| [\d,.]+ M \|", row)


def menu(entry: object) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        for value in entry.values():
            yield from menu(value)
    elif isinstance(entry, list):
        for value in entry:
            yield from menu(value)


@pytest.mark.slow
def test_the_menu_has_every_page_once(generated: dict[str, str]) -> None:
    configuration = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    written = {path.relative_to(ROOT / "docs").as_posix() for path in PAGES}
    listed = list(menu(configuration["nav"]))
    assert sorted(listed) == sorted(written | set(generated))
    assert configuration["site_url"].rstrip("/") == DOCUMENTATION and configuration["theme"]["font"] is False


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as MkDocs and GitHub make them."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\s-]", "", plain.lower()).strip()
        found |= {re.sub(r"[-\s]+", "-", slug), slug.replace(" ", "-")}
    return found


def links(text: str) -> Iterator[str]:
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from re.findall(r"\]\(<?([^)\s>]+)>?[^)]*\)", re.sub(r"`[^`\n]*`", "", text))


def content_of(address: str, generated: dict[str, str]) -> str:
    """The text of the page that an address of the site leads to."""
    path = address.removeprefix(DOCUMENTATION).strip("/")
    for page in (f"{path}/index.md".lstrip("/"), f"{path}.md"):
        file = ROOT / "docs" / page
        if page in generated or file.exists():
            return generated.get(page) or file.read_text(encoding="utf-8")
    raise AssertionError(f"{address} has no page")


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(text: Path, generated: dict[str, str]) -> None:
    in_site = text in PAGES
    for link in links(text.read_text(encoding="utf-8")):
        address, _, anchor = link.partition("#")
        content = None
        if address.startswith(DOCUMENTATION):
            content = content_of(address, generated)
        elif address.startswith((REPOSITORY, RAW)):
            path = re.sub(rf"^({REPOSITORY}/(blob|tree)/main/|{RAW})", "", address)
            if "//" not in path:
                assert (ROOT / path).exists(), f"{text}: {link}"
        elif "://" not in address and not address.startswith("mailto:"):
            target = (text.parent / address) if address else text
            inside = target.resolve().relative_to(ROOT).as_posix()
            if inside.removeprefix("docs/") in generated:
                content = generated[inside.removeprefix("docs/")]
            else:
                assert target.exists(), f"{text}: {link}"
                assert not in_site or inside.startswith("docs/"), f"{text}: {link} leaves the site"
                content = target.read_text(encoding="utf-8") if target.suffix == ".md" else None
        if anchor and content is not None:
            assert anchor in anchors(content), f"{text}: {link}"


@pytest.mark.nightly
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="`make docs` installs what builds the site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "WARNING" not in done.stderr, done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 80
    for page in pages:
        for element in re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", page.read_text(encoding="utf-8")):
            assert "canonical" in element or not re.search(r"(?:src|href)=\"?(?:https?:)?//", element), (page, element)
    for style in (tmp_path / "site").rglob("*.css"):
        assert not re.search(r"url\(.?(?:https?:)?//", style.read_text(encoding="utf-8")), style


def test_every_address_of_the_project_is_that_of_its_metadata() -> None:
    urls = metadata.metadata("nmt-toolkit").get_all("Project-URL") or []
    assert {f"Documentation, {DOCUMENTATION}", f"Repository, {REPOSITORY}"} <= set(urls)


def test_the_readme_is_short_and_begins_with_a_picture_and_a_score() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    start = "\n".join(lines[:45])
    assert len(lines) <= 130 and "\n![" in start and "BLEU" in start
    assert all("://" in link or link.startswith("#") for link in links("\n".join(lines)))


# Words that make a sentence hard to read: each has a plain word.
SIGNALS = re.compile(
    r"\b(goes on|go on|going on|as there|in place of|beside|stands? in|stands? there|all the same|is none|so many|"
    r"of its own|of their own|what is more|alike|no more than|is said|left away|one behind the other|may be another|"
    r"nothing is made of|is done without)\b",
    flags=re.IGNORECASE,
)


def test_documents_use_plain_words() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in [*ROOT.glob("*.md"), *PAGES]
        for match in SIGNALS.finditer(" ".join(path.read_text(encoding="utf-8").split()))
    ]
    assert not found
