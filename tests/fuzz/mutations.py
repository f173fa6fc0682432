"""A grammar of damage: bytes, JSON structure, lines, headers of checkpoints, and what may lie where a file should."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Draw = random.Random
MARK = "@@raw@@"
"""Stands for text that no value of Python becomes."""

DEEP = "[" * 100_000 + "]" * 100_000
# fmt: off
RAW = (
    "1e400", "-1e400", "9" * 5000, "-" + "9" * 400, "NaN", "Infinity", DEEP, '{"a": 1, "a": 2}', '"\\ud800"',
    '"\\udfff x"', '"a\\u0000b"', "18446744073709551616", "1e-400", "0.1e308", "[1,]", "'", "1" * 40 + ".5",
)
VALUES = (
    None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 0.0, -0.0, 0.5, 5e-324, 1e308, -1e308, 1e18,
    "", " ", "x", "1", "é\u202e", "../../outside", "/etc/passwd", "..", "a/b", "<script>", "x" * 20_000, "\x1b[31m",
    "\n\n", [], {}, [1], [None], {"a": 1}, [[[[]]]], {"a": {"b": {}}}, [0] * 1000, "2999-01-01",
    "0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59", "step", "nan",
)
# fmt: on
NAMES = (b".hidden", b"more.json", b"\xff\xfe", b"a\nb", b"x" * 250, b".a.1.tmp")
CHUNKS = (
    b"\x00",
    b"\xff\xfe",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    b"\n",
    b"\r\n",
    b"{",
    b"]",
    b'"',
    b"\\",
    b"\\u",
    b"1e999",
    b"\x1b[2J",
)


# -- bytes ------------------------------------------------------------------------------------------------------------
def truncate(data: bytes, draw: Draw) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def flip(data: bytes, draw: Draw) -> bytes:
    changed = bytearray(data or b"\0")
    for _ in range(draw.choice((1, 1, 2, 8))):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def insert(data: bytes, draw: Draw) -> bytes:
    place = draw.randrange(len(data) + 1)
    return data[:place] + draw.choice(CHUNKS) + data[place:]


def cut_out(data: bytes, draw: Draw) -> bytes:
    a, b = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    return data[:a] + data[b:]


def mark_in_front(data: bytes, draw: Draw) -> bytes:
    return draw.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\n", b" ")) + data


def twice(data: bytes, draw: Draw) -> bytes:
    return data + data


def other_text(data: bytes, draw: Draw) -> bytes:
    short = (b"", b"\n", b"null\n", b"[]\n", b"{}\n", b'"x"\n', b"0\n")
    return draw.choice((*short, b"\x00" * 100, b"{" * 100_000, DEEP.encode() + b"\n"))


BYTES = (truncate, flip, insert, cut_out, mark_in_front, twice, other_text)


# -- JSON -------------------------------------------------------------------------------------------------------------
def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) below a value."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


def _replaced(value: Any, key: Any, draw: Draw) -> None:
    value[key] = draw.choice(VALUES)


def _raw(value: Any, key: Any, draw: Draw) -> None:
    value[key] = MARK


def _deleted(value: Any, key: Any, draw: Draw) -> None:
    del value[key]


def _renamed(value: Any, key: Any, draw: Draw) -> None:
    if isinstance(value, dict):
        value[draw.choice((f"{key}s", key.upper(), "", "x" * 300, "../x", "seed", "<b>"))] = value.pop(key)


def _added(value: Any, key: Any, draw: Draw) -> None:
    if isinstance(value, dict):
        value[draw.choice(("more", "schema", "name", "values", "é"))] = draw.choice(VALUES)
    else:
        value.append(draw.choice(VALUES))


def _scaled(value: Any, key: Any, draw: Draw) -> None:
    if isinstance(value[key], (int, float)) and not isinstance(value[key], bool):
        value[key] = draw.choice(
            (value[key] * 10**15, -value[key], float(value[key]) * 1e-300, value[key] + 1, float(value[key]))
        )
    else:
        value[key] = [value[key]]


def _swapped(value: Any, key: Any, draw: Draw) -> None:
    other = draw.choice(list(value) if isinstance(value, dict) else range(len(value)))
    value[key], value[other] = value[other], value[key]


def _repeated(value: Any, key: Any, draw: Draw) -> None:
    if isinstance(value, list):
        value.insert(key, value[key])
    else:
        value[key] = [value[key]] * 3


STRUCTURE = (_replaced, _replaced, _replaced, _raw, _deleted, _deleted, _renamed, _added, _scaled, _swapped, _repeated)


def json_changed(text: str, draw: Draw) -> str:
    """JSON text with one thing in it changed; what is no JSON (any more) stays as it is."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    found = list(places(value))
    if not found:
        return draw.choice(RAW)
    draw.choice(STRUCTURE)(*draw.choice(found), draw)
    return json.dumps(value).replace(f'"{MARK}"', draw.choice(RAW))


def structure(data: bytes, draw: Draw) -> bytes:
    return json_changed(data.decode("utf-8", errors="replace"), draw).encode("utf-8", errors="surrogatepass")


def lines(data: bytes, draw: Draw) -> bytes:
    """One line changed, left out, repeated, moved, or one added that is no object."""
    whole = data.decode("utf-8", errors="replace").splitlines()
    if not whole:
        return b"{}\n"
    at, kind = draw.randrange(len(whole)), draw.randrange(8)
    if kind < 4:
        whole[at] = json_changed(whole[at], draw)
    elif kind == 4:
        del whole[at]
    elif kind == 5:
        whole.insert(draw.randrange(len(whole) + 1), whole[at])
    elif kind == 6:
        whole.insert(at, draw.choice(("1", "null", "[]", '"x"', "true", "{}", "", *RAW)))
    else:
        draw.shuffle(whole)
    return "".join(f"{line}\n" for line in whole).encode("utf-8", errors="surrogatepass")


def header(data: bytes, draw: Draw) -> bytes:
    """The header of a checkpoint changed, its values mostly under a digest that fits again."""
    size = int.from_bytes(data[:8], "little")
    head, rest = data[8 : 8 + size].decode("utf-8", errors="replace"), data[8 + size :]
    changed = json_changed(head, draw)
    if draw.random() < 0.7:
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
            content = json.loads(head)
            about = content["__metadata__"]
            about["values"] = json_changed(about["values"], draw)
            about["digest"] = _digest(content, rest, about["values"])
            changed = json.dumps(content)
    raw = changed.encode("utf-8", errors="surrogatepass")
    raw += b" " * (-len(raw) % 8)
    length = draw.choice((len(raw),) * 5 + (0, 2**40, 2**63))
    return struct.pack("<Q", length) + raw + rest


def repacked(data: bytes, draw: Draw) -> bytes:
    """A compressed archive whose content is changed, its own checksum made to fit."""
    try:
        content = gzip.decompress(data)
    except (OSError, EOFError, zlib.error):
        return data
    if draw.random() < 0.5:  # headers of members lie on multiples of 512 bytes
        content = content[: 512 * draw.randrange(1, 6)] + flip(content[:512], draw) + content[512:]
    return gzip.compress(draw.choice(BYTES)(content, draw), 1)


def _digest(content: dict[str, Any], rest: bytes, values: str) -> str:
    """As :mod:`deep500.results.checkpoint` computes it."""
    types = {"F32": "float32", "F64": "float64", "I64": "int64", "I32": "int32", "U8": "uint8", "BOOL": "bool"}
    sha = hashlib.sha256(values.encode("utf-8", errors="surrogatepass"))
    for name in sorted(set(content) - {"__metadata__"}):
        about = content[name]
        begin, end = about["data_offsets"]
        sha.update(f"{name}\0{types.get(about['dtype'])}\0{tuple(about['shape'])}\0".encode())
        sha.update(rest[begin:end])
    return sha.hexdigest()


# -- what lies where a file should be ---------------------------------------------------------------------------------
def missing(path: Path, draw: Draw, outside: Path) -> None:
    path.unlink()


def link(path: Path, draw: Draw, outside: Path) -> None:
    content = path.read_bytes()
    path.unlink()
    twin = outside / "twin"
    if not twin.exists():
        twin.write_bytes(content)
    path.symlink_to(draw.choice((str(twin), str(outside / "none"), path.name, "/dev/zero", str(outside))))


def pipe(path: Path, draw: Draw, outside: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path, draw: Draw, outside: Path) -> None:
    path.unlink()
    path.mkdir()


def sparse(path: Path, draw: Draw, outside: Path) -> None:
    os.truncate(path, 20 * 2**30)


def beside(path: Path, draw: Draw, outside: Path) -> None:
    """Something more in the same folder."""
    name, kind = path.parent / os.fsdecode(draw.choice(NAMES)), draw.randrange(4)
    if name.exists() or name.is_symlink():
        return
    if kind == 0:
        name.symlink_to(outside)
    elif kind == 1:
        os.mkfifo(name)
    elif kind == 2:
        name.mkdir()
    else:
        name.write_bytes(b"{}")


def parent_link(path: Path, draw: Draw, outside: Path) -> None:
    """The folder of the file is moved away, and a link to it left."""
    moved = outside / "moved"
    if not moved.exists() and path.parent.name in ("samples", "checkpoints", "seed-0", "seed-1"):
        path.parent.rename(moved)
        path.parent.symlink_to(moved)


def parent_file(path: Path, draw: Draw, outside: Path) -> None:
    if path.parent.name in ("samples", "checkpoints", "seed-0", "seed-1"):
        path.parent.rename(outside / f"moved-{draw.randrange(10**9)}")
        path.parent.write_bytes(b"{}")


FILES: tuple[Callable[[Path, Draw, Path], None], ...] = (
    missing,
    missing,
    link,
    pipe,
    folder,
    sparse,
    beside,
    beside,
    parent_link,
    parent_file,
)


def mutate(path: Path, draw: Draw, outside: Path) -> str:
    """Damage a file, or what lies beside it, in one way; what was done, in words."""
    if draw.random() < 0.15:
        act = draw.choice(FILES)
        act(path, draw, outside)
        return f"{act.__name__} {path.name}"
    if path.suffix == ".json":
        change = draw.choice((structure,) * 12 + BYTES)
    elif path.suffix == ".jsonl":
        change = draw.choice((lines,) * 12 + BYTES)
    elif path.suffix == ".safetensors":
        change = draw.choice((header,) * 12 + BYTES)
    elif path.suffix == ".gz":
        change = draw.choice((repacked,) * 12 + BYTES)
    else:
        change = draw.choice(BYTES)
    path.write_bytes(change(path.read_bytes(), draw))
    return f"{change.__name__} {path.name}"
