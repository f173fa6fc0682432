"""Processes that die, hang, take memory or say nothing are misses with their reasons."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from deep500.race import worker
from deep500.race.trial import Request
from deep500.race.worker import Limits, run_isolated

REQUEST = Request({}, [], "a", 0, 0, 0, 0, 1.0, 10)
POINT = 'print(\'{"seconds": 2.5, "step": 3, "quality": 1.0}\', flush=True)\n'
OUTCOME = 'print(\'{"outcome": {"seconds": 1.0, "steps": 2, "spent": 3.0, "best": 4, "reason": ""}}\', flush=True)\n'
CASES = {
    "fine": (POINT + OUTCOME, ""),
    "killed": (POINT + "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "crashed: SIGKILL"),
    "abort": ("import os; os.abort()", "crashed: SIGABRT"),
    "exit": ("import sys; sys.exit('out of luck')", "crashed: exit code 1 (out of luck)"),
    "hang": (
        POINT + "import time; time.sleep(60)",
        "hung: got no evaluation in 1 s; expected one: look for an endless loop",
    ),
    "memory": (
        "x = []\nwhile True: x.append(bytearray(2**22))",
        "got more than 0.25 GiB of memory; expected at most that: raise --memory if it needs more",
    ),
    "nothing": ("", "crashed: exit code 0"),
}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("case", CASES)
def test_ends(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, reason = CASES[case]
    monkeypatch.setattr(worker, "PROGRAM", ("-c", program))
    silence = 1.0 if case == "hang" else 120.0
    result = run_isolated(REQUEST, Limits(memory=2**28, silence=silence))
    assert result.outcome["reason"] == reason
    assert (result.outcome["seconds"] == 1.0) == (case == "fine")
    if POINT in program:
        assert [point["step"] for point in result.curve] == [3] or case == "hang"
        assert result.outcome["spent"] in (2.5, 3.0) or case == "hang"


def test_a_stopped_race_ends_its_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "PROGRAM", ("-c", "import time; time.sleep(60)"))
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_isolated(REQUEST, Limits(), lambda: time.monotonic() - begin > 0.3)
    assert time.monotonic() - begin < 30


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_trial_ends_with_a_race_that_is_killed(tmp_path: Path) -> None:
    """Also in the middle of an endless loop, in which it says nothing."""
    (tmp_path / "endless.py").write_text(
        "import os\nfrom deep500.race import trial\n"
        "def run_trial(request, say):\n"
        "    open('began', 'w').write(str(os.getpid()))\n"
        "    while True: pass\n"
        "trial.run_trial = run_trial\ntrial.main()\n"
    )
    (tmp_path / "killed.py").write_text(
        "from deep500.race import worker\nfrom tests.race.test_worker import REQUEST\n"
        "worker.PROGRAM = ('endless.py',)\nworker.run_isolated(REQUEST, worker.Limits())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    race = subprocess.Popen([sys.executable, "killed.py"], cwd=tmp_path, env=environment)
    try:
        wait_until(lambda: (tmp_path / "began").exists() and (tmp_path / "began").read_text() != "")
    finally:
        race.kill()
        race.wait()
    number = int((tmp_path / "began").read_text())
    wait_until(
        lambda: not Path(f"/proc/{number}").exists() or "State:\tZ" in Path(f"/proc/{number}/status").read_text()
    )


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < end, "still not"
        time.sleep(0.05)


def has_ended(number: int) -> bool:
    try:
        return "State:\tZ" in Path(f"/proc/{number}/status").read_text()
    except OSError:
        return True
