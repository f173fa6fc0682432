"""Who ended first without a word: by pipes of the launcher, and by locks of ranks that others launched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deep500.distributed.transports import held, rollcall
from deep500.distributed.transports.rollcall import SILENT, Presence, RollCall
from tests.conftest import HANG

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux keeps the order in which files are closed")


def test_the_first_to_end_without_a_word_is_named():
    for seed in range(50):
        rng = np.random.default_rng(seed)
        order, done = rng.permutation(6).tolist(), int(rng.integers(5))
        with RollCall(6) as call:
            ranks = [Presence(rank, call.folder) for rank in rng.permutation(6).tolist()]
            ranks.sort(key=lambda presence: presence._rank)
            for rank in order[:done]:
                ranks[rank].done()
            for rank in order:
                ranks[rank]._let_go()  # what the kernel does when a process ends
            assert call.verdict() == f"[rank {order[done]}] {SILENT}; all ranks end"
        assert not call.folder.exists()


@pytest.mark.parametrize("ordered", [True, False])
def test_who_has_told_and_who_is_done_are_not_named(ordered, monkeypatch):
    if not ordered:
        monkeypatch.setattr(rollcall, "_watch", lambda folder: None)
    with RollCall(3) as call:
        ranks = [Presence(rank, call.folder) for rank in range(3)]
        ranks[2].done()
        ranks[1].reported()  # it is the launcher that ends the others now
        for presence in ranks:
            presence._let_go()
        assert call.verdict() is None
    with RollCall(2) as call:
        for rank in range(2):
            Presence(rank, call.folder).done()
        assert call.verdict() is None
    with RollCall(2) as call:
        assert call.verdict() is None, "a program that uses no ranks owes no word"


def test_without_an_order_all_who_were_silent_are_named(monkeypatch):
    monkeypatch.setattr(rollcall, "_watch", lambda folder: None)
    with RollCall(3) as call:
        ranks = [Presence(rank, call.folder) for rank in range(3)]
        ranks[1].done()
        assert call.verdict() == f"[rank 0 or 2] {SILENT}; all ranks end"


def test_a_launcher_that_goes_on_after_a_failure_is_ended():
    with RollCall(2) as call:
        ranks = [Presence(rank, call.folder) for rank in range(2)]
        process = subprocess.Popen(["sleep", "3600"])
        ranks[0].reported()
        assert call.wait(process, patience=0.1) == -signal.SIGTERM
        assert call.verdict() is None
        process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
        assert call.wait(process, patience=HANG) == 3


def test_ranks_that_never_came_are_named_beside():
    with RollCall(3) as call:
        Presence(0, call.folder)._let_go()
        assert call.verdict() == f"[rank 0] {SILENT}; all ranks end (never in the world of all ranks: 1, 2)"


def test_those_who_never_came_are_missing():
    with RollCall(3) as call:
        presence = Presence(1, call.folder)
        assert presence.missing(3) == [0, 2]
        presence.done()


def test_without_a_launcher_nothing_happens(tmp_path):
    for folder in (None, tmp_path / "gone" / "for good"):
        presence = Presence(0, folder)
        presence.reported()
        presence.done()
        assert presence.silent(0.0) == presence.missing(2) == []


FORKS = """
import os, sys, time
from pathlib import Path
from deep500.distributed.transports.rollcall import Presence
presence = Presence(1, Path(sys.argv[1]))
ready, tell = os.pipe()
if os.fork() == 0:
    os.write(tell, b"x")
    time.sleep(3600)
os.read(ready, 1)  # a rank ends at any time, but hardly within the child's first instruction
os._exit(0)
"""


def test_a_forked_child_does_not_stand_in_for_its_rank():
    """It outlives its parent here, as a worker that reads data may."""
    with RollCall(2) as call:
        rank = subprocess.Popen([sys.executable, "-c", FORKS, str(call.folder)], start_new_session=True)
        try:
            rank.wait(HANG)
            first = Presence(0, call.folder)
            assert first.silent(0.0) == [1]
            first._let_go()
            assert call.verdict() == f"[rank 1] {SILENT}; all ranks end"
        finally:
            os.killpg(rank.pid, 9)


HOLDS = """
import sys
from pathlib import Path
from deep500.distributed.transports.rollcall import Presence
presence = Presence(int(sys.argv[1]), Path(sys.argv[2]))
print("ready", flush=True)
for line in sys.stdin:
    getattr(presence, line.strip())()
    print("ready", flush=True)
"""


def _holder(rank: int, folder: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(rank), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    return process


def _says(process: subprocess.Popen[bytes], word: str) -> None:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{word}\n".encode())
    process.stdin.flush()
    assert process.stdout.readline() == b"ready\n"


def test_those_who_end_without_a_word_are_seen_by_their_locks(tmp_path):
    place = tmp_path / "ranks"
    presence = Presence(0, place)
    others = [_holder(rank, place) for rank in (1, 2, 3, 4)]
    try:
        assert presence.silent(0.0) == []
        _says(others[0], "done")
        _says(others[1], "reported")
        for process in others[:3]:
            process.kill()
            process.wait(HANG)
        assert presence.silent(0.0) == [3] and presence.missing(6) == [1, 3, 5]
    finally:
        for process in others:
            process.kill()
            process.communicate()
    presence.reported()
    assert not place.exists(), "the last to tell clears up"


def test_what_tells_of_a_rank_closes_before_the_launchers_own_line(tmp_path):
    """MPICH's launcher ends all others as soon as its line to one closes; the kernel closes by rising numbers."""
    program = "import os, sys; ours = os.environ['DEEP500_HELD']; print(ours, os.readlink('/proc/self/fd/' + ours))"
    script = tmp_path / "rank.py"
    script.write_text(program)
    ranks = {"PMI_RANK": "1", "PMI_FD": "5", rollcall.ROLL_CALL: str(tmp_path)}
    inherits = 'exec 3<&0 4<&0 5<&0; exec "$@"'  # as MPICH's ranks do, among it the launcher's line
    command = ["bash", "-c", inherits, "-", sys.executable, held.__file__, str(script)]
    done = subprocess.run(
        command, check=False, env={**os.environ, **ranks}, capture_output=True, text=True, timeout=HANG
    )
    number, path = done.stdout.split()
    assert int(number) < 5 and path == str(tmp_path / "1"), done.stderr
