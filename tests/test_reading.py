"""Limits before the parser, declarations after it."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep500 import reading
from deep500.errors import PlanError, ResultsError
from deep500.reading import (
    MOST_DEEP,
    NO_OTHER,
    at_least,
    chosen,
    declare,
    number,
    parse,
    partial,
    read_bytes,
    read_json,
    text,
    validate,
    word,
)

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner),
    max_leaves=30,
)


@given(VALUES, st.booleans())
def test_what_json_holds_comes_back(value, ascii_only):
    assert parse(json.dumps(value, ensure_ascii=ascii_only).encode("utf-8")) == value


# fmt: off
REFUSED = {
    "cut short": (b'{"a": [1', "no readable JSON"),
    "two values": (b"1 2", "no readable JSON"),
    "a mark in front": (b"\xef\xbb\xbf{}", "no readable JSON"),
    "no UTF-8": (b'{"a": "\xff"}', "no readable JSON"),
    "half a character in UTF-8": (b'"\xed\xa0\x80"', "no readable JSON"),
    "half a character": (rb'{"a": "\ud800"}', "half a character"),
    "half a character in a name": (rb'{"\udc00": 1}', "half a character"),
    "NUL": (rb'["a\u0000b"]', "NUL in"),
    "NUL as it is": (b'["a\x00b"]', "no readable JSON"),
    "NaN": (b"[NaN]", "number nan|number NaN"),
    "infinite": (b"[1e400]", "number 1e400; expected one that 64 bits hold"),
    "infinite in digits": (b"[" + b"9" * 400 + b".0]", "expected one that 64 bits hold"),
    "5,000 digits": (b"[" + b"9" * 5000 + b"]", "expected one that 64 bits hold"),
    "a bit too large": (b"[9223372036854775808]", "expected one that 64 bits hold"),
    "deep": (b"[" * 100_000 + b"]" * 100_000, "nested 100000 deep; expected at most 64"),
    "deep in pairs": (b'{"a":' * 70 + b"1" + b"}" * 70, "nested 70 deep"),
    "a name twice": (b'{"a": 1, "b": 2, "a": 3}', "'a' twice in one object"),
}
# fmt: on


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_beyond_the_limits_is_one_error(name):
    data, words = REFUSED[name]
    with pytest.raises(ResultsError, match=words) as caught:
        parse(data, "x.json")
    assert str(caught.value).startswith("x.json: got ") and len(str(caught.value)) < 400


def test_brackets_in_text_do_not_nest():
    value = {"a": "[" * 1000, 'b"[': ['\\"[[', "{" * 200], "c": [[]] * 200}
    assert parse(json.dumps(value).encode()) == value
    assert parse(b"[" * MOST_DEEP + b"]" * MOST_DEEP) is not None


def test_a_state_of_training_may_hold_odd_numbers():
    assert parse(b"[Infinity]", odd_numbers=True) == [float("inf")]
    with pytest.raises(ResultsError):
        parse(b"[1e999]", odd_numbers=True)


def test_only_regular_files_of_limited_size_are_read(tmp_path):
    (tmp_path / "file").write_bytes(b"{}")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as there:
        there.bind(str(tmp_path / "socket"))
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(20 * 2**30)
    # fmt: off
    for name, words in {
        "none": "no such file", "link": "a link", "loop": "a link", "pipe": "no regular file", "socket": "regular file",
        "": "no regular file", "sparse": "21474836480 bytes; expected at most", "a\0b": "null",
    }.items():
        with pytest.raises(ResultsError, match=words):
            read_bytes(f"{tmp_path}/{name}" if name else tmp_path)
    # fmt: on
    assert read_bytes(tmp_path / "link", links=True) == read_bytes(tmp_path / "file") == b"{}"
    with pytest.raises(PlanError, match="no such file; expected a regular file; plan again"):
        read_bytes(tmp_path / "none", error=PlanError, do="plan again")
    assert read_json(Path(tmp_path / "file"), declare(dict)) == {}


KIND = declare(
    {
        "name": text("[a-z]+", "small letters"),
        "at": [number(0, 1)],
        "count?": (int, None),
        "pair?": [int, str],
        "some?": at_least(1, bool),
        "parts?": {str: {"x": float}},
        "of?": chosen("type", {"a": {"n": int}}),
        "one?": word("b", "c"),
        "exact?": {"y": object, "*": NO_OTHER},
        "numbers?": {"z": str, "*": float},
    }
)
GOOD = {"name": "a", "at": [0, 0.5, 1]}
# fmt: off
WRONG = [
    (1, "got 1; expected an object"), ({}, "got no name; expected name, at"),
    ({**GOOD, "name": "A"}, "name: 'A'; expected small letters"),
    ({**GOOD, "at": [0, 2]}, r"at\[1\]: 2; expected a number from 0 to 1"), ({**GOOD, "at": [True]}, r"at\[0\]: True"),
    ({**GOOD, "at": {}}, "at: {}; expected a list"),
    ({**GOOD, "count": 1.5}, "count: 1.5; expected a whole number or null"),
    ({**GOOD, "pair": [1]}, "pair: 1 values; expected a list of 2"), ({**GOOD, "pair": ["a", 1]}, r"pair\[0\]: 'a'"),
    ({**GOOD, "some": []}, "some: 0 values"),
    ({**GOOD, "parts": {"p": {"x": "1"}}}, "parts.p.x: '1'; expected a number"),
    ({**GOOD, "of": {"type": "a"}}, "of: no n"), ({**GOOD, "one": "d"}, "one: 'd'; expected 'b' or 'c'"),
    ({**GOOD, "exact": {"y": 1, "w": 2}}, "exact.w: 2; expected no field of this name"),
    ({**GOOD, "numbers": {"z": "", "v": ""}}, "numbers.v: ''; expected a number"),
]
RIGHT = [
    GOOD, {**GOOD, "more": [None]}, {**GOOD, "count": None, "pair": [1, "a"], "some": [True], "parts": {"p": {"x": 1}}},
    {**GOOD, "of": {"type": "b"}, "one": "c", "exact": {"y": None}, "numbers": {"z": "", "v": 1}},
]
# fmt: on


@pytest.mark.parametrize("value, words", WRONG)
def test_what_is_not_as_declared_is_told_with_its_place(value, words):
    with pytest.raises(ResultsError, match=words):
        validate(value, KIND, "x.json")


@pytest.mark.parametrize("value", RIGHT)
def test_what_is_as_declared_passes(value):
    validate(value, KIND, "x.json")


def test_partial_asks_for_nothing_but_keeps_the_kinds():
    kind = declare(partial({"a": {"b": int, "c?": str}, "d": [{"e": int}], "m": {str: {"f": int}}, "g": (dict, None)}))
    for value in ({}, {"a": {}}, {"d": [{}]}, {"m": {"x": {}}}, {"g": None}):
        validate(value, kind, "x")
    for value in ({"a": {"b": ""}}, {"d": [{"e": ""}]}, {"m": {"x": {"f": ""}}}, {"a": {"c": 1}}):
        with pytest.raises(ResultsError):
            validate(value, kind, "x")


@given(st.dictionaries(st.text(min_size=1), st.one_of(st.integers(), st.text()), min_size=1), st.data())
def test_a_hash_holds_for_its_fields_in_any_order_and_for_no_others(fields, data):
    fields.pop("hash", None)
    written = reading.with_hash(fields)
    shuffled = dict(data.draw(st.permutations(list(written.items()))))
    reading.check_hash(shuffled, "plan.json", error=PlanError, do="plan again")
    for name in fields:
        with pytest.raises(PlanError, match="the file was changed"):
            reading.check_hash({**written, name: "other than drawn, \x00"}, "plan.json", error=PlanError, do="again")
