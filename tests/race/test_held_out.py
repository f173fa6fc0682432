"""Variants that nobody tuned for: drawn when tuning has ended, with the settings that were found, and what is said."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from deep500.errors import RecipeError
from deep500.race.held_out import does_it_hold, draw_variants, variants_of
from deep500.race.running import DEFINITION, Race
from deep500.race.scores import StudyTable
from deep500.race.standing import PAGE, standing_of, text_of, write_standing
from deep500.race.workloads import SUITES, Workload, find_suite
from deep500.recipe.describing import describe
from tests.race.common import SUBMISSIONS, WORKLOADS, Curves, race

VARIED = tuple(
    replace(workload, words=("batch_size=64",), variants=("batch_size=16,32,128", "validation_split=0.2"))
    for workload in WORKLOADS
)


@pytest.mark.parametrize("workload", [w for suite in SUITES.values() for w in suite], ids=lambda w: w.title)
@pytest.mark.backend("pytorch")
def test_every_variant_of_our_suites_is_a_recipe_that_differs(workload: Workload) -> None:
    keys = "model", "model_kwargs", "augmentation", "validation_split", "batch_size"
    shown = [json.dumps(describe({key: w.plan().values[key] for key in keys})) for w in (workload, *variants(workload))]
    assert len(variants(workload)) >= 4 and len(set(shown)) == len(shown)


def variants(workload: Workload) -> list[Workload]:
    return [variant.workload for variant in variants_of(workload)]


def test_a_draw_repeats_nothing_spreads_and_follows_from_what_runs() -> None:
    for count in range(13):
        drawn = draw_variants(VARIED, SUBMISSIONS, count, 0)
        assert drawn == draw_variants(VARIED, SUBMISSIONS, count, 0) and len({v.workload for v in drawn}) == count
        by_base = [sum(v.base == w.title for v in drawn) for w in VARIED]
        assert max(by_base) - min(by_base) <= 1
        assert all(v.word in v.workload.words and v.workload.target == 90.0 for v in drawn)
        assert all(sum(w.startswith("batch_size=") for w in v.workload.words) == 1 for v in drawn)
    draws = {tuple(draw_variants(VARIED, SUBMISSIONS, 3, seed)) for seed in range(20)}
    assert len(draws) > 10, "the seed decides"
    changed = [replace(SUBMISSIONS[0], space={"lr": lr}) for lr in np.linspace(0.01, 0.5, 20)]
    draws = {tuple(draw_variants(VARIED, [one, *SUBMISSIONS[1:]], 3, 0)) for one in changed}
    assert len(draws) > 10, "who changes a submission draws anew"


def test_settings_are_those_of_the_fastest_trial_and_seeds_are_shared(tmp_path) -> None:
    one = race(tmp_path, workloads=VARIED, held_out=4)
    seen, lines = [], []

    class Watched(Curves):
        def __call__(self, request, limits, stopped):
            seen.append((request, len(one.done)))
            return super().__call__(request, limits, stopped)

    assert one.variants == [] and len(one.entries) == len(one.tuning) == 108
    one.run(lines.append, Watched(1, {"a": 1.4}, missing=0.3))
    titles = {v.workload.title: v.base for v in one.variants}
    assert len(titles) == 4 and set(one.entries) == set(one.done)
    after = [request for request, done in seen if request.workload["name"] in titles]
    assert min(done for request, done in seen if request.workload["name"] in titles) == 108
    asked = {(r.submission, r.workload["name"], r.index // 4): r for r in after}
    seeds: dict[tuple, set] = {}
    for (submission, variant, study), request in asked.items():
        seeds.setdefault((variant, study), set()).add(request.seed)
        trials = [
            t
            for e, t in one.done.items()
            if (e.submission, e.workload, e.study) == (submission, titles[variant], study)
        ]
        assert request.index == study * 4 + min(trials, key=lambda trial: trial.seconds).trial
    assert all(len(values) == 1 for values in seeds.values())
    tuned = {(e.submission, e.workload, e.study) for e, t in one.done.items() if np.isfinite(t.seconds)}
    expected = {
        (s.name, v, study)
        for s in SUBMISSIONS
        for v, base in titles.items()
        for study in range(3)
        if (s.name, base, study) in tuned
    }
    assert set(asked) == expected and sum(line.startswith("held out: ") for line in lines) == 1


def test_a_race_that_was_stopped_draws_the_same_and_loses_nothing(tmp_path, monkeypatch) -> None:
    whole = race(tmp_path / "1", workloads=VARIED, held_out=3)
    whole.run(lambda line: None, Curves())
    stopped = race(tmp_path / "2", workloads=VARIED, held_out=3)
    (tmp_path / "2" / DEFINITION).write_text(json.dumps(stopped._facts()))
    monkeypatch.setattr("deep500.race.running._checked", lambda options: (VARIED, SUBMISSIONS))
    for after in (50, 110):

        def stop(line: str, after: int = after, stopped: Race = stopped) -> None:
            if len(stopped.done) >= after:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            stopped.run(stop, Curves())
        stopped = Race.reopen(tmp_path / "2")
        assert len(stopped.done) >= after and bool(stopped.variants) == (after > 108)
        assert ("drawn when tuning has ended" in " ".join(standing_of(stopped)["remarks"])) == (after < 108)
        write_standing(stopped)
    stopped.run(lambda line: None, Curves())
    assert stopped.variants == whole.variants and stopped.done == whole.done


def test_the_page_says_what_was_drawn_and_whether_the_winner_holds(tmp_path) -> None:
    one = race(tmp_path, workloads=VARIED, held_out=2)
    one.run(lambda line: None, Curves(3, {"a": 4.0}, missing=0.0))
    plain = race(tmp_path / "2", workloads=VARIED)
    plain.run(lambda line: None, Curves(3, {"a": 4.0}, missing=0.0))
    standing, without = write_standing(one), write_standing(plain)
    held_out = standing.pop("held_out")
    assert without.pop("held_out") is None and standing == without, "what was tuned is judged as ever"
    page = (tmp_path / PAGE).read_text()
    text = text_of({**standing, "held_out": held_out})
    assert held_out["holds"].startswith("a, first in the score of the tuned workloads, is first on the variants")
    for shown in (page, text):
        assert held_out["holds"] in shown and all(entry["word"] in shown for entry in held_out["drawn"])
        assert all(pair["here"]["sentence"] in shown for pair in held_out["pairs"])
    assert "Does it hold where nobody tuned?" not in (tmp_path / "2" / PAGE).read_text()
    assert all("these variants" in pair["here"]["sentence"] for pair in held_out["pairs"])


@pytest.mark.parametrize(
    ("scores", "times", "says"),
    [
        ({"a": 0.9, "b": 0.5}, [1.0, 2.0], "a, first in the score of the tuned workloads, is first on the variants"),
        ({"a": 0.9, "b": 0.5}, [2.0, 1.0], "a, first .* is not first on the variants: 0.667, b 1.000"),
        ({"a": 0.9, "b": 0.5}, [1.0, 1.0], "shares the first place on the variants: 1.000"),
        ({"a": 0.9, "b": 0.5}, [np.inf, np.inf], "No submission is first on the variants"),
        ({"a": 0.0, "b": 0.0}, [1.0, 2.0], "No submission is first in the score of the tuned workloads"),
    ],
)
def test_what_is_said_of_the_winner(scores, times, says) -> None:
    assert re.match(f".*{says}", does_it_hold(scores, StudyTable(("a", "b"), ("w",), np.array(times)[:, None, None])))


def test_too_many_ranges_and_suites_without_variants(tmp_path) -> None:
    with pytest.raises(RecipeError, match="got --held-out 13; expected at most 12"):
        draw_variants(VARIED, SUBMISSIONS, 13, 0)
    with pytest.raises(RecipeError, match="got --held-out 1; expected at most 0"):
        draw_variants(WORKLOADS, SUBMISSIONS, 1, 0)
    with pytest.raises(RecipeError, match=r"got a range of optimizer_kwargs\.lr in variants"):
        variants_of(replace(WORKLOADS[0], variants=("optimizer_kwargs.lr=log:1e-3..1",)))
    file = tmp_path / "mine.toml"
    file.write_text(
        '[[workload]]\nrecipe="digits_lenet"\ntarget=90\nseconds=1\nsteps=9\nevery=3\nvariants=["seed=1,2"]\n'
    )
    assert [w.words for w in variants(find_suite(str(file))[0])] == [("seed=1",), ("seed=2",)]
