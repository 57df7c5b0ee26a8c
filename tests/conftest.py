"""What all tests share: processes that a test starts find this checkout, installed or not."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import random
import shutil
import signal
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests import sharing
from tests.balance import balanced, slow_files

if TYPE_CHECKING:
    from nmt.config.sections import TrainConfig

ROOT = Path(__file__).resolve().parent.parent
IN_MEMORY = Path("/dev/shm")

os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tensors of tests are tiny; set before torch is imported
os.environ["NMT_CACHE"] = os.devnull  # what nmt-doctor found on this machine is none of the tests' business
if IN_MEMORY.exists() and shutil.disk_usage(IN_MEMORY).free > 4 * 2**30:
    # Runs write many small checkpoints, each of which waits for the disk.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a shell, we ignore Ctrl-C, and so would every command that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Ten thousand tests and torch: looking through them for garbage takes a third of the time that collecting them takes.
gc.disable()
_modules_before = 0

# By day the same examples each time, however slow the machine; by night more of them, and others each time.
settings.register_profile(
    "day", derandomize=True, deadline=None, max_examples=30, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("night", settings.get_profile("day"), derandomize=False, max_examples=1000, print_blob=True)
settings.load_profile("day")


@pytest.hookimpl(trylast=True)  # after tests are deselected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put slow files first, for each worker its share."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    files = [item.path.relative_to(ROOT / "tests").as_posix() for item in items]
    items[:] = [items[index] for index in balanced(files, slow_files(), workers)]


def pytest_collection_finish() -> None:
    """From here on, the collector looks for garbage, but not in the tests."""
    _look_only_for_later_garbage()
    gc.enable()


def pytest_runtest_teardown() -> None:
    """It does not look in modules either that a test has imported. Those of torch have a million objects."""
    if len(sys.modules) > _modules_before + 100:
        _look_only_for_later_garbage()


def _look_only_for_later_garbage() -> None:
    global _modules_before
    gc.collect()
    gc.freeze()
    _modules_before = len(sys.modules)


@pytest.fixture(scope="session", autouse=True)
def _shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Give the workers of pytest-xdist a common folder, beside their temporary folders; it lives as long as these."""
    base = tmp_path_factory.getbasetemp()
    is_worker = hasattr(
        request.config, "workerinput"
    )  # a test may start pytest, which inherits the variables of a worker
    sharing.place = (base.parent if is_worker else base) / "shared"
    sharing.place.mkdir(exist_ok=True)


@pytest.fixture(autouse=True)
def seeded(request: pytest.FixtureRequest) -> None:
    """What torch draws in a test is the same whatever ran before. Nothing is imported for it."""
    torch = sys.modules.get("torch")
    if torch is not None:
        # torch.manual_seed writes down the stack for the GPU that may yet be asked for: half a millisecond of most tests.
        seed = torch.manual_seed if torch.cuda.is_available() else torch.default_generator.manual_seed
        seed(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture(scope="session")
def make_copy_corpus(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes corpus folders of random letters: the target is the source, or the source backwards."""
    from nmt.config.preprocessing import PreprocessConfig
    from nmt.data.tokenizers.piece_lists import WordsConfig
    from nmt.preprocessing.preprocess import preprocess

    def make(reverse: bool = False, weights: Sequence[float] = (), **sizes: int) -> Path:
        """``weights``: of the pairs of a split in turn; empty: none."""
        folder = tmp_path_factory.mktemp("copy")
        letters = random.Random(1)
        for split, size in sizes.items():
            lines = [" ".join(letters.choices("abcdefgh", k=letters.randint(2, 7))) for _ in range(size)]
            for language, step in {"src": 1, "tgt": -1 if reverse else 1}.items():
                text = "".join(f"{line[::step]}\n" for line in lines)
                (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
            numbers = itertools.islice(itertools.cycle(weights), size)
            (folder / f"{split}.weight").write_text("".join(f"{number}\n" for number in numbers))
        prefixes: dict[str, Any] = {f"{split}pref": str(folder / split) for split in sizes}
        config = PreprocessConfig("src", "tgt", tokenizer=WordsConfig(), joined_dictionary=True, **prefixes)
        config.destdir, config.weight_suffix = str(folder / "corpus"), "weight" if weights else None
        preprocess(config)
        return folder / "corpus"

    return make


@pytest.fixture(scope="session")
def copy_corpus(make_copy_corpus: Callable[..., Path]) -> Path:
    """A small corpus folder that tests share; do not write to it."""
    return make_copy_corpus(train=600, valid=40, test=40)


@pytest.fixture(scope="session")
def make_run(copy_corpus: Path) -> Callable[..., TrainConfig]:
    """Makes configurations of small training runs in ``folder / "run"``; arguments replace sections and options."""
    from nmt.config.reporting import ReportConfig
    from nmt.config.sections import BatchingConfig, CheckpointConfig, TrainConfig, TrainingConfig, ValidationConfig
    from nmt.criterions.config import LabelSmoothedCrossEntropyConfig
    from nmt.models.transformer.transformer import TransformerConfig
    from nmt.optim.config import AdamConfig
    from nmt.optim.schedules import InverseSqrtConfig
    from nmt.search.config import GreedyConfig

    def make(folder: Path, **changes: Any) -> TrainConfig:
        parts: dict[str, Any] = {
            "data": [str(copy_corpus)],
            "model": TransformerConfig(1, 1, d_model=16, d_ff=24, num_heads=2, dropout=0.2),
            "criterion": LabelSmoothedCrossEntropyConfig(),
            "optimizer": AdamConfig(lr=0.01),
            "scheduler": InverseSqrtConfig(warmup_updates=4),
            "search": GreedyConfig(),
            "batching": BatchingConfig(max_tokens=120),
            "training": TrainingConfig(max_update=12),
            "validation": ValidationConfig(samples=0),
            "checkpoint": CheckpointConfig(save_dir=str(folder / "run"), save_interval_updates=4),
            "report": ReportConfig(log_interval=3, html=False, count_flops=False),  # these take longer than the updates
        }
        return TrainConfig(**(parts | changes))

    return make


@pytest.fixture
def tiny_run(make_run: Callable[..., TrainConfig], tmp_path: Path) -> Callable[..., TrainConfig]:
    """The same in ``tmp_path / "run"``."""
    return functools.partial(make_run, tmp_path)
