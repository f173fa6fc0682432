"""Sealed results: a thousand flipped bytes are a thousand findings, and figures follow from samples byte for byte."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from deep500.errors import ResultsError
from deep500.measure import Plan, Target
from deep500.results.files import read_json
from deep500.results.samples import SampleStore
from deep500.results.stats import STATS, plan_to_json
from deep500.results.verify import SUMS, seal, verify, write_stats


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    plan = plan_to_json(Plan(targets=(Target(0.5), Target(0.99, 0.95, 0.1))))
    series = {"step": {"unit": "s", "kind": "cost", "plan": plan}}
    (folder / "manifest.json").write_text(json.dumps({"schema": "x", "series": series}))
    rng, store = np.random.default_rng(0), SampleStore(folder)
    for launch in range(3):
        times = (1e6 * np.exp(0.1 * rng.standard_normal(400))).astype(np.int64)
        store.append("step", launch, np.cumsum(times), times)
    write_stats(folder)
    (folder / "report.html").write_text("<p>report</p>")
    seal(folder)
    return folder


@pytest.fixture
def run(original, tmp_path):
    return shutil.copytree(original, tmp_path / "run")


def test_an_untouched_run_verifies(run):
    assert verify(run) == []
    sums = subprocess.run(["sha256sum", "-c", "--quiet", SUMS], cwd=run, check=False, capture_output=True, text=True)
    assert sums.returncode == 0, sums.stdout


def test_every_one_of_a_thousand_flipped_bytes_is_found(run):
    rng, files = random.Random(0), [p for p in sorted(run.rglob("*")) if p.is_file()]
    sizes, missed = [p.stat().st_size for p in files], 0
    for _ in range(1000):
        (file,) = rng.choices(files, sizes)
        data = file.read_bytes()
        place = rng.randrange(len(data))
        file.write_bytes(data[:place] + bytes([data[place] ^ rng.randrange(1, 256)]) + data[place + 1 :])
        try:
            missed += verify(run) == []
        except ResultsError:
            pass
        file.write_bytes(data)
    assert missed == 0 and verify(run) == []


def test_missing_and_additional_files_are_named(run):
    (run / "report.html").unlink()
    (run / "more.txt").write_text("x")
    assert verify(run) == ["report.html: missing", "more.txt: not there when the run was sealed"]


def test_figures_that_do_not_follow_from_the_samples_are_found_even_under_a_new_seal(run):
    text = (run / STATS).read_text()
    value = read_json(run / STATS)["series"]["step"]["estimates"][0]["value"]
    (run / STATS).write_text(text.replace(repr(value), repr(value * 0.9)))
    seal(run)
    assert verify(run) == [f"{STATS}: got figures that do not follow from the samples; expected {STATS} as computed"]


def test_figures_say_what_a_reader_must_know(run):
    series = read_json(run / STATS)["series"]["step"]
    median, tail = series["estimates"]
    assert median["target"]["reached"] and median["ci"]["low"] <= median["value"] <= median["ci"]["high"]
    assert median["value"] == pytest.approx(1e-3, rel=0.05) and median["n_eff"] > 500
    assert tail["q"] == 0.99 and series["between_launches"]["cv"] < 0.02 and series["normality"]["p"] < 0.01
    assert [part["cut"]["index"] for part in series["launches"]] and series["kind"] == "cost"


def test_an_unfinished_folder_is_no_run(tmp_path):
    with pytest.raises(ResultsError, match="expected the folder of a finished run"):
        verify(tmp_path)


def with_launches(folder, launches, spread, n=300):
    """Statistics of launches whose levels differ."""
    folder.mkdir()
    plan = plan_to_json(Plan(targets=(Target(0.5, 0.95), Target(0.99, 0.95, 0.5))))
    (folder / "manifest.json").write_text(json.dumps({"series": {"step": {"plan": plan}}}))
    rng, store = np.random.default_rng(1), SampleStore(folder)
    for launch in range(launches):
        level = 1e6 * np.exp(spread * rng.standard_normal())
        store.append("step", launch, np.arange(n), (level * np.exp(0.02 * rng.standard_normal(n))).astype(np.int64))
    write_stats(folder)
    seal(folder)
    assert verify(folder) == []
    return read_json(folder / STATS)["series"]["step"]


def test_six_launches_have_an_interval_over_launches(tmp_path):
    series = with_launches(tmp_path / "run", 6, 0.1)
    medians = sorted(part["median"] for part in series["launches"])
    median = series["estimates"][0]
    assert (median["ci"]["low"], median["ci"]["high"]) == (medians[0], medians[-1])
    assert (median["ci"]["cluster"], median["ci"]["method"]) == ("launches", "ranks of launches")
    assert median["launches"] == 6 and median["standing"] == "result"
    assert median["between_launch_cv"] == pytest.approx(series["between_launches"]["cv"])
    assert not median["target"]["reached"] and series["between_launches"]["kruskal_p"] < 1e-9


def test_fewer_that_differ_are_an_observation_and_fewer_that_do_not_are_a_result_within_them(tmp_path):
    differ = with_launches(tmp_path / "differ", 5, 0.1)["estimates"][0]
    assert differ["ci"]["cluster"] == "within launches" and differ["standing"] == "observation"
    assert differ["ci"]["low"] is None and differ["reason"].startswith("launches differ (Kruskal-Wallis p ")
    assert not differ["target"]["reached"]
    alike = with_launches(tmp_path / "alike", 5, 0.0)["estimates"][0]
    assert alike["standing"] == "result within 5 launches" and alike["target"]["reached"]


def test_statistics_of_an_older_version_are_called_so(run):
    text = (run / STATS).read_text().replace('"deep500-stats-3"', '"deep500-stats-2"')
    (run / STATS).write_text(text)
    seal(run)
    assert verify(run) == [
        f"{STATS}: got schema 'deep500-stats-2'; expected 'deep500-stats-3': use the version of Deep500 that wrote it"
    ]


def pipe(path):
    os.mkfifo(path)


def linked_folder(path):
    (path.parent.parent / "elsewhere").mkdir()
    path.symlink_to(path.parent.parent / "elsewhere")


def linked_report(path):
    moved = path.parent.parent / "report.html"
    (path.parent / "report.html").rename(moved)
    (path.parent / "report.html").symlink_to(moved)


STRANGE = {
    "a pipe": (pipe, "x: got a pipe"),
    "a folder that is a link": (linked_folder, "x: got a link"),
    "a link to the report": (linked_report, "report.html: got a link"),
    "a broken link": (lambda path: path.symlink_to("nowhere"), "x: got a link"),
    "a name that is no text": (
        lambda path: Path(os.fsdecode(b"%s\xff" % os.fsencode(path))).touch(),
        "no printable text",
    ),
}


@pytest.mark.parametrize("name", STRANGE)
def test_what_is_neither_file_nor_folder_is_named_and_not_sealed(run, name):
    make, words = STRANGE[name]
    make(run / "x")
    assert len(problems := verify(run)) == 1 and words in problems[0], problems
    with pytest.raises(ResultsError, match=words):
        seal(run)


def test_a_file_whose_name_begins_with_a_dot_is_seen(run):
    (run / "samples" / ".more").write_text("")
    assert verify(run) == ["samples/.more: not there when the run was sealed"]
    seal(run)
    assert verify(run) == []
    (run / "samples" / ".more").write_text("x")
    assert verify(run) == ["samples/.more: altered"]


def test_a_sparse_file_is_not_read_whole(run):
    file = run / "samples" / "step.0.i64"
    before, whole = SampleStore(run).durations("step", 0), file.read_bytes()
    with file.open("r+b") as handle:
        handle.truncate(20 * 2**30)
    np.testing.assert_array_equal(SampleStore(run).durations("step", 0), before)  # as many as the journal counts
    assert "samples/step.0.i64: altered" in verify(run)[0] and "21474836480 bytes" in verify(run)[0]
    file.write_bytes(whole)
    assert verify(run) == []


def test_blocks_that_do_not_follow_each_other_are_refused(run):
    lines = (run / "journal.jsonl").read_text().splitlines()
    for change in ({"from": 1}, {"n": 2**40}, {"n": 401}):
        changed = json.dumps({**json.loads(lines[0]), **change})
        (run / "journal.jsonl").write_text("\n".join([changed, *lines[1:]]) + "\n")
        with pytest.raises(ResultsError, match="restore the file, or measure again"):
            SampleStore(run).load("step", 0)
