"""Damaged ONNX files in every test run, ten thousand every night: no crash, hang or error that is not ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.model_files import corpus, damaged

ROOT = Path(__file__).resolve().parents[2]


def fuzz(*words: str, timeout: float) -> None:
    command = [sys.executable, "-m", "tests.fuzz.models", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=timeout, check=False)
    assert done.returncode == 0 and "faults: none" in done.stdout, done.stdout[-4000:] + done.stderr[-2000:]


def test_three_hundred_damaged_files() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    fuzz("--count", "300", "--seed", "2", "--backends", "load,reference,pytorch,onnxruntime", timeout=3600)


@pytest.mark.long
def test_ten_thousand_damaged_files() -> None:
    fuzz("--count", "10000", "--seed", "500", timeout=6 * 3600)


def test_a_seed_and_a_number_make_the_same_file() -> None:
    originals = corpus()
    assert all(damaged(originals, 3, number) == damaged(originals, 3, number) for number in range(20))
    assert len({damaged(originals, 3, number)[1] for number in range(200)}) > 150
