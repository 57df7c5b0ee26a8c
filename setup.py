"""Packaging; the tools are configured in pyproject.toml."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from setuptools import Extension, find_packages, setup

HERE = Path(__file__).parent
PACKAGE = (HERE / "nmt/__init__.py").read_text(encoding="utf-8")
VERSION = re.search(r'^__version__ = "([^"]+)"', PACKAGE, re.MULTILINE)
NAME = re.search(r'^DISTRIBUTION = "([^"]+)"', PACKAGE, re.MULTILINE)
README = HERE / "README.md"
COMMANDS = (
    "preprocess",
    "train",
    "average_checkpoints",
    "generate",
    "shortlist",
    "score",
    "import_",
    "export",
    "serve",
    "visualize",
    "compare",
    "align",
    "doctor",
)

PLOTS = ["matplotlib>=3.8", "resvg_py>=0.3"]  # PNG, pictures of positions, pictures of some examples and benchmarks
CTRANSLATE2 = ["ctranslate2>=4.5"]
HUGGINGFACE = ["transformers>=5"]
MOSES = ["sacremoses>=0.1"]  # for imported models whose text Moses cut into words
TENSORBOARD = ["tensorboard>=2.15"]
WANDB = ["wandb>=0.17"]
SCHEDULEFREE = ["schedulefree>=1.4"]
SWEEP = ["hydra-joblib-launcher>=1.2", "hydra-submitit-launcher>=1.2"]
SERVE = ["starlette>=0.40", "uvicorn>=0.30", "httptools>=0.6"]
OPTUNA = ["hydra-optuna-sweeper>=1.3"]
TEST = [
    "pytest>=8",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    "hypothesis>=6.100",
    "mypy>=1.11",
    "ruff>=0.6",
    "types-PyYAML",
    "types-regex",
    "types-tqdm",
    *PLOTS,
    *CTRANSLATE2,
    *HUGGINGFACE,
    *MOSES,
    *TENSORBOARD,
    *SCHEDULEFREE,
    *SWEEP,
    *SERVE,
    "libretranslatepy>=2.1",
]

assert VERSION is not None and NAME is not None, "nmt/__init__.py has no __version__ or DISTRIBUTION"

# Everything works without it, more slowly: where there is no C compiler, installation goes on.
NATIVE_FILES = sorted([*HERE.glob("nmt/native/*.c"), *HERE.glob("nmt/native/*.h")])
BUILT_FROM = hashlib.sha256(b"".join(file.read_bytes() for file in NATIVE_FILES)).hexdigest()  # nmt.native.library asks

NATIVE = Extension(
    "nmt.native._native",
    sorted(path.relative_to(HERE).as_posix() for path in HERE.glob("nmt/native/*.c")),
    depends=sorted(path.relative_to(HERE).as_posix() for path in HERE.glob("nmt/native/*.h")),
    define_macros=[("NMT_SOURCES", f'"{BUILT_FROM}"')],
    extra_compile_args=["-O3", "-fopenmp-simd", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"],
    libraries=["m"],
    optional=True,
)

setup(
    name=NAME[1],
    version=VERSION[1],
    description="Neural machine translation: from raw text to a self-contained model folder and translations",
    long_description=README.read_text(encoding="utf-8") if README.is_file() else "",
    long_description_content_type="text/markdown",
    author="nmt contributors",
    license="MIT",
    license_files=["LICENSE"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Programming Language :: Python :: 3.14",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
    # Hydra 1.3 cannot build its argument parser on Python 3.14; nmt/config/composing/hydra_bridge.py does without it.
    python_requires=">=3.10,<3.15",
    packages=find_packages(include=["nmt", "nmt.*", "nmt_cli", "nmt_cli.*"]),
    package_data={
        "nmt": [
            "py.typed",
            "native/*.c",
            "native/*.h",
            "conf/*/*.yaml",
            "pages/templates/*",
            "serving/*.html",
        ],
        "nmt_cli": ["py.typed"],
    },
    ext_modules=[NATIVE],
    install_requires=[
        "torch>=2.10",
        "hydra-core>=1.3.5,<1.4",
        "omegaconf>=2.3.1,<2.4",
        "sentencepiece>=0.2.3",
        "sacrebleu",
        "regex",
        "tqdm",
        "numpy",
        "PyYAML",
        "safetensors",
        "jinja2>=3.1",
        'backports.zstd; python_version < "3.14"',
    ],
    extras_require={
        "plots": PLOTS,
        "ctranslate2": CTRANSLATE2,
        "huggingface": HUGGINGFACE,
        "moses": MOSES,
        "tensorboard": TENSORBOARD,
        "wandb": WANDB,
        "schedulefree": SCHEDULEFREE,
        "sweep": SWEEP,
        "optuna": OPTUNA,
        "serve": SERVE,
        "test": TEST,
        "dev": TEST,
    },
    entry_points={
        "console_scripts": [
            f"nmt-{command.strip('_').replace('_', '-')} = nmt_cli.start:{command}" for command in COMMANDS
        ]
    },
    zip_safe=False,
)
