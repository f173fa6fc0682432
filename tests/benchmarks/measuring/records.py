"""Figures 10, 12 and 17: altered bytes, kills, and the report at its largest. Samples are made up, files are real."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import tempfile
import time
from html import unescape
from pathlib import Path

from deep500.errors import ResultsError
from deep500.report.page import render
from deep500.results import Record
from deep500.results.stats import STATS
from deep500.results.verify import verify, write_stats
from tests.benchmarks.measuring.outcome import Options, Outcome, figure, ratio
from tests.recipes.test_resume import SCRIPT, assert_same_end, only, start
from tests.results.browser import BROWSER, browse
from tests.results.report_cases import finished
from tests.results.test_report_browser import MOST_BYTES, MOST_SECONDS
from tests.results.test_samples import KILLER

FLIPS, KILLS = 1000, 50
SEEDS = [0, 1]


def _is_found(path: Path) -> bool:
    try:
        return verify(path) != []
    except ResultsError:
        return True


@figure(10, "recomputation and flipped bytes", "stats.json byte for byte; 1000 of 1000 flips found")
def flips(options: Options) -> Outcome:
    """Of a whole finished run (manifest, samples, journal, curve, statistics, rules, page), one byte at a time."""
    draw, noticed = random.Random(options.seed), 0
    with tempfile.TemporaryDirectory() as folder:
        path = finished(Path(folder), samples=200, seeds=3).path
        before = (path / STATS).read_bytes()
        write_stats(path)
        same = (path / STATS).read_bytes() == before and verify(path) == []
        files = [entry for entry in sorted(path.rglob("*")) if entry.is_file()]
        for number in options.each(range(FLIPS), "figure 10"):
            # every other one anywhere by size, the rest in a file drawn first: small files count too
            file = draw.choice(files) if number % 2 else draw.choices(files, [f.stat().st_size for f in files])[0]
            data = file.read_bytes()
            place = draw.randrange(len(data))
            file.write_bytes(data[:place] + bytes([data[place] ^ draw.randrange(1, 256)]) + data[place + 1 :])
            noticed += _is_found(path)
            file.write_bytes(data)
        same &= verify(path) == []
    text = f"recomputed {'identically' if same else 'DIFFERENTLY'}, found {ratio(noticed, FLIPS)} in {len(files)} files"
    return Outcome(text, same and noticed == FLIPS)


def _killed_run(folder: Path, name: str, draw: random.Random, kills: int) -> tuple[Record, int]:
    """A recipe that is killed until it is through or has had enough, then finished; and how often it was killed."""
    script, done = folder / "job.py", 0
    words = ["--repeat", "2"]
    while True:
        at = draw.randrange(1, 25) if done < kills else 0
        process = start(script, *words, "--out", name, kill_at_write=at)
        _, errors = process.communicate(timeout=300)
        if process.returncode == 0:
            return only(folder / name), done
        if process.returncode != -9:
            raise RuntimeError(f"got exit {process.returncode}: {errors[-300:]}")
        done += 1
        runs = list((folder / name / "job").glob("20*-*/manifest.json"))
        words = ["--resume"] if runs else ["--repeat", "2"]  # killed before there was a run: nothing to resume


def _counts(record: Record) -> dict[str, int]:
    store = record.samples
    return {f"{series}.{launch}": store.load(series, launch).size for series, launch in store.names()}


@figure(
    12,
    "SIGKILL at 50 random points",
    "at most one block lost; final sample count as uninterrupted; resumed launches marked",
)
def kills(options: Options) -> Outcome:
    """Fifty kills of the sample store at random times, and fifty of whole recipe runs at random writes, resumed."""
    draw, done, same, marked, runs = random.Random(options.seed), 0, 0, 0, 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stored = subprocess.run([sys.executable, "-c", KILLER, str(folder)], check=True, capture_output=True, text=True)
        lost = json.loads(stored.stdout)
        blocks = sum(reported <= kept <= reported + 1 for reported, kept in lost)
        (folder / "job.py").write_text(SCRIPT)
        whole, _ = _killed_run(folder, "whole", draw, 0)
        bar = options.each(range(KILLS), "figure 12")
        while done < KILLS:
            record, more = _killed_run(folder, f"broken-{runs}", draw, min(10, KILLS - done))
            assert_same_end(whole, record, SEEDS)
            same += _counts(record) == _counts(whole)
            marked += len(record.manifest()["resumed"]) >= (1 if more else 0)
            done, runs = done + more, runs + 1
            for _ in range(more):
                next(bar, None)
    text = (
        f"store: at most the block being written lost in {ratio(blocks, len(lost))}; recipe: {done} kills in "
        f"{runs} runs, all ended bit-identically, sample count the same in {same}, marked in {marked}"
    )
    return Outcome(text, blocks == len(lost) == KILLS and same == marked == runs)


def _lacking(page: str) -> int:
    """Rows of series that have neither an interval nor the word, or no unit or no effective sample size."""
    rows = re.findall(r"<tr><th scope=.row.>series-\d+</th>.*?</tr>", page, flags=re.DOTALL)
    good = [
        re.search(r"\d (ns|µs|ms|s)<", row)
        and 'data-head="n_eff"' in row
        and (("% CI" in row) or ">observation" in row)
        for row in rows
    ]
    return len(rows) - sum(map(bool, good)) if rows else -1


@figure(
    17,
    "report of 50 series of 10,000 samples",
    "one file < 3 MB in < 20 s, no request; every number with unit, n_eff and interval, or the word observation",
)
def report(options: Options) -> Outcome:
    """Size, seconds and rows of the page; a browser says what it loads."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        record = finished(folder, samples=10_000, seeds=1, series=[f"series-{n}" for n in range(50)])
        begin, wall = time.process_time(), time.perf_counter()
        page = render(Record.open(record.path))
        seconds, wall = time.process_time() - begin, time.perf_counter() - wall
        size, lacking = len(page.encode("utf-8")), _lacking(page)
        outside = re.findall(r"""(?:src|href)=["']?(?!#|data:)([^"'\s>]+)""", unescape(page))
        outside += re.findall(r"url\((?!#|data:)|@import", page)
        said: list[str] | None = None
        if BROWSER is not None:
            file = folder / "page.html"
            file.write_text(page, encoding="utf-8")
            _, said = browse(folder, file.as_uri(), "--dump-dom")
    looked = (
        "no browser here: the text was searched instead" if said is None else f"{len(said)} messages of the browser"
    )
    text = (
        f"{size / 1e6:.2f} MB in {seconds:.1f} s of processor time ({wall:.1f} s by the clock of this machine), "
        f"{len(outside)} addresses to load, {looked}; rows that lack something: {lacking}"
    )
    return Outcome(text, size < MOST_BYTES and seconds < MOST_SECONDS and not outside and not said and lacking == 0)
