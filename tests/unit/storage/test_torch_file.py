"""Files of torch.save, read without torch: what they hold, and what must never come out of them."""

from __future__ import annotations

import argparse
import collections
import io
import pickle
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from nmt.errors import DataError, MissingInputError
from nmt.storage.torch_file import read_torch_file

BASE = torch.arange(24.0).reshape(4, 6)
TENSORS = {
    "float32": BASE,
    "float64": BASE.double(),
    "float16": BASE.half(),
    "int64": torch.arange(5),
    "int32": torch.arange(5, dtype=torch.int32),
    "int16": torch.arange(5, dtype=torch.int16),
    "int8": torch.tensor([-1, 2], dtype=torch.int8),
    "uint8": torch.tensor([1, 255], dtype=torch.uint8),
    "uint16": torch.tensor([1, 65535], dtype=torch.uint16),
    "bool": torch.tensor([True, False, True]),
    "transposed": BASE.t(),
    "a part": BASE[1:3, 2:5],
    "every second": BASE[::2, ::3],
    "scalar": torch.tensor(3.5),
    "empty": torch.zeros(0, 5),
    "parameter": torch.nn.Parameter(BASE),
}
BOTH_FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "old"])


def saved(folder: Path, value: Any, zipped: bool = True) -> Path:
    path = folder / "model.pt"
    torch.save(value, path, _use_new_zipfile_serialization=zipped)
    return path


def rewritten(path: Path, change: Callable[[dict[str, bytes]], Any], how: int = zipfile.ZIP_STORED) -> Path:
    """An archive whose members are changed, with right checksums."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def with_pickle(folder: Path, program: bytes) -> Path:
    return rewritten(saved(folder, BASE), lambda members: members.__setitem__("model/data.pkl", program))


@BOTH_FORMATS
@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_is_read_as_the_same_numbers(name: str, zipped: bool, tmp_path: Path) -> None:
    expected = TENSORS[name].detach().numpy()
    found = read_torch_file(saved(tmp_path, {"x": TENSORS[name]}, zipped))["x"]
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert np.array_equal(found, expected)


@BOTH_FORMATS
def test_bfloat16_is_widened(zipped: bool, tmp_path: Path) -> None:
    tensor = torch.randn(3, 4).bfloat16()
    found = read_torch_file(saved(tmp_path, tensor.t(), zipped))
    assert found.dtype == np.float32 and np.array_equal(found, tensor.float().numpy().T)


@BOTH_FORMATS
def test_tensors_that_share_numbers_still_do(zipped: bool, tmp_path: Path) -> None:
    found = read_torch_file(saved(tmp_path, [BASE, BASE.t(), BASE.clone()], zipped))
    assert np.shares_memory(found[0], found[1]) and not np.shares_memory(found[0], found[2])


def test_arrays_are_views_that_cannot_be_written(tmp_path: Path) -> None:
    found = read_torch_file(saved(tmp_path, BASE))
    assert not found.flags.writeable and not found.flags.owndata


@BOTH_FORMATS
def test_what_is_no_tensor_becomes_a_plain_tree(zipped: bool, tmp_path: Path) -> None:
    value = {
        "args": argparse.Namespace(arch="transformer", betas=(0.9, 0.98), seed=None),
        "cfg": OmegaConf.create({"model": {"layers": 6, "sizes": [1, 2.5, None], "again": "${model.layers}"}}),
        "history": [{"name": "Adam", "on": True, 3: "three"}],
        "many": collections.defaultdict(list, {"a": [1]}),
        "ordered": collections.OrderedDict(b=1, a=2),
        "set": {7},
        "size": BASE.shape,
        "device": torch.device("cpu"),
        "dtype": torch.float16,
        "numpy": np.float64(2.5),
        "bytes": b"\xff\x00",
        "path": Path("a/b"),
    }
    assert read_torch_file(saved(tmp_path, value, zipped)) == {
        "args": {"arch": "transformer", "betas": [0.9, 0.98], "seed": None},
        "cfg": {"model": {"layers": 6, "sizes": [1, 2.5, None], "again": "${model.layers}"}},
        "history": [{"name": "Adam", "on": True, 3: "three"}],
        "many": {"a": [1]},
        "ordered": {"b": 1, "a": 2},
        "set": [7],
        "size": [4, 6],
        "device": "cpu",
        "dtype": "torch.float16",
        "numpy": 2.5,
        "bytes": b"\xff\x00",
        "path": "a/b",
    }


@BOTH_FORMATS
def test_the_parameters_of_a_module_come_in_their_order(zipped: bool, tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.LayerNorm(3))
    found = read_torch_file(saved(tmp_path, module.state_dict(), zipped))
    assert list(found) == list(module.state_dict())


def foreign(program: str, value: Any) -> bytes:
    """A pickle of protocol 2 that calls a class with one argument and, if there is one, sets a state."""
    module, name = program.rsplit(".", 1)
    made = b"c" + f"{module}\n{name}\n".encode()
    return b"\x80\x02" + made + pickle.dumps(value, 2)[2:-1] + b"\x85R."


def test_a_choice_of_fairseq_is_its_value(tmp_path: Path) -> None:
    path = with_pickle(tmp_path, foreign("fairseq.dataclass.constants.Choices", "pytorch_ddp"))
    assert read_torch_file(path) == "pytorch_ddp"


def test_a_meter_of_fairseq_is_its_state(tmp_path: Path) -> None:
    state = pickle.dumps({"val": 1.5, "sum": 3}, 2)[2:-1]
    program = b"\x80\x02cfairseq.meters\nAverageMeter\n)\x81" + state + b"b."
    assert read_torch_file(with_pickle(tmp_path, program)) == {"val": 1.5, "sum": 3}


def test_what_is_skipped_is_not_read(tmp_path: Path) -> None:
    path = saved(tmp_path, {"model": {"x": BASE}, "last_optimizer_state": {"y": BASE + 1}})
    rewritten(path, lambda members: members.pop("model/data/1"))
    with pytest.raises(DataError, match="lacks the member"):
        read_torch_file(path)
    found = read_torch_file(path, skip=["last_optimizer_state"])
    assert found["last_optimizer_state"] is None and np.array_equal(found["model"]["x"], BASE.numpy())


HOSTILE = {
    "os.system": b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.",
    "posix.system": b"cposix\nsystem\n(S'true'\ntR.",
    "nt.system": b"\x80\x02cnt\nsystem\nX\x04\x00\x00\x00true\x85R.",
    "builtins.eval": b"\x80\x02cbuiltins\neval\nX\x01\x00\x00\x001\x85R.",
    "builtins.exec": b"\x80\x02c__builtin__\nexec\nX\x01\x00\x00\x001\x85R.",
    "builtins.getattr": b"\x80\x02cbuiltins\ngetattr\n)R.",
    "builtins.int.__class__": b"\x80\x04\x8c\x08builtins\x8c\x0dint.__class__\x93.",
    "argparse.Namespace.__init__.__globals__": b"\x80\x04\x8c\x08argparse\x8c\x1eNamespace.__init__.__globals__\x93.",
    "torch.nn.modules.linear.Linear": b"\x80\x02ctorch.nn.modules.linear\nLinear\n)\x81}b.",
    "torch.storage._load_from_bytes": b"\x80\x02ctorch.storage\n_load_from_bytes\nC\x01x\x85R.",
    "torch.load": b"\x80\x02ctorch\nload\n)R.",
    "fairseq.os.system": b"\x80\x02cfairseq.os\nsystem\n)R.",
    "omegaconf.omegaconf.os.system": b"\x80\x02comegaconf.omegaconf.os\nsystem\n)R.",
    "subprocess.Popen": b"\x80\x02ccollections\ndefaultdict\ncsubprocess\nPopen\n\x85R.",
    "collections.Counter": b"\x80\x02ccollections\nCounter\n)R.",
    "torch.storage.os.system": b"\x80\x02ctorch.storage.os\nsystem\n)R.",
}


@BOTH_FORMATS
@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_is_not_on_the_list_is_refused_and_told(name: str, zipped: bool, tmp_path: Path) -> None:
    if zipped:
        path = with_pickle(tmp_path, HOSTILE[name])
    else:
        path = saved(tmp_path, 1, zipped=False)
        path.write_bytes(path.read_bytes().replace(pickle.dumps(1, 2), HOSTILE[name]))
    with pytest.raises(DataError, match=rf"imports '{name}', .*nothing was run"):
        read_torch_file(path)


TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n"
STORAGE = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x18tQ"


def tensor(offset: int, size: tuple[Any, ...], stride: tuple[Any, ...]) -> bytes:
    numbers = b"".join(pickle.dumps(part, 2)[2:-1] for part in (offset, size, stride))
    return b"\x80\x02" + TENSOR + b"(" + STORAGE + numbers + b"\x89Nt" + b"R."


def test_the_tensor_that_the_absurd_ones_below_come_from_is_read(tmp_path: Path) -> None:
    found = read_torch_file(with_pickle(tmp_path, tensor(2, (2, 3), (6, 1))))
    assert found.tolist() == BASE.flatten()[2:].as_strided((2, 3), (6, 1)).tolist()


def doubled(levels: int) -> bytes:
    """Lists that hold the one before twice."""
    return b"\x80\x02]" + b"".join(b"q%c0(h%ch%cl" % (number, number, number) for number in range(levels)) + b"."


MALFORMED = {
    "a shape beyond the storage": tensor(0, (5, 6), (6, 1)),
    "an offset beyond the storage": tensor(23, (2,), (1,)),
    "a negative offset": tensor(-1, (2,), (1,)),
    "a negative size": tensor(0, (-2,), (1,)),
    "a negative stride": tensor(5, (2,), (-1,)),
    "a stride out of the storage": tensor(0, (2,), (2**61,)),
    "more numbers than there are": tensor(0, (2**40, 2**20), (0, 0)),
    "a size beyond 64 bits": tensor(0, (2**70,), (1,)),
    "an empty tensor of absurd size": tensor(0, (0, 2**61), (1, 1)),
    "sizes without strides": tensor(0, (2, 3), (1,)),
    "too many dimensions": tensor(0, (1,) * 70, (1,) * 70),
    "sizes that are text": tensor(0, ("a",), (1,)),
    "too few arguments": b"\x80\x02" + TENSOR + b")R.",
    "an identity of another form": b"\x80\x02X\x01\x00\x00\x00xQ.",
    "an identity that is a list": b"\x80\x02]Q.",
    "a call of what is no name": b"\x80\x02K\x01)R.",
    "a call of a result": b"\x80\x02ccollections\nOrderedDict\n)R)R.",
    "a call of builtins.type": b"\x80\x02cbuiltins\ntype\n)R.",
    "a factory that was called": b"\x80\x02ccollections\ndefaultdict\nccollections\nOrderedDict\n)R\x85R.",
    "arguments that are no tuple": b"\x80\x02ccollections\nOrderedDict\nK\x01R.",
    "the state of a class": b"\x80\x02cargparse\nNamespace\n}X\x01\x00\x00\x00aK\x01sb.",
    "the state of a dict": b"\x80\x02}}b.",
    "an unhashable key": b"\x80\x02}]K\x01s.",
    "a key that is a dict": b"\x80\x02}ccollections\nOrderedDict\n)RK\x01s.",
    "a list in itself": b"\x80\x02]q\x00h\x00a.",
    "lists that double at each level": doubled(80),
    "a chain of lists, each of which the outermost holds too": b"\x80\x02](]q\x00"
    + b"".join(b"h%c\x85q%c" % (number, number + 1) for number in range(150))
    + b"e.",
    "a million nested tuples": b"\x80\x02)" + b"\x85" * 1_000_000 + b".",
    "a million nested lists": b"\x80\x02" + b"]" * 1_000_000 + b"a" * 999_999 + b".",
    "an integer of 5,000 digits": b"\x80\x02\x8b" + struct.pack("<I", 2100) + b"\x7f" * 2100 + b".",
    "deep nesting": b"\x80\x02" + b"]" * 5000 + b"a" * 4999 + b".",
    "a deep key": b"\x80\x02}" + b")" + b"\x85" * 100_000 + b"K\x01s.",
    "a key of tuples that double at each level": b"\x80\x02}()"
    + b"".join(b"q%ch%c\x86" % (number, number) for number in range(60))
    + b"K\x01u.",
    "an empty stack": b"\x80\x020.",
    "a mark that is not there": b"\x80\x02t.",
    "a memo that is not there": b"\x80\x02h\x05.",
    "an operation of threads": b"\x80\x02\x82\x01.",
    "no end": b"\x80\x02K\x01",
    "a string longer than the file": b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7fabc.",
    "nothing": b"",
    "a number of numpy that is an object": b"\x80\x02cnumpy.core.multiarray\nscalar\ncnumpy\ndtype\nX\x02\x00\x00\x00O8\x85R"
    b"C\x08\x01\x02\x03\x04\x05\x06\x07\x08\x86R.",
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_pickle_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"model\.pt is damaged, or not written by torch\.save: \S"):
        read_torch_file(with_pickle(tmp_path, MALFORMED[name]))


def test_an_absurd_number_in_the_memo_costs_nothing(tmp_path: Path) -> None:
    assert read_torch_file(with_pickle(tmp_path, b"\x80\x02K\x07r\xff\xff\xff\xff0j\xff\xff\xff\xff.")) == 7


def test_parts_that_are_shared_are_one_object(tmp_path: Path) -> None:
    found = read_torch_file(with_pickle(tmp_path, doubled(20)))
    assert found[0] is found[1]


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = rewritten(saved(tmp_path, BASE), lambda members: members.update({"model/data/0": bytes(10**7)}), 8)
    assert path.stat().st_size < 10**5
    with pytest.raises(DataError, match="compressed"):
        read_torch_file(path)


@pytest.mark.parametrize("key", ["../../etc/passwd", "/etc/passwd", "0/../1"])
def test_a_key_like_a_path_reaches_no_file(key: str, tmp_path: Path) -> None:
    written = struct.pack("<cI", b"X", len(key)) + key.encode()
    path = with_pickle(tmp_path, tensor(0, (1,), (1,)).replace(b"X\x01\x00\x00\x000", written))
    with pytest.raises(DataError, match="lacks the member"):
        read_torch_file(path)


def test_members_of_one_name_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, BASE)
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr("model/data.pkl", b"\x80\x02K\x01.")
    with pytest.raises(DataError, match="the same name"):
        read_torch_file(path)


@pytest.mark.parametrize("field", ["size", "place"])
def test_members_that_overlap_or_leave_the_file_are_refused(field: str, tmp_path: Path) -> None:
    path = saved(tmp_path, [BASE, BASE + 1])
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\x01\x02", 0, content.rindex(b"model/data/1"))
    if field == "size":
        content[entry + 20 : entry + 28] = struct.pack("<II", 10**6, 10**6)
    else:
        first = content.index(b"PK\x01\x02")
        content[entry + 42 : entry + 46] = content[first + 42 : first + 46]
    path.write_bytes(content)
    with pytest.raises(DataError, match="overlaps"):
        read_torch_file(path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "empty"),
        (b"hello", "not one that torch.save wrote"),
        (b"<!DOCTYPE html>", "a web page"),
        (b"PK\x03\x04", "damaged"),
        (b"\x80\x02K\x01.", "damaged"),
        (b"\x80", "damaged"),
    ],
)
def test_another_file_is_refused(content: bytes, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=complaint):
        read_torch_file(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match="none.pt"):
        read_torch_file(tmp_path / "none.pt")


@BOTH_FORMATS
def test_a_file_that_was_cut_short_is_refused(zipped: bool, tmp_path: Path) -> None:
    path = saved(tmp_path, {"x": BASE}, zipped)
    content = path.read_bytes()
    for length in range(1, len(content), 7):
        path.write_bytes(content[:length])
        with pytest.raises(DataError):
            read_torch_file(path)


VALUE = {"args": argparse.Namespace(a=(1, 2.5)), "cfg": OmegaConf.create({"b": ["c", 1]}), "model": {"w": BASE.t()}}


@BOTH_FORMATS
def test_a_flipped_bit_is_an_error_or_changes_nothing(zipped: bool, tmp_path: Path) -> None:
    path = saved(tmp_path, VALUE, zipped)
    content, expected = path.read_bytes(), read_torch_file(path)["model"]["w"]
    chance, refused = random.Random(1), 0
    for _ in range(1500):
        damaged = bytearray(content)
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        try:
            found = read_torch_file(path)
        except DataError:
            refused += 1
            continue
        if zipped:  # the old format has no checksums
            assert np.array_equal(found["model"]["w"], expected) and found["args"] == {"a": [1, 2.5]}
    assert refused > 100


def test_whatever_a_pickle_says_it_is_read_or_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, VALUE)
    with zipfile.ZipFile(path) as archive:
        program = archive.read("model/data.pkl")
        numbers = archive.read("model/data/0")
    chance, read = random.Random(2), 0
    operations = bytes(opcode for opcode in b"(.0125FGIJKLMNQRSTUVX]abcdeghijlopqrstu}\x80\x81\x85\x86\x87\x88\x93\x94")
    for _ in range(1500):
        damaged = bytearray(program)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.choice([chance.randrange(256), chance.choice(operations)])
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w") as archive:
            archive.writestr("model/data.pkl", bytes(damaged))
            archive.writestr("model/data/0", numbers)
        path.write_bytes(written.getvalue())
        try:
            read_torch_file(path)
            read += 1
        except DataError:
            continue
    assert read > 10
