"""A race in its folder: gone on with after a stop, the same in any number of pieces, and refused where it changed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from deep500.errors import RecipeError, ResultsError
from deep500.race.running import DEFINITION, Race, RaceOptions
from tests.race.common import Curves, race

OPTIONS = RaceOptions("smoke", ("adam", "nesterov"), studies=2, trials=2)


class Ending(Curves):
    """Stops the race after some trials, as Ctrl-C does."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    def seconds(self, request) -> float:
        if self.calls > self.after:
            raise OSError("killed")
        return 1.0 + request.index


def outcomes(one: Race) -> dict:
    return {entry: (trial.seconds, trial.reason) for entry, trial in one.done.items()}


def named(request) -> None:
    request.workload["name"] = request.workload["recipe"][0]


class Known(Curves):
    """Times of workloads of a suite, whose names are empty."""

    def __call__(self, request, limits, stopped):
        named(request)
        request = type(request)(**{**vars(request), "submission": request.submission[0]})
        return super().__call__(request, limits, stopped)


@pytest.mark.backend("pytorch")
def test_a_stopped_race_goes_on_and_loses_nothing(tmp_path) -> None:
    begun = Race.begin(OPTIONS, tmp_path)
    curves, lines = Known(), []

    def stop(line: str) -> None:
        lines.append(line)
        if len(lines) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"deep500 race --resume "):
        begun.run(stop, curves)
    again = Race.reopen(begun.path)
    assert len(again.done) >= 5 and outcomes(again) == outcomes(begun)
    again.run(lambda line: None, curves)
    assert curves.calls == len(again.entries) == 16, "no trial ran twice"
    whole = Race.begin(OPTIONS, tmp_path)
    whole.run(lambda line: None, Known())
    assert outcomes(whole) == outcomes(again) == outcomes(Race.reopen(again.path))


@pytest.mark.backend("pytorch")
def test_another_race_is_not_gone_on_with(tmp_path, monkeypatch) -> None:
    path = Race.begin(OPTIONS, tmp_path).path
    file = path / DEFINITION
    definition = json.loads(file.read_text())
    for change, says in (
        ({"sha256": "0" * 64}, "other than the race began with"),
        ({"options": {"suite": "smoke"}}, "got other options"),
        ({"schema": "deep500-race-0"}, "got schema"),
        ({"options": {**definition["options"], "colour": "red"}}, "got other options"),
    ):
        file.write_text(json.dumps({**definition, **change}))
        with pytest.raises(ResultsError, match=says) as error:
            Race.reopen(path)
        assert "\n" not in str(error.value)
    with pytest.raises(ResultsError, match="no such file"):
        Race.reopen(tmp_path / "nowhere")


def test_a_damaged_trial_is_refused(tmp_path, monkeypatch) -> None:
    one = race(tmp_path)
    one.run(lambda line: None, Curves())
    monkeypatch.setattr("deep500.race.running._checked", lambda options: (one.workloads, one.submissions))
    (tmp_path / DEFINITION).write_text(json.dumps(one._facts()))
    assert outcomes(Race.reopen(tmp_path)) == outcomes(one)
    file = next((tmp_path / "trials").iterdir())
    file.write_text(file.read_text().replace('"spent": ', '"spent": -'))
    with pytest.raises(ResultsError, match="spent"):
        Race.reopen(tmp_path)
    file.unlink()
    assert len(Race.reopen(tmp_path).done) == len(one.done) - 1


def test_a_full_disk_is_an_error_of_one_line(tmp_path, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    one = race(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResultsError, match=r"No space left on device.*expected a writable folder") as error:
        one.run(lambda line: None, Curves())
    assert "\n" not in str(error.value) and not list(Path(tmp_path / "trials").iterdir())


def test_several_at_a_time_give_the_same(tmp_path) -> None:
    alone, together = race(tmp_path / "1"), race(tmp_path / "2", jobs=3)
    for one in (alone, together):
        one.run(lambda line: None, Curves())
    assert together.request(together.entries[0]).cpu and not alone.request(alone.entries[0]).cpu
    assert alone.done.keys() == together.done.keys()


def test_seeds_and_points_are_shared(tmp_path) -> None:
    one = race(tmp_path)
    requests = [one.request(entry) for entry in one.entries]
    assert {request.index for request in requests} == set(range(12)), "every study tries settings of its own"
    by_pair: dict[tuple, set] = {}
    for entry, request in zip(one.entries, requests, strict=True):
        by_pair.setdefault((entry.study, entry.trial), set()).add((request.seed, request.index, request.point_seed))
    assert all(len(values) == 1 for values in by_pair.values()) and len(set.union(*by_pair.values())) == 12


@pytest.mark.parametrize(
    ("options", "says"),
    [(dict(studies=0), "--studies 0"), (dict(jobs=0), "--jobs 0"), (dict(memory=0.0), "--memory 0")],
)
def test_options_that_mean_nothing(options, says) -> None:
    with pytest.raises(RecipeError, match=says):
        RaceOptions("smoke", ("adam", "nesterov"), **options)
