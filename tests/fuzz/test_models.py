"""A commit's piece of three hundred damaged ONNX files, ten thousand every night: no crash, hang or foreign error."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import HANG
from tests.fuzz.model_files import corpus, damaged

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def fuzz(*words: str, timeout: float) -> None:
    command = [sys.executable, "-m", "tests.fuzz.models", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=timeout, check=False)
    assert done.returncode == 0 and "faults: none" in done.stdout, done.stdout[-4000:] + done.stderr[-2000:]


def test_three_hundred_damaged_files(numbers: Callable[[int], range]) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    some = numbers(300)
    words = "--seed", "2", "--backends", "load,reference,pytorch,onnxruntime"
    fuzz("--count", str(len(some)), "--from", str(some.start), *words, timeout=HANG)


@pytest.mark.long
def test_ten_thousand_damaged_files() -> None:
    fuzz("--count", "10000", "--seed", "500", timeout=6 * 3600)


def test_a_seed_and_a_number_make_the_same_file() -> None:
    originals = corpus()
    assert all(damaged(originals, 3, number) == damaged(originals, 3, number) for number in range(20))
    assert len({damaged(originals, 3, number)[1] for number in range(200)}) > 150
