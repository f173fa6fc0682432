"""Measured prices on disk: whose they are, what is refused, and many processes at once."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from deep500.errors import CacheError
from deep500.transformations.substitutions.cost.database import (
    APPLICATION,
    Database,
    Place,
    PriceRow,
    backend_version,
    default_path,
    machine_hash,
    now,
)
from deep500.transformations.substitutions.graph.store import Store, StoredGraph, StoreValue
from deep500.transformations.substitutions.graph.units import Units
from tests.conftest import HANG

HERE = Place("reference", "numpy 2", "this", "cpu", 1)
ROW = PriceRow(2e-6, 1e-8, 30, "2026-01-01T00:00:00+00:00")
CONV = {"kernel": (3, 3), "strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "groups": 1}

Make = Callable[[Store], tuple[StoreValue, ...]]


def _conv(
    shape: tuple[int, ...] = (1, 4, 8, 8), dtype: str = "float32", constant: bool = True, **other: object
) -> Make:
    settings = {**CONV, **other}

    def make(store: Store) -> tuple[StoreValue, ...]:
        kernel = (8, shape[1] // settings["groups"], *settings["kernel"])
        w = store.constant(np.ones(kernel, dtype)) if constant else store.input("w", kernel, dtype)
        return store.add("conv", store.input("x", shape, dtype), w, **settings)

    return make


def _sum(same: bool) -> Make:
    def make(store: Store) -> tuple[StoreValue, ...]:
        x, y = (store.input(name, (3, 4), "float32") for name in "xy")
        return store.add("add", x, x if same else y)

    return make


def _cut(*cuts: int) -> Make:
    def make(store: Store) -> tuple[StoreValue, ...]:
        rest, made = store.input("x", (12, 4), "float32"), []
        for cut in cuts:
            part, rest = store.add("split", rest, axis=0, cut=cut)
            made.append(part)
        return (*made, rest)

    return make


def _transposed(turned: bool) -> Make:
    def make(store: Store) -> tuple[StoreValue, ...]:
        x, w = (store.input(name, (4, 4), "float32") for name in "xw")
        return store.add("matmul", x, store.add("transpose", w, perm=(1, 0))[0] if turned else w)

    return make


DIFFERENT: dict[str, Make] = {
    "conv": _conv(),
    "conv of a larger image": _conv((1, 4, 9, 9)),
    "conv of more channels": _conv((1, 8, 8, 8)),
    "conv of a batch": _conv((2, 4, 8, 8)),
    "conv in float64": _conv(dtype="float64"),
    "conv with a kernel that changes": _conv(constant=False),
    "conv in strides": _conv(strides=(2, 2)),
    "conv without margin": _conv(pads=(0, 0, 0, 0)),
    "conv with holes": _conv(dilations=(2, 2), pads=(2, 2, 2, 2)),
    "conv in groups": _conv(groups=2),
    "conv 1x1": _conv(kernel=(1, 1), pads=(0, 0, 0, 0)),
    "sum of two": _sum(False),
    "sum of one and itself": _sum(True),
    "split in the middle": _cut(6),
    "split elsewhere": _cut(5),
    "split in three": _cut(5, 3),
    "product": _transposed(False),
    "product with a transpose": _transposed(True),
}


def _key(make: Make) -> str:
    store = Store()
    graph = StoredGraph(store, make(store))
    (unit,) = Units(graph)
    return repr(unit.key(graph))


def test_keys_differ_where_times_may() -> None:
    keys = {name: _key(make) for name, make in DIFFERENT.items()}
    assert len(set(keys.values())) == len(keys)
    assert {name: _key(make) for name, make in DIFFERENT.items()} == keys, "the same in another store"


def test_a_key_does_not_depend_on_names_values_or_place() -> None:
    store = Store()
    first, second = (store.input(name, (3, 4), "float32") for name in ("some", "other"))
    w, v = (store.constant(np.full((4, 5), value, "float32")) for value in (1, 2))
    graph = StoredGraph(store, (*store.add("matmul", first, w), *store.add("matmul", second, v)))
    assert len({repr(unit.key(graph)) for unit in Units(graph)}) == 1


@pytest.mark.parametrize("part", Place._fields)
def test_prices_hold_in_their_place_only(tmp_path: Path, part: str) -> None:
    database = Database(tmp_path / "costs.sqlite")
    database.add(HERE, "relu", ROW)
    elsewhere = HERE._replace(**{part: 2 if part == "threads" else "other"})
    assert database.load(elsewhere) == {}
    other = ROW._replace(seconds=5e-6)
    assert database.add(elsewhere, "relu", other) == other
    again = Database(tmp_path / "costs.sqlite")
    assert (again.load(HERE), again.load(elsewhere)) == ({"relu": ROW}, {"relu": other})


def test_the_first_price_stays(tmp_path: Path) -> None:
    database = Database(tmp_path / "costs.sqlite")
    assert database.add(HERE, "relu", ROW) == ROW
    assert database.add(HERE, "relu", ROW._replace(seconds=1.0)) == ROW
    assert database.load(HERE) == {"relu": ROW}


def test_the_users_database_is_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEP500_CACHE", str(tmp_path / "new" / "folder"))
    Database().add(HERE, "relu", ROW)
    assert default_path() == tmp_path / "new" / "folder" / "substitution_costs.sqlite"
    assert default_path().is_file() and Database().load(HERE) == {"relu": ROW}


def test_memory_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DEEP500_CACHE", str(tmp_path))
    database = Database(":memory:")
    database.add(HERE, "relu", ROW)
    assert database.load(HERE) == {"relu": ROW} and Database(":memory:").load(HERE) == {}
    assert not list(tmp_path.iterdir())


# -- bad files --------------------------------------------------------------------------------------------------------
def _text(path: Path) -> None:
    path.write_text("relu 2e-6\n" * 500)


def _foreign(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()


def _newer(path: Path) -> None:
    Database(path).add(HERE, "relu", ROW)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 7")
    connection.close()


def _damaged(path: Path) -> None:
    database = Database(path)
    for n in range(400):
        database.add(HERE, f"relu {n}", ROW)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(bytes(content))


def _folder(path: Path) -> None:
    path.mkdir()


def _link(path: Path) -> None:
    (path.parent / "elsewhere").touch()
    path.symlink_to("elsewhere")


BAD = {
    "a link": (_link, "got a link"),
    "text": (_text, "file is not a database"),
    "another program's": (_foreign, f"got application id 0 and 1 tables; expected {APPLICATION}"),
    "a newer version's": (_newer, "got layout 7; expected layout 1"),
    "damaged": (_damaged, "malformed"),
    "a folder": (_folder, "no regular file"),
}


@pytest.mark.parametrize("name", BAD)
def test_other_files_are_refused_and_stay_as_they_are(tmp_path: Path, name: str) -> None:
    path = tmp_path / "costs.sqlite"
    make, words = BAD[name]
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(CacheError, match=words) as caught:
        Database(path).load(HERE)
    assert str(path) in str(caught.value) and "delete the file" in str(caught.value)
    assert before == (path.read_bytes() if path.is_file() else None)


def test_a_place_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="expected a folder that can be written"):
        Database(tmp_path / "file" / "costs.sqlite")


def test_a_database_that_is_held_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deep500.transformations.substitutions.cost.database.WAIT", 0.0)
    database = Database(tmp_path / "costs.sqlite")
    holder = sqlite3.connect(tmp_path / "costs.sqlite", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(CacheError, match="database is locked"):
        database.add(HERE, "relu", ROW)
    holder.execute("ROLLBACK")
    holder.close()
    assert database.add(HERE, "relu", ROW) == ROW


# -- many processes ---------------------------------------------------------------------------------------------------
WRITER = """
import sys
from deep500.transformations.substitutions.cost.database import Database, Place, PriceRow
path, number = sys.argv[1], int(sys.argv[2])
sys.stdin.readline()  # all begin together
database, place = Database(path), Place("reference", "numpy 2", "this", "cpu", 1)
for n in range(40):
    shared = database.add(place, f"shared {n}", PriceRow(number + 1.0, 0.0, 1, "now"))
    database.add(place, f"own {number} {n}", PriceRow(number + 1.0, 0.0, 1, "now"))
    print(shared.seconds)
"""


def test_processes_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "costs.sqlite"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(n)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(4)
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    done = [writer.communicate(timeout=HANG) for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 4, done
    rows = Database(path).load(HERE)
    assert set(rows) == {f"shared {n}" for n in range(40)} | {f"own {k} {n}" for k in range(4) for n in range(40)}
    stored = [rows[f"shared {n}"].seconds for n in range(40)]
    for text, _ in done:
        assert [float(writer) for writer in text.split()] == stored, "all processes go on with what was stored first"


# -- where ------------------------------------------------------------------------------------------------------------
def test_machines_differ_by_processor_and_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    from deep500.transformations.substitutions.cost import database

    def hashed(**changes: object) -> str:
        known = {"cpu": "A", "usable_cores": 2, "machine": "x86_64", "git": {"commit": "1"}}
        monkeypatch.setattr(database, "describe", lambda: {**known, **changes})
        machine_hash.cache_clear()
        return machine_hash()

    base = hashed()
    assert hashed(git={"commit": "2"}) == base, "a commit changes no machine"
    assert len({base, hashed(cpu="B"), hashed(usable_cores=4), hashed(machine="aarch64")}) == 4
    monkeypatch.setattr(database, "hardware", lambda: {"model_number": "other"})
    assert hashed() != base
    machine_hash.cache_clear()


def test_a_version_names_framework_and_package() -> None:
    assert backend_version("reference").split(",")[0] == f"numpy {np.__version__}"
    assert " deep500 " in backend_version("reference")
    assert now().endswith("+00:00") and len(now()) == len(ROW.date)
