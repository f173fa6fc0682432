"""What a terminal shows of long waits. Terminals are real ones, pairs of the operating system."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import sys
import termios
import threading
from collections.abc import Callable
from pathlib import Path
from time import sleep

import numpy as np
import pytest

import deep500 as d5
from deep500 import cli, progress
from deep500.networks import add_loss, create
from deep500.recipe.console import Console
from deep500.recipe.options import parse_options
from tests.conftest import load_backend

Seen = Callable[[Callable[[], object]], str]

BATCH = {"input": np.ones((1, 3, 32, 32), "float32"), "label": np.zeros(1, "int64")}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """What a terminal shows on standard error while something is done, which is taken for long at once."""
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr(progress, "BEAT", 0.005)

    def watch(do: Callable[[], object]) -> str:
        outer, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("4H", 40, 120, 0, 0))  # new ones have no size
        read: list[bytes] = []

        def follow() -> None:
            try:
                while data := os.read(outer, 1 << 16):
                    read.append(data)
            except OSError:  # nobody writes any longer
                pass

        following = threading.Thread(target=follow)
        following.start()
        with os.fdopen(inner, "w") as screen, monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", screen)
            do()
        following.join()
        os.close(outer)
        return b"".join(read).decode()

    return watch


def test_planning_of_recomputation_says_what_and_how_far(seen: Seen) -> None:
    executor = load_backend("reference").from_model(add_loss(create("resnet", depth=8)))
    shown = seen(lambda: d5.plan_checkpointing(executor, 0.9, BATCH))
    assert "planning recomputation, a step of plan 1 of at most 5 [00:0" in shown
    assert shown.rstrip("\r").endswith(" "), "the line is still there when planning has ended"


def test_a_run_shows_what_it_waits_for(seen: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["run", "digits_lenet", "--backend", "reference", "--dry-run", "checkpointing=0.97"]
    shown = seen(lambda: cli.main(words))
    for what in ("planning recomputation", "writing results and report"):
        assert what in shown


@pytest.mark.parametrize("option", ["--quiet", "--json"])
def test_a_quiet_run_shows_no_wait(seen: Seen, option: str) -> None:
    def wait() -> None:
        with Console(parse_options([option])).shown(), progress.progress("planning"):
            sleep(0.05)

    assert seen(wait) == ""


def test_nothing_is_shown_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.progress("waiting"):
        assert list(progress.numbered("step", range(2))) == [0, 1]
    assert capsys.readouterr().err == ""
