"""Archives as those of WMT 2014, with the same names and members, and a few hundred lines of invented words."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import json
import random
import sys
import tarfile
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "wmt14"


def load(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(f"wmt14_{name}", FOLDER / f"{name}.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


extract = load("extract")


def sentences(count: int, seed: int) -> list[tuple[str, str]]:
    """Pairs whose words stand for one another, by a lexicon that all seeds share."""
    lexicon = random.Random(0)
    words = [["".join(lexicon.choices("abcdefgh", k=lexicon.randint(2, 4))) for _ in range(60)] for _ in range(2)]
    chance = random.Random(seed)
    numbers = [[chance.randrange(60) for _ in range(chance.randint(3, 12))] for _ in range(count)]
    return [(" ".join(words[0][n] for n in line), " ".join(words[1][n] for n in line)) for line in numbers]


def sgml(lines: list[str], kind: str) -> str:
    segments = "".join(f'<seg id="{number}"> {line} </seg>\n' for number, line in enumerate(lines, start=1))
    head = f'<{kind} trglang="any" setid="newstest2014" srclang="any">\n<doc docid="a">\n<p>\n'
    return f"{head}{segments}</p>\n</doc>\n</{kind}>\n"


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    mode = "w:gz" if path.suffix == ".tgz" else "w"
    with tarfile.open(path, mode) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def write_archives(folder: Path, pair: str, pairs: int, url: str = "http://localhost") -> Path:
    """All archives of a pair of languages, and the list of them."""
    folder.mkdir(parents=True, exist_ok=True)
    members: dict[str, dict[str, bytes]] = {}
    texts = extract.TEXTS[pair]
    for number, text in enumerate(texts):
        made = sentences(pairs // (len(texts) - 2) if number < len(texts) - 2 else 20, seed=number + 1)
        for side, member in enumerate(text.members(pair).values()):
            lines = [one[side] for one in made]
            if text.name == "newstest2014":
                content = sgml([*lines[:-1], "a &amp; b"], ("srcset", "refset")[side]).encode()
            else:
                content = "".join(f"{line}\n" for line in lines).encode()
            if member.endswith(".gz"):
                content = gzip.compress(content)
            members.setdefault(text.archive, {"README": b"not wanted\n"})[member] = content
    entries = []
    for name, contents in members.items():
        write_tar(folder / name, contents)
        entries.append(entry(folder / name, url, "md5" if name == "test-full.tgz" else "sha256"))
    path = folder / "list.json"
    path.write_text(json.dumps(entries), encoding="utf-8")
    return path


def entry(path: Path, url: str, kind: str = "sha256") -> dict[str, object]:
    """Of the list. As in the real one, of an archive that is known by its MD5 no size is."""
    content = path.read_bytes()
    known = {"size": len(content)} if kind == "sha256" else {}
    checksum = {kind: hashlib.new(kind, content).hexdigest()}
    return {
        "name": path.name,
        "url": f"{url}/{path.name}",
        "pairs": ["en-de", "en-fr"],
        "source": "a test",
        **known,
        **checksum,
    }
