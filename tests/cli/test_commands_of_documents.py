"""Every command line of the documents is run, in their order, in a folder with the names that they use.

The words are literal: bash reads each line as it stands, with pipes, redirections, variables and continued lines, and the
real command reads its own arguments. Shortened is what lies behind them, by a plugin that is installed for the purpose
(``tests/literally/nmt_shortened.py``): models are built in the small sizes of their ``shrink``, and training ends after two
epochs or twelve updates. Texts and corpora are tiny (``tests/literally/folder.py``). ``LEFT_OUT`` has what cannot run
here, ``UNLEARNED`` what ends otherwise because it is short.
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
    commands_in,
    compose,
    fenced_blocks,
    shell_lines,
)
from tests.literally.folder import GIVEN, furnish, prepare
from tests.literally.shims import PYTHONS, Shims

SUITES = "starts whole suites of tests, or the demo, for minutes"
INSTALLS = "would change the environment that these tests run in; an installation comes before them"
MEASURES = "measures for hours; tests/cli/test_benchmarks.py runs the script in its smallest size"
FOREIGN = "reads what another toolkit trained; tests/unit/formats makes such models and imports them"
SERVES = "listens until it is stopped; tests/serving/test_document.py sends the requests to a server"
DOWNLOADS = "downloads what tests/unit/examples/test_wmt14_run.py and tests/literally/folder.py have of their own"
COUNTS = (
    "counts the operations of models of full size for minutes; tests/unit/examples/test_wmt14_costs.py has small ones"
)
TIMES = "trains for minutes by the clock; tests/unit/examples/test_wmt14_throughput.py runs the script for seconds"
STAGES = "trains five models; at night tests/unit/examples/test_student.py runs them small"
KEEPS = (
    "would change the results that stand here; tests/unit/examples/test_results.py keeps some in a folder of its own"
)
MACHINES = "needs several machines or a batch system; tests/cli/test_documents.py composes it"

# Document and beginning of a command line that is not run, and why.
LEFT_OUT: dict[tuple[str, str], str] = {
    ("CONTRIBUTING.md", "make "): SUITES,
    ("README.md", "make "): SUITES,
    ("docs/benchmarks.md", "python benchmarks/"): MEASURES,
    ("docs/benchmarks.md", "echo "): MEASURES,
    ("docs/corpora.md", "nmt-preprocess --source-lang en --target-lang de --trainpref train"): FOREIGN,
    ("docs/getting-started.md", "python3 -m venv .venv"): INSTALLS,
    ("docs/getting-started.md", ". .venv/bin/activate"): INSTALLS,
    ("docs/getting-started.md", "pip install . "): INSTALLS,
    ("docs/getting-started.md", "pip install '.["): INSTALLS,
    ("docs/other-toolkits.md", "nmt-import --from marian"): FOREIGN,
    ("docs/other-toolkits.md", "nmt-import --from fairseq"): FOREIGN,
    ("docs/other-toolkits.md", "nmt-import --from huggingface"): FOREIGN,
    ("docs/other-toolkits.md", "nmt-generate --path models/en-de"): FOREIGN,
    ("docs/other-toolkits.md", "nmt-preprocess "): FOREIGN,
    ("docs/other-toolkits.md", "nmt-train data-bin/medical --config models/en-de"): FOREIGN,
    ("docs/cluster.md", "srun "): MACHINES,
    ("docs/several-gpus.md", "torchrun --nnodes 2"): MACHINES,
    (
        "docs/training.md",
        "nmt-train data-bin/x --save-dir runs/sweep --lr 0.0005,0.001 --save-interval-minutes",
    ): MACHINES,
    ("docs/reproduction.md", "python examples/results.py "): KEEPS,
    ("docs/serving.md", "nmt-serve --path runs/de-en,runs/en-de"): SERVES,
    ("docs/serving.md", "curl "): SERVES,
    ("docs/training.md", "srun "): MACHINES,
    ("examples/table1/README.md", "examples/table1/run.sh"): MEASURES,
    ("examples/multi30k/README.md", "git clone "): DOWNLOADS,
    ("examples/multi30k/README.md", "cp multi30k-dataset/"): DOWNLOADS,
    ("examples/multi30k/README.md", "gzip "): DOWNLOADS,
    ("examples/parsing/README.md", "python examples/forecast.py "): COUNTS,
    ("examples/student/README.md", "python examples/student/pipeline.py output="): STAGES,
    ("examples/student/README.md", "python examples/student/pipeline.py preset="): STAGES,
    ("examples/plugin/README.md", "pip install ./examples/plugin"): INSTALLS,
    ("examples/README.md", "python3 -m venv "): INSTALLS,
    ("examples/README.md", ". .venv/bin/activate"): INSTALLS,
    ("examples/README.md", "pip install "): INSTALLS,
    ("examples/table3/README.md", "pip install '.[plots]'"): INSTALLS,
    ("examples/table3/README.md", "python examples/forecast.py "): COUNTS,
    ("examples/wmt14/README.md", "pip install '.[moses]'"): INSTALLS,
    ("examples/wmt14/README.md", "examples/wmt14/run.sh "): DOWNLOADS,
    ("examples/wmt14/README.md", "DEVICES="): DOWNLOADS,
    ("examples/wmt14/README.md", "CORPUS="): TIMES,
    ("examples/wmt14/README.md", "examples/wmt14/throughput.sh "): TIMES,
    ("examples/wmt14/README.md", "python examples/wmt14/download.py "): DOWNLOADS,
    ("examples/wmt14/README.md", "python examples/wmt14/costs.py"): COUNTS,
}
# What a line needs that is not everywhere.
NEEDED = {"hydra/sweeper=optuna": "optuna", "hydra/launcher=joblib": "hydra_plugins.hydra_joblib_launcher"}
# Experiments that end by asking whether the model has learned its task, which a shortened one has not: what they say then.
UNLEARNED = {
    "examples/date/run.sh demo": "the demo should reach 99.5 %",
    "examples/memory_network/run.sh look-up": "three hops should exceed 90 %, and one should stay under 50 %",
    "examples/neural_turing_machine/run.sh copy": "a machine that learnt to copy 20 vectors should copy 90 % of the "
    "sequences of 120",
}
# The other examples take minutes even when they are shortened: whole experiments of many runs.
QUICK_EXAMPLES = {"examples/date/README.md", "examples/plugin/README.md"}
# All of their scripts run here, so that these must keep every result that is committed.
WHOLE_EXAMPLES = {
    f"examples/{name}/README.md"
    for name in (
        *("addition", "characters", "figures", "finetuning", "memory_network", "multi30k", "multilingual"),
        *("neural_turing_machine", "parsing", "r_drop"),
    )
}
# Documents whose commands take half a minute and more together.
LONG_DOCUMENTS = {
    "docs/adding-a-component.md",
    "docs/configuration.md",
    "docs/corpora.md",
    "docs/objectives.md",
    "docs/training.md",
}


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


def exception_of(document: str, line: str) -> tuple[str, str] | None:
    found = [entry for entry in LEFT_OUT if document == entry[0] and line.startswith(entry[1])]
    return found[0] if found else None


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
def prepared(shims: Shims, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    prepare(folder, shims)
    return folder


@pytest.fixture
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("notes")


def commands_of(document: str) -> list[str]:
    return list(shell_lines((ROOT / document).read_text(encoding="utf-8")))


def documents_with_commands() -> list[Any]:
    found = []
    for path in DOCUMENTS:
        document = str(path.relative_to(ROOT))
        if any(exception_of(document, line) is None for line in commands_of(document)):
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
    lines = [line for line in commands_of(document) if exception_of(document, line) is None and can_run(line)]
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
    for done in run(["examples/date/run.sh demo", "examples/date/compare.sh date.txt.gz"], tmp_path, shims, notes):
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
        return (folder / config["data"][0] / f"{config['gen_subset']}.en.txt").read_text(encoding="utf-8").splitlines()
    redirected = re.search(r" < (\S+)", line)
    path = folder / (config["input"] or (redirected and redirected[1]) or "")
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode().splitlines()


def test_the_second_test_set_is_the_split_test1_whatever_its_file_is_called(prepared: Path) -> None:
    """As docs/getting-started.md says of the commands that it has in common with what is prepared."""
    for split, file in {"test": "test1", "test1": "test2"}.items():
        stored = (prepared / f"data-bin/en-de/{split}.en.txt").read_text(encoding="utf-8")
        assert stored == (prepared / f"text/{file}.en").read_text(encoding="utf-8")


@pytest.mark.parametrize("entry", LEFT_OUT, ids=" ".join)
def test_what_is_left_out_stands_in_its_document(entry: tuple[str, str]) -> None:
    assert any(exception_of(entry[0], line) == entry for line in commands_of(entry[0]))


@pytest.mark.parametrize("document", GIVEN)
def test_what_is_prepared_is_prepared_for_a_document(document: str) -> None:
    assert document in [parameter.values[0] for parameter in documents_with_commands()]


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
