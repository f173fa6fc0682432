"""Read files that others may have written, cut short or forged: limits first, then the parser, then the declaration.

Every reader of results folders, plans, rule files, histories, cache entries, checkpoints, ledgers and journals goes
through here before anything else sees the data:

1. *The file.* A regular one, not a link where links do not belong (a pipe would wait, a link leads elsewhere), and
   not larger than :data:`MOST_BYTES`: its size is asked before a byte is read.
2. *The text.* UTF-8 without a mark before it, brackets nested at most :data:`MOST_DEEP`.
3. *JSON.* Numbers that 64 bits hold and that are finite, names once per object, text without NUL and halves of
   characters, no ``NaN``.
4. *The declaration* of the format (:func:`declare`), which stands beside what writes it. Fields that it does not name
   are let through, so that a writer may add some.

What is refused raises the error that the caller names, with the file, the place in it, what was got and expected.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import reprlib
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from deep500.errors import Deep500Error, ResultsError

MOST_BYTES = 16 * 2**20
"""Size of the largest file that is parsed in one go; the largest that Deep500 writes have a few MiB."""

MOST_DEEP = 64
"""Brackets within brackets."""

LARGEST = 2**63 - 1
"""The largest whole number."""

RESTORE = "restore the file, or read it with the version that wrote it"

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60


class _Refused(Exception):
    """A refused value, what was expected, and where: the path is put together on the way up."""

    def __init__(self, got: str, expected: str, *place: str) -> None:
        super().__init__(got)
        self.got, self.expected, self.place = got, expected, list(place)

    def __str__(self) -> str:
        place = "".join(reversed(self.place)).lstrip(".")
        return f"got {f'{place}: ' if place else ''}{self.got}; expected {self.expected}"


# -- the file ---------------------------------------------------------------------------------------------------------
def read_bytes(
    path: str | os.PathLike[str],
    most: int = MOST_BYTES,
    *,
    links: bool = False,
    error: type[Deep500Error] = ResultsError,
    do: str = RESTORE,
) -> bytes:
    """The content of a regular file.

    Args:
        path: the file.
        most: bytes; a larger one is refused unread.
        links: whether the file may be a link, as those that a user names may.
        error, do: what is raised, and what its message ends with.

    Raises:
        error: it is absent, unreadable, a link, a folder, a pipe or a device, or too large.
    """
    try:
        with open_regular(path, links=links) as file:
            size = os.fstat(file.fileno()).st_size
            if size > most:
                raise _Refused(f"{size} bytes", f"at most {most}")
            return file.read(size)  # not `most`, for which Python would take memory at once
    except (_Refused, OSError, ValueError) as problem:
        _raise(problem, path, error, do)


def open_regular(path: str | os.PathLike[str], *, links: bool = False) -> Any:
    """Open a regular file for reading; raises OSError (ELOOP: a link, EINVAL: a folder, pipe or device)."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    handle = os.open(path, flags | (0 if links else getattr(os, "O_NOFOLLOW", 0)))
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _raise(problem: Exception, where: object, error: type[Deep500Error], do: str) -> NoReturn:
    if isinstance(problem, OSError):
        known = {errno.ELOOP: "a link", errno.EINVAL: "no regular file", errno.ENOENT: "no such file"}
        known[errno.ENOTDIR] = "a file in the place of its folder"
        problem = _Refused(known.get(problem.errno or 0, problem.strerror or str(problem)), "a regular file")
    elif not isinstance(problem, _Refused):
        problem = _Refused(str(problem), "the name of a file")
    raise error(f"{where}: {problem}; {do}") from problem


# -- the text and the JSON in it --------------------------------------------------------------------------------------
def parse(
    data: bytes,
    where: object = "text",
    *,
    odd_numbers: bool = False,
    error: type[Deep500Error] = ResultsError,
    do: str = RESTORE,
) -> Any:
    """The value of JSON text, within the limits.

    Args:
        data: the text.
        where: what messages call it.
        odd_numbers: let ``NaN`` and ``Infinity`` through, which are no JSON, but which a state of training may hold.
        error, do: what is raised, and what its message ends with.

    Raises:
        error: it is no JSON, or goes beyond them.

    Example:
        >>> parse(b'{"a": [1, 2.5]}')
        {'a': [1, 2.5]}
        >>> parse(b'{"a": 1e400}')
        Traceback (most recent call last):
        deep500.errors.ResultsError: text: got number 1e400; expected one that 64 bits hold; restore the file, or read it with the version that wrote it
    """  # noqa: E501
    try:
        return _parse(data, _LENIENT if odd_numbers else _STRICT)
    except (_Refused, ValueError, RecursionError) as problem:
        refused = problem if isinstance(problem, _Refused) else _Refused(f"no readable JSON ({problem})", "JSON")
        _raise(refused, where, error, do)


def _parse(data: bytes, decoder: json.JSONDecoder) -> Any:
    if (depth := _depth(data)) > MOST_DEEP:
        raise _Refused(f"brackets nested {depth} deep", f"at most {MOST_DEEP}")
    value = decoder.decode(data.decode("utf-8"))
    if b"\\u" in data:  # only there can half a character, or a NUL, come from
        for part in _texts(value):
            _character(part)
    return value


def _depth(data: bytes) -> int:
    """Return how deep brackets are nested outside text, without parsing: linear, and no Python per character."""
    if (most := data.count(b"[") + data.count(b"{")) <= MOST_DEEP:
        return most
    if b"\\" in data:  # escapes are found in text only; without them every quote is an end of one
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = re.sub(rb'"[^"]*"', b"", data.translate(None, _NO_MARKS))
    code = np.frombuffer(marks, np.uint8)
    steps = np.where((code == ord("[")) | (code == ord("{")), 1, -1)[code != ord('"')]
    return int(np.cumsum(steps).max(initial=0))


_NO_MARKS = bytes(byte for byte in range(256) if byte not in b'[]{}"')


def _whole(text: str) -> int:
    if len(text) > 20 or not -LARGEST - 1 <= int(text) <= LARGEST:
        raise _Refused(f"number {_SHORT.repr(text)[1:-1]}", "one that 64 bits hold")
    return int(text)


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _Refused(f"number {_SHORT.repr(text)[1:-1]}", "one that 64 bits hold")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _Refused(f"{_SHORT.repr(twice)} twice in one object", "every name once")
    return content


_HOOKS: dict[str, Any] = {"parse_int": _whole, "parse_float": _number, "object_pairs_hook": _once}
_STRICT = json.JSONDecoder(parse_constant=_number, **_HOOKS)
_LENIENT = json.JSONDecoder(parse_constant=float, **_HOOKS)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _character(part: str) -> None:
    try:
        part.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise _Refused(f"half a character in {ascii(part)[:60]}", "Unicode text") from problem
    if "\0" in part:
        raise _Refused(f"NUL in {ascii(part)[:60]}", "text without it")


# -- declarations -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Kind:
    """A kind of value: in words, and what raises where it is something else."""

    expected: str
    check: Callable[[Any], None]


def declare(kind: Any) -> Kind:
    """Make the kind of a format's values from a description that can be read.

    =====================================  =========================================================================
    ``str``, ``bool``, ``int``, ``float``  text, true or false, a whole number, a number (whole ones too)
    ``list``, ``dict``, ``object``         a list or an object with anything in it, anything
    ``None``, ``(str, None)``              null, one of several kinds
    ``[kind]``, ``{str: kind}``            a list, an object with any names, all values of one kind
    ``[kind, kind]``                       a list of as many values, each of its kind
    ``{"a": kind, "b?": kind}``            an object with these fields, of which ``b`` may be absent, and others
    ``{..., "*": kind}``                   the others are of this kind; :data:`NO_OTHER`: there are none
    a :class:`Kind`                        such as :func:`number`, :func:`text` and :func:`word` give
    =====================================  =========================================================================

    Example:
        >>> point = declare({"name": str, "at": [number(0, 1)], "note?": (str, None)})
        >>> validate({"name": "a", "at": [0, 0.5], "more": 1}, point, "a.json")
        >>> validate({"name": "a", "at": [0, 7]}, point, "a.json")
        Traceback (most recent call last):
        deep500.errors.ResultsError: a.json: got at[1]: 7; expected a number from 0 to 1; restore the file, or read it with the version that wrote it
    """  # noqa: E501
    if isinstance(kind, Kind):
        return kind
    if kind is object:
        return Kind("anything", lambda value: None)
    if kind is int or kind is float:
        return number(-math.inf, math.inf, whole=kind is int)
    if kind is None or isinstance(kind, type):
        return _of_type(type(None) if kind is None else kind)
    if isinstance(kind, tuple):
        return _any_of([declare(inner) for inner in kind])
    if isinstance(kind, list):
        return _list(declare(kind[0])) if len(kind) == 1 else _sequence([declare(inner) for inner in kind])
    if str in kind:
        return _mapping(declare(kind[str]))
    return _record({name: declare(inner) for name, inner in kind.items()})


_WORDS = {str: "text", bool: "true or false", list: "a list", dict: "an object", type(None): "null"}


def _of_type(kind: type) -> Kind:
    expected = _WORDS[kind]

    def check(value: Any) -> None:
        if not isinstance(value, kind):
            raise _Refused(_SHORT.repr(value), expected)

    return Kind(expected, check)


def number(least: float, most: float, *, whole: bool = False) -> Kind:
    """A number between two, both included."""
    expected = "a whole number" if whole else "a number"
    if least == most:
        expected = f"{least:g}"
    elif math.isfinite(most):
        expected += f" from {least:g} to {most:g}"

    def check(value: Any) -> None:
        fits = isinstance(value, int) or (not whole and isinstance(value, float))
        if not fits or isinstance(value, bool) or not least <= value <= most:
            raise _Refused(_SHORT.repr(value), expected)

    return Kind(expected, check)


def text(pattern: str, expected: str) -> Kind:
    """Text that a regular expression matches from end to end; ``expected`` says so in words."""
    matches = re.compile(pattern).fullmatch

    def check(value: Any) -> None:
        if not isinstance(value, str) or not matches(value):
            raise _Refused(_SHORT.repr(value), expected)

    return Kind(expected, check)


def word(*words: str) -> Kind:
    """One of some words."""
    return text("|".join(map(re.escape, words)), " or ".join(map(repr, words)))


def _any_of(kinds: list[Kind]) -> Kind:
    expected = " or ".join(kind.expected for kind in kinds)

    def check(value: Any) -> None:
        inner: _Refused | None = None
        for kind in kinds:
            try:
                return kind.check(value)
            except _Refused as problem:
                inner = problem if problem.place else inner
        raise inner or _Refused(_SHORT.repr(value), expected)

    return Kind(expected, check)


def _list(inner: Kind) -> Kind:
    def check(value: Any) -> None:
        if not isinstance(value, list):
            raise _Refused(_SHORT.repr(value), "a list")
        for place, item in enumerate(value):
            _field(f"[{place}]", item, inner)

    return Kind("a list", check)


def at_least(length: int, kind: Any) -> Kind:
    """A list of at least ``length`` values of one kind."""
    inner, expected = _list(declare(kind)), f"a list of {length} or more"

    def check(value: Any) -> None:
        inner.check(value)
        if len(value) < length:
            raise _Refused(f"{len(value)} values", expected)

    return Kind(expected, check)


def that(kind: Any, holds: Callable[[Any], bool], expected: str) -> Kind:
    """Values of a kind that also meet a condition; ``expected`` says both in words."""
    inner = declare(kind)

    def check(value: Any) -> None:
        inner.check(value)
        if not holds(value):
            raise _Refused(_SHORT.repr(value), expected)

    return Kind(expected, check)


def _sequence(inner: list[Kind]) -> Kind:
    items, expected = _list(Kind("anything", lambda value: None)), f"a list of {len(inner)} values"

    def check(value: Any) -> None:
        items.check(value)
        if len(value) != len(inner):
            raise _Refused(f"{len(value)} values", expected)
        for place, (kind, item) in enumerate(zip(inner, value, strict=True)):
            _field(f"[{place}]", item, kind)

    return Kind(expected, check)


def _mapping(inner: Kind) -> Kind:
    def check(value: Any) -> None:
        if not isinstance(value, dict):
            raise _Refused(_SHORT.repr(value), "an object")
        for name, item in value.items():
            _field(f".{name}", item, inner)

    return Kind("an object", check)


def _record(fields: Mapping[str, Kind]) -> Kind:
    entries = [(name.removesuffix("?"), kind, name.endswith("?")) for name, kind in fields.items() if name != "*"]
    named, others = {name for name, _, _ in entries}, fields.get("*")
    required = ", ".join(name for name, _, optional in entries if not optional)

    def check(value: Any) -> None:
        if not isinstance(value, dict):
            raise _Refused(_SHORT.repr(value), "an object")
        for name, kind, optional in entries:
            if name in value:
                _field(f".{name}", value[name], kind)
            elif not optional:
                raise _Refused(f"no {name}", required)
        if others is not None:
            for name in value.keys() - named:
                _field(f".{name}", value[name], others)

    return Kind("an object", check)


def _no_other(value: Any) -> None:
    raise _Refused(_SHORT.repr(value), "no field of this name")


NO_OTHER = Kind("no field of this name", _no_other)
"""Type of the other fields of an object that has none; see :func:`declare`."""


def chosen(field: str, kinds: Mapping[str, Any], otherwise: Any = dict) -> Kind:
    """An object whose kind depends on one of its fields, such as ``type``; ``otherwise`` where no kind is given."""
    declared, rest = {name: declare(kind) for name, kind in kinds.items()}, declare(otherwise)

    def check(value: Any) -> None:
        name = value.get(field) if isinstance(value, dict) else None
        (declared.get(name, rest) if isinstance(name, str) else rest).check(value)

    return Kind("an object", check)


def partial(fields: Mapping[Any, Any]) -> dict[Any, Any]:
    """The same description with every field optional, in the objects within it too."""

    def inner(kind: Any) -> Any:
        if isinstance(kind, tuple):
            return tuple(inner(inner_kind) for inner_kind in kind)
        if isinstance(kind, list):
            return [inner(inner_kind) for inner_kind in kind]
        return partial(kind) if isinstance(kind, dict) else kind

    marks = {name: name if name == "*" or name is str or name.endswith("?") else f"{name}?" for name in fields}
    return {marks[name]: inner(kind) for name, kind in fields.items()}


def _field(place: str, value: Any, kind: Kind) -> None:
    try:
        kind.check(value)
    except _Refused as problem:
        problem.place.append(place[:60])
        raise


def problem_of(value: Any, kind: Kind) -> str:
    """Say what was got and expected where a value is not of a kind; empty where it is.

    Example:
        >>> problem_of(7, number(0, 1)), problem_of(0.5, number(0, 1))
        ('got 7; expected a number from 0 to 1', '')
    """
    try:
        kind.check(value)
    except _Refused as problem:
        return str(problem)
    return ""


def validate(
    value: Any, kind: Kind, where: object, *, error: type[Deep500Error] = ResultsError, do: str = RESTORE
) -> None:
    """Raise ``error`` with the place unless a value is of a kind; see :func:`declare`."""
    try:
        kind.check(value)
    except _Refused as problem:
        _raise(problem, where, error, do)


def read_json(
    path: str | os.PathLike[str],
    kind: Kind,
    *,
    most: int = MOST_BYTES,
    links: bool = False,
    error: type[Deep500Error] = ResultsError,
    do: str = RESTORE,
) -> Any:
    """The value in a JSON file: :func:`read_bytes`, :func:`parse` and :func:`validate` in one."""
    value = parse(read_bytes(path, most, links=links, error=error, do=do), path, error=error, do=do)
    validate(value, kind, path, error=error, do=do)
    return value


def with_hash(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a file and, as ``hash``, the SHA-256 of all others, whatever their order and the white space between.

    Example:
        >>> with_hash({"batch": 4}) == with_hash({"hash": "of another content", "batch": 4})
        True
    """
    content = {name: value for name, value in fields.items() if name != "hash"}
    return {**content, "hash": hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()}


def check_hash(fields: Mapping[str, Any], where: object, *, error: type[Deep500Error], do: str) -> None:
    """Raise ``error`` unless the fields are those that :func:`with_hash` was given."""
    expected, got = fields["hash"], with_hash(fields)["hash"]
    if got != expected:
        raise error(
            f"{where}: got content with hash {got[:12]}; expected {expected[:12]}, which it was written with: the file "
            f"was changed, and what it says may be wrong; {do}"
        )
