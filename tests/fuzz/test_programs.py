"""Generated C++ operators: some by day, thousands by night; and that faults of theirs would be seen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.conftest import HANG
from tests.fuzz.program_blocks import KINDS
from tests.fuzz.program_judge import Judge
from tests.fuzz.program_source import Form, Program, operator, program
from tests.fuzz.programs import Bench, Outcome, run, table
from tests.operators.enzyme_units import needs_engine

ROOT = Path(__file__).resolve().parents[2]


def fuzz(tmp_path: Path, *words: str) -> None:
    command = [sys.executable, "-m", "tests.fuzz.programs", "--records", str(tmp_path / "records.jsonl"), *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=HANG, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "| float64 |" in done.stdout or "| unchecked |" in done.stdout, done.stdout


@pytest.mark.slow
@needs_engine
def test_some_generated_programs(tmp_path: Path) -> None:
    fuzz(tmp_path, "--count", "3", "--from", "12", "--modes", "float64")


@pytest.mark.long
@needs_engine
def test_twenty_generated_programs(tmp_path: Path) -> None:
    fuzz(tmp_path, "--count", "20", "--seed", "1")


@pytest.mark.long
@needs_engine
def test_thousands_of_generated_programs(tmp_path: Path) -> None:
    fuzz(tmp_path, "--count", "3000", "--seed", "2", "--seconds", "20000")


def test_a_number_is_always_the_same_program_and_every_kind_has_its_turn() -> None:
    programs = [program(0, number) for number in range(600)]
    assert operator("own", [program(0, 7)]) == operator("own", [programs[7]])
    assert {kind for p in programs for kind, _ in p.blocks} == set(KINDS) and len(KINDS) >= 28
    assert all(2 <= len(p.blocks) <= 3 for p in programs)
    assert all(mark not in p.text() for p in programs for mark in ("@", "EACH"))
    assert {p.form.openmp for p in programs if any(KINDS[kind].openmp for kind, _ in p.blocks)} == {True}


class Square:
    """An operator with two rows, y = x x; the gradient of row 1 is off by a factor from so many elements on."""

    signature: ClassVar = {"jvp": True, "hvp": True}

    def __init__(self, factor: float = 1.0, size: int = 130) -> None:
        self.factor, self.size, self.calls = factor, size, 0

    def forward(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        return [inputs[0] ** 2]

    def backward(self, dy: list[np.ndarray], inputs: list[np.ndarray], outputs: list[np.ndarray]) -> list[np.ndarray]:
        off = np.array([[1.0], [self.factor if inputs[0].shape[1] >= self.size else 1.0]])
        return [2 * inputs[0] * dy[0] * off]

    def jvp(self, inputs: list[np.ndarray], tangents: list[np.ndarray]) -> Any:
        return self.forward(inputs), [2 * inputs[0] * tangents[0]]

    def hvp(self, dy: list[np.ndarray], inputs: list[np.ndarray], tangents: list[np.ndarray]) -> list[np.ndarray]:
        return [2 * dy[0] * tangents[0]]


class SquareTape:
    """In place of the tape."""

    def both(self, program: Program, floats: list[np.ndarray], k: np.ndarray, dy: np.ndarray) -> Any:
        return floats[0] ** 2, [2 * floats[0] * dy]


@pytest.mark.parametrize(
    ("op", "said"),
    [
        (Square(), ""),
        (Square(1 + 1e-7), "the gradient of input 0 at n = 130"),
        (Square(-1, 33), "the gradient of input 0 at n = 33"),
        (Square(float("nan"), 1), "the gradient of input 0 at n = 5"),
        (type("Drifting", (Square,), {"forward": lambda self, x: [x[0] ** 2 + 1e-4]})(), "forward at n = 5"),
        (type("Flat", (Square,), {"hvp": lambda self, dy, x, v: [0 * v[0]]})(), "the Hessian-vector product"),
        (type("Still", (Square,), {"jvp": lambda self, x, v: (0, [0 * v[0]])})(), "forward mode at n = 5"),
    ],
    ids=["right", "by 1e-7", "sign", "NaN", "forward", "hvp", "jvp"],
)
def test_a_wrong_number_is_seen(op: Square, said: str) -> None:
    programs = [Program(name, Form(), (("switch", "0"),)) for name in ("p0", "p1")]
    judge = Judge(op, SquareTape(), programs, "float64")  # type: ignore[arg-type]
    judge.run(0)
    assert judge.judged["p0"] == 10 or said
    assert judge.said.get("p1", "").startswith(said) and bool(judge.said) == bool(said)


class PlantedBench(Bench):
    """In place of builds: wrong with every program that sorts beside a switch."""

    def apart(self, p: Program, mode: str) -> Outcome:
        bad = {"sorts", "switch"} <= {kind for kind, _ in p.blocks}
        return {"how": "silent" if bad else "right", "text": "off", "seconds": 1.0}


def test_a_program_that_is_refused_is_not_built_in_another_way_and_no_group_is_begun_too_late() -> None:
    class Refusing(Bench):
        def apart(self, p: Program, mode: str) -> Outcome:
            refused = mode == "unchecked" and p.name == "p1"
            return {"how": "refused" if refused else "right", "text": "got it", "seconds": 1.0}

    single = [next(run(0, [number], Refusing(Path(), 0), print)) for number in (0, 1)]
    assert [record["how"] for record in single] == ["right", "refused"]
    assert [len(list(run(0, [number], Refusing(Path(), 0), print))) for number in (0, 1)] == [2, 1]
    assert not list(run(0, range(9), Refusing(Path(), 0), print, end=0.0))


def test_what_is_wrong_is_reduced_to_its_blocks_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [("sorts", "switch", "casts"), ("vectors", "casts"), ("texts", "switch"), ("sorts", "vectors")]
    made = [Program(f"p{n}", Form(), tuple((kind, "0") for kind in some)) for n, some in enumerate(kinds)]
    monkeypatch.setattr("tests.fuzz.programs.program", lambda seed, number: made[number])
    said: list[str] = []
    records = list(run(0, range(4), PlantedBench(Path(), 0), said.append))
    assert [record["how"] for record in records if record["mode"] == "float64"] == ["silent", "right", "right", "right"]
    assert records[0]["blamed"] == ["sorts", "switch"] and "silent: off" in said[0] and "casts" not in said[0]
    lines = table(records).splitlines()
    assert "| float64 | 4 | 3 | 0 | 1 | 0 | 1.0 |" in lines and "| sorts | 4 | 2 | 0 | 2 | 0 |" in lines
