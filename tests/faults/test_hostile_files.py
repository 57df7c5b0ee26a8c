"""Small files that hung or crashed their readers.

Each is a file as an attacker would write it: its checksums are right, and only a bound or a comparison stops it. Few
tests here start a command, which takes seconds.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from nmt.config.choices import Segmentation
from nmt.config.exchange import ImportConfig
from nmt.data.language_pair import LanguagePair
from nmt.data.tokenizers.piece_lists import WordsConfig, WordTokenizer
from nmt.errors import DataError, MissingInputError, NMTError, UsageError
from nmt.formats.importing import import_model
from nmt.storage.checkpoints import FORMAT, KIND
from nmt.storage.files import write_manifest
from nmt.storage.lock import claimed
from nmt.translation import Translator
from nmt_cli.command_line.config_file import ConfigFile
from tests.commands import run_copy
from tests.unit.formats.stored import store
from tests.unit.storage.test_torch_file import doubled

SECONDS = 60  # on a busy machine; the hostile files took hours, or for ever
ENGINES = pytest.mark.parametrize("engine", ["native", "torch"])


@pytest.fixture(autouse=True)
def soon() -> Iterator[None]:
    """End a test that hangs."""

    def stop(number: int, frame: object) -> None:
        raise TimeoutError(f"still at work after {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def refused(command: str, *arguments: str | Path, status: int, cwd: Path | None = None) -> str:
    """The last line of a command that ends with ``status`` and writes no result."""
    done = run_copy(command, *arguments, cwd=cwd, timeout=SECONDS, stdin=b"p1 p2\n")
    said = done.stderr.decode()
    assert (done.returncode, done.stdout) == (status, b"") and "Traceback" not in said, said
    return said.splitlines()[-1]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return store(tmp_path_factory.mktemp("sound") / "model")


@pytest.fixture
def model(sound: Path, tmp_path: Path) -> Path:
    """A model folder to be spoiled."""
    return shutil.copytree(sound, tmp_path / "model")


def seal(folder: Path) -> None:
    """Make the manifest right again."""
    facts = json.loads((folder / "manifest.json").read_text())
    names = ("update", "epoch", "reasons", "scores", "made")
    write_manifest(folder, KIND, FORMAT, **{name: facts[name] for name in names})


def configure(folder: Path, section: str, **options: Any) -> None:
    tree = yaml.safe_load((folder / "config.yaml").read_text())
    tree[section] |= options
    (folder / "config.yaml").write_text(yaml.safe_dump(tree))
    seal(folder)


def label(folder: Path, type_name: str, bits: int = 32) -> str:
    """Give the numbers of an embedding another type, in which they have ``bits`` each."""
    content = (folder / "model.safetensors").read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    name = next(name for name in header if "embedding" in name)
    (begin, last), rows = header[name]["data_offsets"], header[name]["shape"][0]
    header[name] |= {"dtype": type_name, "shape": [rows, (last - begin) * 8 // bits // rows]}
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + content[end:])
    seal(folder)
    return name


CONFIGURATIONS = {
    "3,000 brackets": ("data: " + "[" * 3000 + "]" * 3000, "nested more than 100 levels"),
    "lists that double": (
        "a: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60)),
        "counting each repetition",
    ),
    "an integer of 5,000 digits": (f"model: {{encoder_layers: {'9' * 5000}}}", "digits|is not YAML"),
    "a hexadecimal integer": (f"model: {{encoder_layers: 0x{'f' * 5000}}}", "bits; at most 128 are read"),
    "integer keys": ("model: {name: transformer, 1: 2}", "has the key 1, which is not text"),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_hostile_configuration_is_refused(name: str, model: Path) -> None:
    text, complaint = CONFIGURATIONS[name]
    (model / "config.yaml").write_text(text)
    seal(model)
    with pytest.raises(DataError, match=rf"config\.yaml is damaged: .*({complaint})"):
        Translator.load(model, "cpu")
    with pytest.raises(DataError, match=rf"config\.yaml cannot be read as a configuration: .*({complaint})"):
        ConfigFile.read(str(model))


def test_a_hostile_configuration_ends_commands_with_one_line(model: Path) -> None:
    (model / "config.yaml").write_text(CONFIGURATIONS["3,000 brackets"][0])
    seal(model)
    assert "nested more than 100 levels" in refused("generate", "--path", model, "--cpu", status=65)
    assert "nested more than 100 levels" in refused("train", "--config", model / "config.yaml", status=65)


# Options of the model or of the search, and what is said of them.
RESOURCES: dict[str, tuple[str, dict[str, Any], str]] = {
    "a billion layers": ("model", {"encoder_layers": 10**9}, "model.encoder_layers=1000000000 must be at most 10000"),
    "ten thousand layers": ("model", {"decoder_layers": 10**4}, "holds another architecture"),
    "one layer less": ("model", {"encoder_layers": 1}, "holds another architecture"),
    "a width of a billion": ("model", {"d_model": 10**9}, "model.d_model=1000000000 must be at most 1048576"),
    "a width of a million": ("model", {"d_model": 2**20}, "holds another architecture"),
    "an inner width of a million": ("model", {"d_ff": 2**20}, "holds another architecture"),
    "a billion steps of one layer": ("model", {"encoder_layers": 10**9, "layers": "universal"}, "at most 10000"),
    "a billion learned positions": ("model", {"positions": "learned", "max_positions": 10**9}, "at most 1048576"),
    "a beam of a billion": ("search", {"beam_size": 10**9}, "search.beam_size=1000000000 must be at most 1000"),
    "translations of a billion tokens": ("search", {"min_len": 10**9, "max_len_b": 10**9}, "must be at most 10000"),
    "a billion times the source": ("search", {"max_len_a": 1e9}, "search.max_len_a=1000000000.0 must be at most 100"),
    "an endless patience": ("search", {"patience": 1e300}, "must be at most 1000"),
}


@ENGINES
@pytest.mark.parametrize("name", RESOURCES)
def test_a_configuration_that_its_arrays_do_not_fit_is_refused(name: str, engine: str, model: Path) -> None:
    section, options, complaint = RESOURCES[name]
    configure(model, section, **options)
    with pytest.raises(UsageError, match=complaint):
        Translator.load(model, "cpu", engine=engine).translate(["p1"])


def test_resources_that_a_folder_decides_end_commands_with_one_line(model: Path) -> None:
    configure(model, "model", encoder_layers=10**9)
    last = refused("generate", "--path", model, "--cpu", status=2)
    assert f"{model}/config.yaml: model.encoder_layers=1000000000 must be at most 10000" in last
    configure(model, "model", encoder_layers=2)
    configure(model, "search", beam_size=10**9)
    assert "search.beam_size=1000000000 must be at most 1000" in refused("generate", "--path", model, "--cpu", status=2)


def give_vocabulary(folder: Path, words: int) -> None:
    """Replace the tokenizer of a folder by one with another number of words."""
    tokenizer = WordTokenizer(WordsConfig(), [f"p{number}" for number in range(words)])
    shutil.rmtree(folder / "tokenizer")
    LanguagePair("en", "de", tokenizer, tokenizer, shared=True).save(folder / "tokenizer")


@ENGINES
@pytest.mark.parametrize("words", [1, 29, 31, 1000])
def test_a_vocabulary_that_the_arrays_do_not_fit_is_refused(words: int, engine: str, model: Path) -> None:
    give_vocabulary(model, words)
    with pytest.raises(DataError, match=r"tokenizer/joint\.json is damaged: \d+ bytes instead of \d+"):
        Translator.load(model, "cpu", engine=engine)
    seal(model)
    with pytest.raises(DataError, match=rf"^{model} and .* have different vocabularies; restore the tokenizer/ of "):
        Translator.load(model, "cpu", engine=engine)


@pytest.mark.parametrize("words", [1, 1000])
def test_a_vocabulary_that_the_arrays_do_not_fit_ends_commands_with_one_line(words: int, model: Path) -> None:
    give_vocabulary(model, words)
    seal(model)
    last = refused("generate", "--path", model, "--cpu", status=65)
    assert f"{model} and " in last and "have different vocabularies; restore the tokenizer/ of its run" in last


@ENGINES
@pytest.mark.parametrize("type_name", ["I32", "U32"])
def test_an_embedding_that_is_said_to_hold_integers_is_refused(type_name: str, engine: str, model: Path) -> None:
    name, found = label(model, type_name), {"I32": "int32", "U32": "uint32"}[type_name]
    with pytest.raises(UsageError) as caught:
        Translator.load(model, "cpu", engine=engine)
    assert f"{name}: (34, 16) of {found} in the checkpoint, (34, 16) in the model" in str(caught.value)


SMALL = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F8_E4M3": 8, "C64": 64}


@ENGINES
@pytest.mark.parametrize("type_name", SMALL)
def test_types_that_no_model_has_are_refused_by_name(type_name: str, engine: str, model: Path) -> None:
    label(model, type_name, SMALL[type_name])
    with pytest.raises(
        NMTError, match="which nmt cannot read|is damaged|another architecture|which only torch can read"
    ):
        Translator.load(model, "cpu", engine=engine)


def fairseq(folder: Path, program: bytes) -> ImportConfig:
    """A checkpoint that is what a pickle says, and how it is imported."""
    torch.save({}, folder / "model.pt")
    with zipfile.ZipFile(folder / "model.pt") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    (name,) = (name for name in members if name.endswith("data.pkl"))
    with zipfile.ZipFile(folder / "model.pt", "w") as archive:
        for member, content in (members | {name: program}).items():
            archive.writestr(member, content)
    (folder / "dict.txt").write_text("a 1\n")
    paths = {"path": folder / "model.pt", "srcdict": folder / "dict.txt", "output": folder / "out"}
    languages = {"source_lang": "en", "target_lang": "de"}
    return ImportConfig(from_format="fairseq", **languages, **{name: str(path) for name, path in paths.items()})


def checkpoint(options: bytes = b"}", tensors: bytes = b"}") -> bytes:
    """The pickle of {"args": options, "model": tensors}."""
    return b"\x80\x02}(X\x04\x00\x00\x00args" + options + b"X\x05\x00\x00\x00model" + tensors + b"u."


def inside(program: bytes) -> bytes:
    """A pickle without its beginning and its end."""
    return program[2:-1]


ARCH, NAME = b"X\x04\x00\x00\x00arch", b"X\x01\x00\x00\x00a"
# What a checkpoint is, and what is said of it.
PICKLES = {
    "options that double": (checkpoint(b"}" + ARCH + inside(doubled(80)) + b"s"), "counting each repetition"),
    "a tensor that doubles": (checkpoint(tensors=b"}" + NAME + inside(doubled(80)) + b"s"), "counting each repetition"),
    "options that double a little": (
        checkpoint(b"}" + ARCH + inside(doubled(15)) + b"s"),
        "has fairseq's architecture",
    ),
    "a list for a tensor": (checkpoint(tensors=b"}" + NAME + b"]s"), "holds 'a', which is not a named tensor"),
    "an integer for a name": (checkpoint(tensors=b"}K\x01]s"), "holds 1, which is not a named tensor"),
    "a million nested tuples": (checkpoint(b")" + b"\x85" * 1_000_000), "nested more than 100 levels deep"),
    "an integer of 5,000 digits": (checkpoint(b"}" + ARCH + inside(pickle.dumps(10**5000, 2)) + b"s"), "at most 128"),
    "integer keys": (checkpoint(b"}K\x01K\x02s"), "has no tensor"),
}


@pytest.mark.parametrize("name", PICKLES)
def test_a_hostile_checkpoint_of_fairseq_is_refused(name: str, tmp_path: Path) -> None:
    program, complaint = PICKLES[name]
    given = fairseq(tmp_path, program)
    with pytest.raises(DataError, match=rf"model\.pt.*{complaint}") as caught:
        import_model(given)
    assert len(str(caught.value)) < 1000 and not (tmp_path / "out").exists()


def test_the_checkpoint_that_hung_an_import_ends_it_with_one_line(tmp_path: Path) -> None:
    given = fairseq(tmp_path, PICKLES["options that double"][0])
    assert (tmp_path / "model.pt").stat().st_size < 2500
    arguments = ["--from", "fairseq", "--path", given.path, "--srcdict", str(given.srcdict), "--output", given.output]
    arguments += ["--source-lang", "en", "--target-lang", "de"]
    assert "counting each repetition" in refused("import_", *arguments, status=65)


PIPE, DICTIONARY = "pipes/pipe", "dict.txt"
IMPORTS: dict[str, dict[str, Any]] = {
    "a checkpoint of fairseq": {"from_format": "fairseq", "path": PIPE, "srcdict": DICTIONARY},
    "a dictionary": {"from_format": "fairseq", "path": DICTIONARY, "srcdict": PIPE},
    "merge operations": {
        "from_format": "fairseq",
        "path": DICTIONARY,
        "srcdict": DICTIONARY,
        "bpe": Segmentation.subword_nmt,
        "bpe_model": PIPE,
    },
    "a sentencepiece model": {
        "from_format": "fairseq",
        "path": DICTIONARY,
        "srcdict": DICTIONARY,
        "bpe": Segmentation.sentencepiece,
        "bpe_model": PIPE,
    },
    "a model of Marian": {"from_format": "marian", "path": PIPE, "srcdict": DICTIONARY},
    "a vocabulary of Marian": {"from_format": "marian", "path": DICTIONARY, "srcdict": PIPE},
    "a vocabulary in JSON": {"from_format": "marian", "path": DICTIONARY, "srcdict": "pipes/vocab.json"},
    "a folder of transformers": {"from_format": "huggingface", "path": "pipes"},
    "a folder of CTranslate2": {"from_format": "ctranslate2", "path": "pipes"},
    "an export": {"from_format": "safetensors", "path": "pipes"},
}


@pytest.fixture
def pipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The working directory holds named pipes without writers."""
    (tmp_path / "pipes").mkdir()
    for name in "pipe config.json description.json model.bin model.safetensors vocab.json".split():
        os.mkfifo(tmp_path / "pipes" / name)
    (tmp_path / DICTIONARY).write_text("<unk>\n</s>\na 1\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", IMPORTS)
def test_an_import_does_not_wait_for_a_named_pipe(name: str, pipes: None) -> None:
    given = IMPORTS[name] | ({"srcdict": "dict"} if IMPORTS[name].get("srcdict") == DICTIONARY else {})
    Path("dict").write_text("</s>\n<unk>\na\n" if given["from_format"] == "marian" else "a 1\n")
    with pytest.raises(MissingInputError, match="is a named pipe; give a regular file"):
        import_model(ImportConfig(source_lang="en", target_lang="de", output="out", **given))


# Of each path that a command opens: the arguments with which it meets a named pipe there.
PATHS: dict[str, tuple[str, ...]] = {
    "a model": ("generate", "--path", PIPE, "--cpu"),
    "a model to serve": ("serve", "--path", PIPE),
    "a shortlist": ("generate", "--path", "MODEL", "--shortlist", PIPE, "--cpu"),
    "a configuration": ("generate", "--config", PIPE),
    "plug-ins": ("generate", "--user-dir", PIPE),
    "checkpoints to average": ("average_checkpoints", "--inputs", PIPE, "--output", "mean"),
    "a model to export": ("export", "--format", "safetensors", "--path", PIPE, "--output", "out"),
    "runs": ("visualize", PIPE, "--output", "curves.svg"),
    "a corpus": ("train", PIPE, "--save-dir", "run"),
    "text to align": ("align", "--path", "MODEL", "--src", PIPE, "--ref", PIPE),
}


@pytest.mark.parametrize("name", PATHS)
def test_a_command_does_not_wait_for_a_named_pipe(name: str, sound: Path, pipes: None) -> None:
    command, *arguments = PATHS[name]
    given = [str(sound) if argument == "MODEL" else argument for argument in arguments]
    done = run_copy(command, *given, timeout=SECONDS)
    said = done.stderr.decode()
    assert done.returncode in (2, 65, 66) and "Traceback" not in said, said


@pytest.mark.parametrize("name", ["config.yaml", "manifest.json", "model.safetensors", "tokenizer/pair.json"])
def test_a_named_pipe_in_a_model_folder_is_not_waited_for(name: str, model: Path) -> None:
    (model / name).unlink()
    os.mkfifo(model / name)
    with pytest.raises((DataError, MissingInputError), match="missing"):
        Translator.load(model, "cpu")


OUTPUTS: dict[str, tuple[str, ...]] = {
    "out.txt": ("generate", "--path", "MODEL", "--cpu", "--output"),
    "links.txt": ("align", "--path", "MODEL", "--src", "a", "--ref", "b", "--cpu", "--output"),
    "page.html": ("compare", "a", "b", "--ref", "a", "--output"),
    "attention.html": ("visualize", "--path", "MODEL", "--output"),
    "list.safetensors": ("shortlist", "corpus", "--output"),
    "dropped.tsv": tuple(
        "preprocess --source-lang en --target-lang de --trainpref text --destdir bin --keep-dropped".split()
    ),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_that_another_process_writes_is_refused(name: str, sound: Path, tmp_path: Path) -> None:
    command, *arguments = (str(sound) if argument == "MODEL" else argument for argument in OUTPUTS[name])
    for text in ("a", "b", "text.en", "text.de"):
        (tmp_path / text).write_text("p1 p2\n")
    with claimed(tmp_path / name, overwrite=False):
        last = refused(command, *arguments, tmp_path / name, "--overwrite", status=73, cwd=tmp_path)
    assert f"another process is writing {tmp_path / name}; wait until it is done" in last
    assert not (tmp_path / name).exists()
