"""Folders of CTranslate2 read back: what we wrote, tensor by tensor; what its converters make, by what it says of them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nmt.config.choices import Segmentation
from nmt.config.exchange import ExportConfig, ImportConfig, Quantization
from nmt.data.language_pair import LanguagePair
from nmt.data.tokenizers.piece_lists import WordsConfig, WordTokenizer
from nmt.errors import DataError, MissingInputError, UsageError
from nmt.formats.ctranslate2.model_file import read_model_file
from nmt.formats.export_manifest import write_export_manifest
from nmt.formats.exporting import export_model
from nmt.formats.importing import import_model
from nmt.layers.sinusoids import SinusoidLayout, Sinusoids, Wavelengths
from nmt.models.loading import load_model
from nmt.models.transformer.config import StartSymbol
from tests.unit.formats.stored import HELD, PAIR, log_probability, store

SOURCE, TARGET = ["p3", "p8", "p1", "p20"], ["p4", "p25", "p4"]


def written(run: Path, output: Path, **options: Any) -> Path:
    export_model(
        ExportConfig(
            path=str(run), format="ctranslate2", output=str(output), **({"sentences": 2, "longest": 64} | options)
        )
    )
    return output


def imported(folder: Path, output: Path, **options: Any) -> Path:
    (found,) = import_model(ImportConfig(from_format="ctranslate2", path=str(folder), output=str(output), **options))
    return found


# model.bin without the library


def text(content: str) -> bytes:
    return struct.pack("<H", len(content) + 1) + content.encode() + b"\0"


def variable(
    name: str, array: Any, kind: int = 0, shape: tuple[int, ...] | None = None, size: int | None = None
) -> bytes:
    content, shape = array.tobytes(), array.shape if shape is None else shape
    head = struct.pack(f"<B{len(shape)}I", len(shape), *shape) + struct.pack("<B", kind)
    return text(name) + head + struct.pack("<I", len(content) if size is None else size) + content


def model_bin(*variables: bytes, aliases: tuple[tuple[str, str], ...] = (), count: int | None = None) -> bytes:
    head = struct.pack("<I", 6) + text("TransformerSpec") + struct.pack("<I", 7)
    head += struct.pack("<I", len(variables) if count is None else count)
    pairs = b"".join(text(alias) + text(name) for alias, name in aliases)
    return head + b"".join(variables) + struct.pack("<I", len(aliases)) + pairs


def test_numbers_in_every_type_are_read(tmp_path: Path) -> None:
    numbers = np.array([[1.0, -2.5], [0.5, 3.0]], dtype=np.float32)
    half = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    rows, scales = np.array([[127, -64], [1, 0]], dtype=np.int8), np.array([127.0, 2.0], dtype=np.float32)
    content = model_bin(
        variable("a/weight", numbers),
        variable("b/weight", numbers.astype(np.float16), 4),
        variable("c/weight", half, 5),
        variable("d/weight", rows, 1),
        variable("d/weight_scale", scales),
        variable("e/weight", rows.astype(np.int16), 2),
        variable("e/weight_scale", np.float32(4.0)),
        variable("f/heads", np.int16(8), 2),
        aliases=(("z/weight", "a/weight"),),
    )
    (tmp_path / "model.bin").write_bytes(content)
    found = read_model_file(tmp_path / "model.bin")
    assert (found.kind, found.revision, found.settings) == ("TransformerSpec", 7, {"f.heads": 8})
    for name in "abc":
        np.testing.assert_array_equal(found.arrays[f"{name}.weight"], numbers)
    np.testing.assert_array_equal(found.arrays["d.weight"], rows / scales[:, None])
    np.testing.assert_array_equal(found.arrays["e.weight"], rows / 4)
    assert found.arrays["z.weight"] is found.arrays["a.weight"]


ONE = np.ones(3, dtype=np.float32)
DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "another file": (b"PK\x03\x04" + bytes(99), "is not a CTranslate2 model of file version 6"),
    "a huge name": (struct.pack("<IH", 6, 65535) + b"x", "ends too early, after 7 bytes"),
    "a name that is no text": (struct.pack("<IH", 6, 2) + b"\xff\0" + bytes(9), "not UTF-8"),
    "more variables than there are": (model_bin(variable("a", ONE), count=2**32 - 1), "ends too early, after"),
    "a huge shape": (model_bin(variable("a", ONE, shape=(2**32 - 1,) * 8)), "has 12 bytes and the shape"),
    "a huge shape and size": (model_bin(variable("a", ONE, shape=(2**29,), size=2**31)), "ends too early, after"),
    "many axes": (model_bin(variable("a", ONE, shape=(1,) * 9)), "has 9 axes"),
    "an unknown type": (model_bin(variable("a", ONE, 6)), "has the unknown type 6"),
    "a variable twice": (model_bin(variable("a", ONE), variable("a", ONE)), "holds the variable 'a' twice"),
    "an alias of nothing": (model_bin(aliases=(("a", "b"),)), "'a' is an invalid alias of 'b'"),
    "an alias that is there": (model_bin(variable("a", ONE), aliases=(("a", "a"),)), "'a' is an invalid alias of 'a'"),
    "a scale of zero": (
        model_bin(variable("a", ONE.astype(np.int8), 1), variable("a_scale", 0 * ONE)),
        "'a_scale' is not a valid scale",
    ),
    "scales of other rows": (
        model_bin(variable("a", ONE.astype(np.int8), 1), variable("a_scale", ONE[:2])),
        "'a_scale' is not a valid scale",
    ),
    "more than a model": (model_bin(variable("a", ONE)) + b"more", "4 bytes follow its end"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    content, says = DAMAGED[name]
    (tmp_path / "model.bin").write_bytes(content)
    with pytest.raises(DataError, match=says):
        read_model_file(tmp_path / "model.bin")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"cannot read .*model\.bin"):
        read_model_file(tmp_path / "model.bin")


def test_an_export_whose_model_has_a_flipped_bit_is_refused(tmp_path: Path) -> None:
    """One bit of a weight would be another model. The library is not needed: the checksums are compared first."""
    folder = tmp_path / "there"
    PAIR.save(folder / "tokenizer")
    (folder / "config.json").write_text("{}")
    (folder / "shared_vocabulary.json").write_text("[]")
    (folder / "model.bin").write_bytes(model_bin(variable("a", np.arange(64, dtype=np.float32))))
    write_export_manifest(folder, "ctranslate2")
    content = bytearray((folder / "model.bin").read_bytes())
    content[-20] ^= 1
    (folder / "model.bin").write_bytes(content)
    assert read_model_file(folder / "model.bin")  # as a file, it is sound
    with pytest.raises(DataError, match=rf"{folder}.*model\.bin.* is damaged"):
        imported(folder, tmp_path / "back")
    assert not (tmp_path / "back").exists()


# Folders of the library


@pytest.fixture
def library() -> Any:
    return pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: nmt-toolkit[ctranslate2]")


@pytest.mark.slow
@pytest.mark.parametrize("name", HELD)
def test_a_model_comes_back_tensor_by_tensor(library: Any, tmp_path: Path, name: str) -> None:
    run = store(tmp_path / "run", **HELD[name])
    one, other = (
        load_model(path, "cpu") for path in (run, imported(written(run, tmp_path / "there"), tmp_path / "back"))
    )
    assert one.config == other.config and one.arrays.keys() == other.arrays.keys()
    for key, array in one.arrays.items():
        np.testing.assert_array_equal(other.arrays[key], array, err_msg=key)
    assert one.pair.digest() == other.pair.digest() and other.pair.source_lang == "en"


@pytest.mark.slow
def test_two_vocabularies_come_back(library: Any, tmp_path: Path) -> None:
    source, target = (WordTokenizer(WordsConfig(), [f"{side}{number}" for number in range(20)]) for side in "st")
    run = store(tmp_path / "run", LanguagePair("en", "de", source, target, shared=False))
    found = load_model(imported(written(run, tmp_path / "there"), tmp_path / "back"), "cpu")
    np.testing.assert_equal(dict(found.arrays), dict(load_model(run, "cpu").arrays))
    assert not found.pair.shared and found.pair.digest() == load_model(run, "cpu").pair.digest()


@pytest.mark.slow
@pytest.mark.parametrize(
    "numbers", [Quantization.int8, Quantization.int16, Quantization.float16, Quantization.bfloat16]
)
def test_a_quantised_model_is_read_as_it_was_rounded(library: Any, tmp_path: Path, numbers: Quantization) -> None:
    run = store(tmp_path / "run")
    there = written(run, tmp_path / "there", quantization=numbers, tolerance=2.0)
    one, other = load_model(run, "cpu"), load_model(imported(there, tmp_path / "back"), "cpu")
    assert one.config == other.config  # sinusoids are recognised though they are rounded
    errors = [float(np.abs(array - other.arrays[key]).max()) for key, array in one.arrays.items()]
    assert 1e-4 < max(errors) < 0.01


def saved(library: Any, folder: Path, spec: Any, symbols: list[str], **config: Any) -> Path:
    spec.register_source_vocabulary(symbols)
    spec.register_target_vocabulary(symbols)
    for name, value in ({"add_source_eos": True} | config).items():
        setattr(spec.config, name, value)
    spec.validate()
    spec.optimize()
    folder.mkdir()
    spec.save(str(folder))
    return folder


def says(library: Any, folder: Path) -> float:
    translator = library.Translator(str(folder), device="cpu")
    return float(sum(translator.score_batch([SOURCE], [TARGET])[0].log_probs))


LANGUAGES = {"source_lang": "en", "target_lang": "de"}


@pytest.mark.slow
def test_a_converted_model_of_marian_says_the_same(library: Any, tmp_path: Path) -> None:
    """It begins with zeros, and has no padding."""
    pytest.importorskip("transformers", reason="transformers is not installed: nmt-toolkit[huggingface]")
    from ctranslate2.converters.transformers import _MODEL_LOADERS

    from tests.unit.formats.other_models import PIECES, marian

    spec = _MODEL_LOADERS["MarianConfig"].get_model_spec(marian(tmp_path / "marian"))
    there = saved(library, tmp_path / "there", spec, ["</s>", "<unk>", *PIECES], decoder_start_token="</s>")
    found = imported(there, tmp_path / "back", **LANGUAGES)
    assert log_probability(found, SOURCE, TARGET) == pytest.approx(says(library, there), abs=2e-5)


def random_spec(rng: np.random.Generator, *, symbols: int, **options: Any) -> Any:
    """A Transformer with names and shapes as the library has them, without a table of positions."""
    from ctranslate2.specs import transformer_spec

    width, inner = 16, 24
    spec = transformer_spec.TransformerSpec.from_config((1, 2), 2, **options)
    shapes = {
        "embeddings/weight": (symbols, width),
        "embeddings_0/weight": (symbols, width),
        "projection/weight": (symbols, width),
        "self_attention/linear_0/weight": (3 * width, width),
        "self_attention/linear_0/bias": (3 * width,),
        "self_attention/linear_1/weight": (width, width),
        "attention/linear_1/weight": (2 * width, width),
        "linear_0/weight": (width, width),
        "linear_1/weight": (width, width),
        "linear_2/weight": (width, width),
        "ffn/linear_0/weight": (inner, width),
        "ffn/linear_1/weight": (width, inner),
        "keys": (7, width // 2),
        "values": (7, width // 2),
        "gamma": (width,),
        "beta": (width,),
    }

    def fill(part: Any, name: str, value: Any) -> None:
        ends = [end for end in shapes if name.endswith(end)]
        if ends and (value is None or "bias" in ends[0]):
            array = 0.4 * rng.standard_normal(shapes[max(ends, key=len)]) + name.endswith("gamma")
            setattr(part, name.split("/")[-1], array.astype(np.float32))

    spec._visit(fill)
    return spec


@pytest.mark.slow
def test_the_conventions_of_fairseq_are_read(library: Any, tmp_path: Path) -> None:
    """Its order of specials, its name of padding, its start and its positions."""
    symbols = ["<s>", "<blank>", "</s>", "<unk>", *(f"p{number}" for number in range(30))]
    spec = random_spec(np.random.default_rng(4), symbols=len(symbols), pre_norm=False)
    formula = Sinusoids(16, SinusoidLayout.halves, Wavelengths.tensor2tensor, offset=2)
    for side in (spec.encoder, spec.decoder):
        side.position_encodings.encodings, side.scale_embeddings = formula.table(64), 4.0
    there = saved(library, tmp_path / "there", spec, symbols, decoder_start_token="</s>")
    found = imported(there, tmp_path / "back", **LANGUAGES)
    assert log_probability(found, SOURCE, TARGET) == pytest.approx(says(library, there), abs=2e-5)
    config = load_model(found, "cpu").config
    assert (config.sinusoids(), config.start_symbol) == (formula, StartSymbol.eos)


@pytest.mark.slow
@pytest.mark.parametrize("relative", [False, True], ids=["positions by its own formula", "relative positions"])
def test_what_our_exports_never_have_is_read(library: Any, tmp_path: Path, relative: bool) -> None:
    symbols = ["<blank>", "<unk>", "<s>", "</s>", *(f"p{number}" for number in range(30))]
    spec = random_spec(np.random.default_rng(1), symbols=len(symbols), pre_norm=True, with_relative_position=relative)
    there = saved(library, tmp_path / "there", spec, symbols)
    found = imported(there, tmp_path / "back", **LANGUAGES)
    assert log_probability(found, SOURCE, TARGET) == pytest.approx(says(library, there), abs=2e-5)
    again = export_model(
        ExportConfig(path=str(found), format="ctranslate2", output=str(tmp_path / "again"), sentences=3)
    )
    assert again.difference < 2e-5  # the vectors of relative positions are those of all heads still


def plain(folder: Path, library: Any) -> Path:
    """A folder without a tokenizer of ours."""
    symbols = ["<pad>", "<unk>", "<s>", "</s>", *(f"p{number}" for number in range(30))]
    return saved(library, folder, random_spec(np.random.default_rng(2), symbols=len(symbols), pre_norm=False), symbols)


def edited(**changed: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        tree = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(tree | changed))

    return edit


def with_setting(name: str, value: Any) -> Callable[[Path], None]:
    """Another number in model.bin, of the same size."""

    def edit(folder: Path) -> None:
        content = (folder / "model.bin").read_bytes()
        begin = content.index(text(name)) + len(text(name)) + 6  # after no axes, the type and the size
        (folder / "model.bin").write_bytes(content[:begin] + value.tobytes() + content[begin + value.nbytes :])

    return edit


def vocabulary(content: Any) -> Callable[[Path], None]:
    return lambda folder: (folder / "shared_vocabulary.json").write_text(json.dumps(content)) and None


REFUSED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a start that is not a token": (edited(decoder_start_token="<de>"), "decoder_start_token='<de>' is not a token"),
    "no start": (edited(decoder_start_token=None), "decoder_start_token=None must be a token"),
    "another end": (edited(eos_token="<end>"), "eos_token='<end>' is not a token"),
    "sources without an end": (
        edited(add_source_eos=False),
        "add_source_eos is not true, but nmt ends each source with",
    ),
    "sources with a beginning": (edited(add_source_bos=True), "add_source_bos is true"),
    "a strange epsilon": (edited(layer_norm_epsilon="x"), "layer_norm_epsilon='x' must be"),
    "no mapping": (lambda folder: (folder / "config.json").write_text("[]"), "should be a mapping"),
    "a vocabulary that is no list": (vocabulary({"a": 1}), "is not a list of tokens"),
    "a short vocabulary": (vocabulary(["<unk>", "<s>", "</s>"]), "has 34 source tokens, but the vocabulary has 3"),
    "a piece twice": (vocabulary(["<unk>", "<s>", "</s>", "a", "a"]), "holds 'a' twice"),
    "an approximation": (with_setting("encoder/activation", np.int8(4)), "encoder.activation=4, gelu by the logistic"),
    "two activations": (with_setting("decoder/activation", np.int8(2)), "activations relu and swish"),
    "no heads": (with_setting("encoder/num_heads", np.int16(0)), "0 encoder heads and 2 decoder heads"),
    "other heads": (with_setting("decoder/num_heads", np.int16(4)), "2 encoder heads and 4 decoder heads"),
    "slopes": (with_setting("decoder/alibi", np.int8(1)), "has decoder.alibi=1, which nmt does not support"),
    "norms that are missing": (with_setting("encoder/pre_norm", np.int8(1)), "no tensor 'encoder.layer_norm.gamma'"),
    "a start with zeros": (
        with_setting("decoder/start_from_zero_embedding", np.int8(1)),
        "the embedding of <pad> is not zero",
    ),
    "another model": (
        lambda folder: (folder / "model.bin").write_bytes(
            (folder / "model.bin").read_bytes().replace(b"TransformerSpec", b"WhisperSpecABCD")
        ),
        "holds a WhisperSpecABCD of revision 7",
    ),
}


@pytest.mark.slow
def test_what_no_model_of_ours_is_is_refused(library: Any, tmp_path: Path) -> None:
    there = plain(tmp_path / "there", library)
    files = {path: path.read_bytes() for path in there.iterdir()}
    for name, (edit, says_this) in REFUSED.items():
        edit(there)
        with pytest.raises(DataError) as caught:
            imported(there, tmp_path / "back", **LANGUAGES)
        assert says_this in str(caught.value), name
        assert not (tmp_path / "back").exists()
        for path, content in files.items():
            path.write_bytes(content)
    imported(there, tmp_path / "back", **LANGUAGES)  # none of it was the reason


@pytest.mark.slow
def test_a_truncated_or_scrambled_model_is_a_sentence_wherever_it_is(library: Any, tmp_path: Path) -> None:
    there, rng = plain(tmp_path / "there", library), np.random.default_rng(3)
    content = np.frombuffer((there / "model.bin").read_bytes(), dtype=np.uint8)
    for end in np.linspace(0, len(content) - 1, 100, dtype=int):
        (there / "model.bin").write_bytes(content[:end].tobytes())
        with pytest.raises(DataError):
            imported(there, tmp_path / "back", **LANGUAGES)
    heads = np.flatnonzero(
        content[:-1] == 0
    )  # most bytes are of numbers, of which any is right; these are of names too
    for place in rng.choice(heads, 60):
        changed = content.copy()
        changed[place - 4 : place + 4] = rng.integers(256, size=len(changed[place - 4 : place + 4]))
        (there / "model.bin").write_bytes(changed.tobytes())
        try:
            imported(there, tmp_path / "back", overwrite=True, **LANGUAGES)
        except DataError as error:
            assert "\n" not in str(error)


@pytest.mark.slow
def test_languages_and_tokenizer_are_those_of_the_folder_unless_others_are_named(library: Any, tmp_path: Path) -> None:
    there = written(store(tmp_path / "run", start_symbol=StartSymbol.eos), tmp_path / "there")
    found = load_model(imported(there, tmp_path / "back", target_lang="nl"), "cpu")
    assert (found.pair.source_lang, found.pair.target_lang) == ("en", "nl")
    assert found.config.start_symbol is StartSymbol.eos
    with pytest.raises(UsageError, match="needs the file that segmented the text: --bpe-model"):
        imported(there, tmp_path / "other", bpe=Segmentation.sentencepiece, **LANGUAGES)
    words = WordTokenizer(WordsConfig(), ["other"])
    LanguagePair("en", "de", words, words, shared=True).save(there / "tokenizer")
    with pytest.raises(DataError, match=r"joint\.json is damaged"):
        imported(there, tmp_path / "other")
    (there / "manifest.json").unlink()
    with pytest.raises(DataError, match="does not match the vocabulary"):
        imported(there, tmp_path / "other")
