"""Regions in other people's loops: nesting, shares that add up, threads, memory."""

from __future__ import annotations

import threading
import time
import tracemalloc

import pytest

from deep500.errors import InputError
from deep500.measure import Recorder, Recording, measured, region


def test_shares_of_nested_regions_add_up_to_the_whole():
    with Recording() as recording:
        for _ in range(3):
            with region("step"):
                with region("forward"):
                    time.sleep(0.01)
                with region("backward"):
                    time.sleep(0.005)
            time.sleep(0.002)
    shares = recording.breakdown()
    assert sum(shares.values()) == pytest.approx(recording.total)
    assert recording["forward"].count == recording["step"].count == 3
    assert shares["forward"] >= 0.03 and shares["backward"] >= 0.015 and shares["other"] >= 0.006
    assert recording["step"].seconds().sum() >= shares["forward"] + shares["backward"]


def test_nothing_is_recorded_unless_a_recording_is_open():
    with region("alone"):
        pass
    with Recording() as recording:
        pass
    assert recording.names() == []
    with pytest.raises(InputError, match="was it entered"):
        recording["alone"]


def test_a_region_is_closed_by_an_exception():
    with Recording() as recording:
        with pytest.raises(ZeroDivisionError), region("outer"), region("inner"):
            _ = 1 / 0
        with region("after"):
            pass
    assert [recording[name].count for name in ("outer", "inner", "after")] == [1, 1, 1]


def test_a_recording_left_inside_a_region_starts_afresh():
    outer = region("outer")
    with Recording() as first:
        outer.__enter__()
    outer.__exit__(None, None, None)
    with Recording() as second, region("inner"):
        pass
    assert first.names() == [] and second.names() == ["inner"]


def test_other_threads_do_not_disturb():
    def work():
        with region("loader"):
            pass

    with Recording() as recording, region("step"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert recording.names() == ["step"]


def test_decorated_functions_and_waiting_for_the_device():
    waited = []

    @measured(name="named")
    def double(x):
        return 2 * x

    with Recording() as recording:
        assert double(2) == 4
        with region("device", synchronize=lambda: waited.append(1)):
            pass
    assert recording["named"].count == 1 and waited == [1]


def test_one_recording_at_a_time():
    with Recording(), pytest.raises(InputError, match="close the first"), Recording():
        pass


def test_samples_beyond_the_capacity_are_counted():
    recorder = Recorder("x", capacity=2)
    for _ in range(5):
        recorder.stop(recorder.now())
    assert (recorder.count, recorder.dropped, recorder.seconds().size) == (2, 3, 2)


def test_nothing_is_allocated_per_sample():
    recorder = Recorder("x", capacity=200_000)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(50_000):
            recorder.stop(recorder.now())
        assert tracemalloc.get_traced_memory()[0] - before < 1000
    finally:
        tracemalloc.stop()
