"""``deep500 new``: a recipe, backend, operator, optimizer, scheme, metric or task that runs as it is, and its test."""

from __future__ import annotations

import argparse
import importlib.util
import keyword
from collections.abc import Callable
from pathlib import Path

from deep500.errors import InputError, ResultsError
from deep500.results.command import add_json, say_written

KINDS = ("recipe", "backend", "operator", "optimizer", "scheme", "metric", "task")
FOLDER = Path(__file__).parent


def add_new(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the options of ``new``; returns what executes it."""
    parser.add_argument("kind", choices=KINDS, help="what to write")
    parser.add_argument("name", help="its name in small letters: NAME.py and test_NAME.py are written")
    parser.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="where to (./)")
    add_json(parser)
    return _new


def skeleton(kind: str, name: str) -> dict[str, str]:
    """Files by name: what is to be filled in, and its test.

    Args:
        kind: one of :data:`KINDS`.
        name: a Python name in small letters; its class is called so in capitals (``my_loss``: ``MyLoss``).

    Raises:
        InputError: another kind, or a name that is none.

    Example:
        >>> sorted(skeleton("scheme", "my_ring")), "class MyRing(" in skeleton("scheme", "my_ring")["my_ring.py"]
        (['my_ring.py', 'test_my_ring.py'], True)
    """
    if kind not in KINDS:
        raise InputError(f"got kind {kind!r}; expected one of {', '.join(KINDS)}")
    if not (name.isidentifier() and name == name.lower() and name.strip("_")) or keyword.iskeyword(name):
        raise InputError(f"got name {name!r}; expected a Python name in small letters, such as my_{kind}")
    words = {"{NAME}": name, "{CLASS}": "".join(word.capitalize() for word in name.split("_"))}
    files = {}
    for ending, file in ((f"{kind}.txt", f"{name}.py"), (f"test_{kind}.txt", f"test_{name}.py")):
        files[file] = (FOLDER / ending).read_text(encoding="utf-8")
        for word, value in words.items():
            files[file] = files[file].replace(word, value)
    return files


def _new(args: argparse.Namespace) -> int:
    files = {args.out / file: text for file, text in skeleton(args.kind, args.name).items()}
    there = next((path for path in files if path.exists()), None)
    if there is not None:
        raise ResultsError(f"got {there}, which exists; expected a name that is free: choose another, or another --out")
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"got {error.strerror!r} on {args.out}; expected a folder to write to: --out DIR") from error
    written, tested = files
    run = f"deep500 run {written}" if args.kind in ("recipe", "task") else f"its docstring says how to use {written}"
    first = "" if importlib.util.find_spec("pytest") else "pip install pytest; "
    text = f"{written}\n{tested}\nnext: {run}; {first}python -m pytest {tested}"
    say_written(args, written, tested, text=text)
    return 0
