"""Every command line of the documents is run, in their order, in a folder with the names that they use.

The words are literal: bash reads each line as it stands, with pipes, redirections, variables and continued lines, and the
real command reads its own arguments. Shortened is what lies behind them, by a plugin that is installed for the purpose
(``tests/literally/nmt_shortened.py``): models are built in the small sizes of their ``shrink``, and training ends after two
epochs or twelve updates. Texts and corpora are tiny (``tests/literally/folder.py``); a comment in the document names those
that its commands find. A comment before a block says why it is not run. ``UNLEARNED`` has the scripts that end otherwise
because they are short.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from nmt.config.composing.programs import program_of
from nmt.config.plain import to_plain
from nmt_cli.command_line.programs import COMMANDS
from tests.documents import (
    DOCUMENTS,
    ROOT,
    SHELL_LANGUAGES,
    CommandLine,
    blocks_of,
    commands_in,
    compose,
    fenced_blocks,
    prepared_names,
    shell_lines,
    steps,
)
from tests.literally.folder import furnish, prepare
from tests.literally.shims import PYTHONS, Shims
from tests.sharing import made_once

# What a line needs that is not everywhere.
NEEDED = {
    "hydra/sweeper=optuna": "optuna",
    "hydra/launcher=joblib": "hydra_plugins.hydra_joblib_launcher",
    "lightning": "lightning",
}
# Experiments that end by asking whether the model has learned its task, which a shortened one has not: what they say then.
UNLEARNED = {
    "examples/date/demo.sh demo": "the demo should reach 99.5 %",
    "examples/date/run.sh lstm-demo": "the LSTM should reach 99.5 %",
    "examples/memory_network/run.sh look-up": "three hops should exceed 90 %, and one should stay under 50 %",
    "examples/neural_turing_machine/run.sh copy": "a machine that learned to copy 20 vectors should copy 90 % of the "
    "sequences of 120",
}
# The other examples take seconds to minutes even when they are shortened: whole experiments of many runs.
QUICK_EXAMPLES = {"examples/plugin/README.md"}
# All of their scripts run here, so that these must keep every result that is committed.
WHOLE_EXAMPLES = {
    f"examples/{name}/README.md"
    for name in (
        *("addition", "characters", "figures", "finetuning", "memory_network", "monolingual"),
        *("multi30k", "multilingual", "neural_turing_machine", "parsing", "r_drop"),
    )
}
OTHER_TOOLKITS = ("joey", "marian", "opennmt", "sockeye")
# Documents whose commands take long. By day tests/cli/test_documents.py composes each of their lines.
LONG_DOCUMENTS = {
    f"docs/{page}.md"
    for page in (
        *("tutorials/opus-mt", "how-to/distill", "how-to/export", "how-to/fine-tune", "how-to/large-corpora"),
        *("how-to/multilingual", "how-to/objectives", "how-to/optimizers", "how-to/sweeps", "how-to/varied-text"),
        *("how-to/adapters", "how-to/weights", "how-to/align", "how-to/average", "how-to/batches-and-memory"),
        *(
            "how-to/callbacks",
            "how-to/choose-translations",
            "how-to/configure",
            "how-to/own-loop",
            "how-to/several-gpus",
        ),
        *("how-to/tokenized-text", "how-to/visualize", "how-to/watch-training"),
        *("how-to/extend/augmentation", "how-to/extend/publish"),
        *(f"how-to/migrate/{name}" for name in ("fairseq-checkpoint", *OTHER_TOOLKITS)),
    )
}
# Documents whose Python blocks share their names; tests/test_python_page.py runs them.
PYTHON_PAGES = {"docs/how-to/python.md"}  # it has no shell commands


@dataclass(frozen=True)
class Done:
    """A command line and what became of it."""

    line: str
    status: int
    output: str
    log: str

    @property
    def succeeded(self) -> bool:
        """Of an experiment: that it went as far as its last question."""
        if self.line in UNLEARNED:
            return self.status == 1 and self.log.rstrip().endswith(UNLEARNED[self.line])
        return self.status == 0

    def __str__(self) -> str:
        return f"{self.line}\nended with status {self.status}:\n{self.log[-2000:]}"


def is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def can_run(line: str) -> bool:
    return all(is_installed(module) for word, module in NEEDED.items() if word in line)


def run(lines: list[str], folder: Path, shims: Shims, notes: Path) -> list[Done]:
    """The lines one after the other in one shell, so that what one of them sets or writes holds for the next."""
    script = "set -o pipefail\n"
    for number, line in enumerate(lines):
        script += f"{{\n{line}\n}} > {notes}/{number}.out 2> {notes}/{number}.log\necho $? > {notes}/{number}.status\n"
    (notes / "script").write_text(script, encoding="utf-8")
    environment = {**shims.environment, "HOME": str(folder)}
    subprocess.run(["bash", notes / "script"], cwd=folder, env=environment, stdin=subprocess.DEVNULL, check=True)
    text = {path.name: path.read_text(encoding="utf-8") for path in notes.iterdir()}
    return [
        Done(line, int(text[f"{number}.status"]), text[f"{number}.out"], text[f"{number}.log"])
        for number, line in enumerate(lines)
    ]


@pytest.fixture(scope="module")
def shims(tmp_path_factory: pytest.TempPathFactory) -> Shims:
    return Shims(tmp_path_factory.mktemp("shims"))


@pytest.fixture(scope="module")
def prepared(shims: Shims) -> Path:
    return made_once("prepared", lambda folder: prepare(folder, shims))


@pytest.fixture
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("notes")


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def commands_of(document: str) -> list[str]:
    return list(shell_lines(text_of(document)))


def test_pages_whose_python_is_run_elsewhere_have_no_shell_commands() -> None:
    assert not [line for document in PYTHON_PAGES for line in commands_of(document)]


def runs_something(text: str) -> bool:
    python = [block for block in blocks_of(text) if block.language == "python" and block.file is None]
    return any(block.left_out is None for block in python) or next(shell_lines(text, to_run=True), None) is not None


def documents_with_commands() -> list[Any]:
    found = []
    for path in DOCUMENTS:
        document = str(path.relative_to(ROOT))
        if document not in PYTHON_PAGES and runs_something(text_of(document)):
            is_example = document.startswith("examples/") and document not in QUICK_EXAMPLES
            at_night = [pytest.mark.nightly] if is_example or document in LONG_DOCUMENTS else []
            at_night += [pytest.mark.timeout(1800)] if is_example else []  # up to twenty trainings, on a busy machine
            found.append(pytest.param(document, marks=at_night))
    return found


@pytest.mark.parametrize("document", documents_with_commands())
def test_every_command_of_a_document_runs(
    document: str, shims: Shims, prepared: Path, tmp_path: Path, notes: Path
) -> None:
    furnish(document, tmp_path, prepared)
    lines = [line for line in steps(text_of(document), tmp_path) if can_run(line)]
    done = run(lines, tmp_path, shims, notes)
    failed = [str(command) for command in done if not command.succeeded]
    assert not failed, "\n\n".join(failed)
    for command in done:
        check_output(command, document, tmp_path, shims)
    if document in WHOLE_EXAMPLES:
        check_results(document, tmp_path)


@pytest.mark.nightly
def test_the_textbook_s_comparison_keeps_its_rows(shims: Shims, prepared: Path, tmp_path: Path, notes: Path) -> None:
    """It trains four models, which is too much for the quick document that names it."""
    document = "examples/date/README.md"
    furnish(document, tmp_path, prepared)
    dates = tmp_path / "date.txt.gz"
    more = gzip.decompress(dates.read_bytes()) * 20  # the Transformer warms up for 400 updates
    dates.write_bytes(gzip.compress(more))
    for done in run(["examples/date/run.sh lstm-demo", "examples/date/compare.sh date.txt.gz"], tmp_path, shims, notes):
        assert done.succeeded, done
    check_results(document, tmp_path)


def check_results(document: str, folder: Path) -> None:
    """The scripts of an example keep every figure and picture that is committed, under the same name."""
    written = [rows for path in folder.rglob("results.json") for rows in rows_measured(path)]
    assert written
    assert set(rows_measured(ROOT / document.replace("README.md", "results.json"))) <= set(written)


def rows_measured(path: Path) -> list[tuple[str, str]]:
    """Experiment and row of each result; what was not run has neither figure nor picture."""
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return [(one["experiment"], one["row"]) for one in results if "ours" in one or "picture" in one]


@pytest.mark.parametrize("word", NEEDED)
def test_what_a_line_needs_is_installed_or_its_commands_are_not_run(word: str) -> None:
    """Each skip says that a line of the documents was not run here."""
    if not is_installed(NEEDED[word]):
        pytest.skip(f"lines with {word} need {NEEDED[word]}, which is not installed")
    assert can_run(word)


def check_output(done: Done, document: str, folder: Path, shims: Shims) -> None:
    """What nmt-generate and nmt-score promise: a translation for each line, a figure for each metric."""
    for command in commands_in(done.line, document):
        if "--help" in command.arguments or command.program not in ("nmt-generate", "nmt-score"):
            continue
        config = configured(command, folder, shims)
        if command.program == "nmt-score":
            check_scores(config, done)
        else:
            check_translations(config, done, folder)


def check_scores(config: Any, done: Done) -> None:
    """A figure for each metric of one system; a table of several systems names each."""
    if config["format"] == "json":
        assert len(json.loads(done.output)["scores"]) == len(config["metrics"]), done
    elif len(config["sys"]) > 1:
        assert all(name in done.output for name in config["sys"]), done
    elif config["sentence"] or config["split_by"]:
        assert len(done.output.splitlines()) > len(config["metrics"]), done
    else:
        assert len(done.output.splitlines()) == len(config["metrics"]), done


def configured(command: CommandLine, folder: Path, shims: Shims) -> Any:
    """The options that a command line leads to, as a plain tree; with a plugin in a process of its own."""
    if not command.user_dir:
        return to_plain(compose(command))
    line = [command.program, *command.arguments, "--cfg", "job"]
    shown = subprocess.run(line, cwd=folder, env=shims.environment, capture_output=True, check=True).stdout
    return yaml.safe_load(shown)


def check_translations(config: Any, done: Done, folder: Path) -> None:
    written = re.search(r" > (\S+)$", done.line)
    path = config["output"] or (written and written[1])
    lines = (folder / path).read_text(encoding="utf-8").splitlines() if path else done.output.splitlines()
    expected = len(sources(config, done.line, folder))
    if config["format"] == "fairseq":
        assert len([line for line in lines if line.startswith("H-")]) == expected, done
    else:
        assert len(lines) == expected * (config["nbest"] if config["format"] == "text" else 1), done


def sources(config: Any, line: str, folder: Path) -> list[str]:
    """The lines that a command is given."""
    before, pipe, _ = line.partition(" | ")
    if pipe:
        given = subprocess.run(["bash", "-c", before], cwd=folder, capture_output=True, check=True).stdout
        return given.decode().splitlines()
    if config["data"]:
        corpus = folder / config["data"][0]
        if (corpus / (direction := f"{config['source_lang']}-{config['target_lang']}")).is_dir():
            corpus /= direction
        return (corpus / f"{config['gen_subset']}.en.txt").read_text(encoding="utf-8").splitlines()
    redirected = re.search(r" < (\S+)", line)
    path = folder / (config["input"] or (redirected and redirected[1]) or "")
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode().splitlines()


def test_the_second_test_set_is_the_split_test1_whatever_its_file_is_called(prepared: Path) -> None:
    """As docs/how-to/corpora.md says of the commands that it has in common with what is prepared."""
    for split, file in {"test": "test1", "test1": "test2"}.items():
        stored = (prepared / f"data-bin/en-de/{split}.en.txt").read_text(encoding="utf-8")
        assert stored == (prepared / f"text/{file}.en").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_comments_for_tests_stand_where_they_have_an_effect(path: Path) -> None:
    """One that is misspelt, or not on the line before a block of commands, would be passed over in silence."""
    text = path.read_text(encoding="utf-8")
    commands = {*SHELL_LANGUAGES, "python"}
    left_out = [block for block in blocks_of(text) if block.left_out is not None and block.language in commands]
    assert text.count("<!--") == len(left_out) + (1 if prepared_names(text) else 0)
    fences = re.findall(r"^[\s>]*(?:```|~~~)", text, flags=re.MULTILINE)
    assert len(fences) == 2 * len(list(blocks_of(text))), "a block is not recognized"
    for block in left_out:
        for name in re.findall(r"tests/[\w/.]+\.py", block.left_out or ""):
            assert (ROOT / name).exists(), name
    if prepared_names(text):
        assert runs_something(text)


@pytest.mark.parametrize("words", [*NEEDED, *UNLEARNED])
def test_what_is_treated_otherwise_stands_in_a_document(words: str) -> None:
    assert any(words in line for path in DOCUMENTS for line in commands_of(str(path.relative_to(ROOT))))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_of_commands_are_marked_as_shell(path: Path) -> None:
    """Otherwise nobody would find them."""
    commands = [program_of(name) for name in COMMANDS]
    programs = "|".join([*commands, *PYTHONS, "torchrun", "pip", "make"])
    for language, block in fenced_blocks(path.read_text(encoding="utf-8")):
        if language not in SHELL_LANGUAGES:
            assert re.search(rf"^({programs}) \S", block, flags=re.MULTILINE) is None, block


def test_command_lines_are_found_as_they_stand() -> None:
    text = """
```bash
# Not a command
nmt-score --sys a \\
    --ref b > c
X=1; echo $X | cat   # a comment
```
```yaml
nmt-train no
```
`nmt-generate --help`, `nmt-train data-bin/x
--save-dir y`, but not `nmt-generate --beam`, `nmt-train ... --save-dir a/b` or `nmt-train data/NAME`.
"""
    inline = ["nmt-generate --help", "nmt-train data-bin/x --save-dir y"]
    assert list(shell_lines(text)) == [
        "nmt-score --sys a \\\n    --ref b > c",
        "X=1; echo $X | cat   # a comment",
        *inline,
    ]


def test_a_failing_command_is_noticed_wherever_it_stands(shims: Shims, tmp_path: Path, notes: Path) -> None:
    (tmp_path / "text").write_text("a\n", encoding="utf-8")
    score = "nmt-score --sys text --ref text"
    lines = [f"here=text; {score}", "cat $here", f"{score} --metricks bleu", "nmt-score --sys none --ref text | cat"]
    done = run(lines, tmp_path, shims, notes)
    assert [command.status for command in done] == [0, 0, 2, 66]
    assert (done[0].output[:4], done[1].output) == ("BLEU", "a\n")
    assert "unknown flag --metricks" in done[2].log


def test_what_is_shortened_changes_no_option(shims: Shims, prepared: Path, tmp_path: Path, notes: Path) -> None:
    """The run's own configuration is that of the words; only the model and the run are small."""
    furnish("examples/plugin/README.md", tmp_path, prepared)
    line = "nmt-train data-bin/x model=transformer_big --max-update 70000 --save-dir run"
    (done,) = run([line], tmp_path, shims, notes)
    assert done.status == 0, done
    stored = yaml.safe_load((tmp_path / "run/config.yaml").read_text(encoding="utf-8"))
    composed = compose(next(commands_in(line, "nowhere")))
    assert stored["model"]["d_model"] == composed.model.d_model == 1024  # type: ignore[attr-defined]
    assert stored["training"]["max_update"] == 70000
    assert re.search(r"transformer with \d{1,2},\d{3} parameters", done.log) is not None, done
    assert "a test has seen enough" in done.log
