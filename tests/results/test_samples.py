"""Samples on disk: what is written is what is read, and ``kill -9`` at any moment loses at most one block."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from deep500.errors import ResultsError
from deep500.results.samples import JOURNAL, SampleStore
from tests.conftest import HANG

BLOCK = 100
KILLER = textwrap.dedent("""
    import json, os, random, signal, sys, time
    from pathlib import Path
    from deep500.results.samples import SampleStore

    folder, random_numbers, lost = Path(sys.argv[1]), random.Random(0), []
    for attempt in range(50):
        store = SampleStore(folder)
        store.trim()
        before = store.load("step", 0).size
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            for block in range(1000):
                start = before + 100 * block
                store.append("step", 0, list(range(start, start + 100)), [start] * 100)
                os.write(writer, b"x")
            os._exit(1)
        os.close(writer)
        reported = sum(len(os.read(reader, 1)) for _ in range(random_numbers.randrange(4)))
        time.sleep(random_numbers.uniform(0, 0.01))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        while piece := os.read(reader, 65536):
            reported += len(piece)
        os.close(reader)
        SampleStore(folder).trim()
        kept = (SampleStore(folder).load("step", 0).size - before) // 100
        lost.append([reported, kept])
    print(json.dumps(lost))
""")


def test_what_is_written_is_what_is_read(tmp_path):
    store = SampleStore(tmp_path)
    store.append("step", 0, [1, 2], [10, 20])
    store.append("epoch", 1, [5], [50])
    store.append("step", 0, [3], [30])
    assert SampleStore(tmp_path).names() == [("step", 0), ("epoch", 1)]
    assert SampleStore(tmp_path).load("step", 0).tolist() == [(1, 10), (2, 20), (3, 30)]
    assert SampleStore(tmp_path).durations("epoch", 1).tolist() == [5e-8]


def test_fifty_kills_lose_at_most_the_block_being_written(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLER, str(tmp_path)], check=False, capture_output=True, text=True, timeout=HANG
    )
    assert done.returncode == 0, done.stderr
    lost = json.loads(done.stdout)
    assert len(lost) == 50 and all(reported <= kept <= reported + 1 for reported, kept in lost)
    assert sum(reported for reported, _ in lost) > 20, "nothing was written before the kills"
    whole = SampleStore(tmp_path).load("step", 0)
    assert np.array_equal(whole["start_ns"], np.arange(whole.size)), "samples are missing or doubled"


def test_a_block_cut_short_does_not_count_and_is_overwritten(tmp_path):
    store = SampleStore(tmp_path)
    store.append("step", 0, [1], [10])
    with (tmp_path / "samples" / "step.0.i64").open("ab") as file:
        file.write(b"half a sample")
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(b'{"series": "st')
    store = SampleStore(tmp_path)
    store.trim()
    store.append("step", 0, [2], [20])
    assert store.load("step", 0).tolist() == [(1, 10), (2, 20)]


def test_altered_and_missing_samples_are_noticed(tmp_path):
    store = SampleStore(tmp_path)
    store.append("step", 0, [1, 2], [10, 20])
    file = tmp_path / "samples" / "step.0.i64"
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    with pytest.raises(ResultsError, match="samples 0 to 2"):
        store.load("step", 0)
    file.unlink()
    with pytest.raises(ResultsError, match="samples 0 to 2"):
        store.load("step", 0)


@pytest.mark.parametrize(("series", "durations"), [("../step", [1]), ("<script>", [1]), ("", [1]), ("step", [-1])])
def test_hostile_names_and_negative_times_are_refused(tmp_path, series, durations):
    with pytest.raises(ResultsError, match="expected a name of letters"):
        SampleStore(tmp_path).append(series, 0, [0], durations)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "samples").write_text("in the way")
    with pytest.raises(ResultsError, match="samples"):
        SampleStore(tmp_path).append("step", 0, [0], [1])
