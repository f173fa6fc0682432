"""Single facts of sealed runs, changed: how many are flagged, by kind: ``python -m tests.benchmarks.mutations``.

Alarms in honest runs are counted by :mod:`tests.benchmarks.honest_runs`.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from deep500.results.verify import seal
from tests.benchmarks.filling import say
from tests.results.broken_folders import Folder
from tests.results.careful_lies import LIES
from tests.results.later_lies import FIRST, SECOND
from tests.results.mutations import UNKNOWABLE, Mutation, all_leaves, found, is_unknowable, mutated, table
from tests.results.test_relations import honest

FIGURES = {
    "mutations flagged, of facts that something determines": "at least 99 % of 2,000",
    "mutations flagged, of all leaves": "said, no bar",
    "careful lies flagged, written down before the relations": "at least 20 of 25",
    "later lies flagged, the first list": "at least 18 of 22",
    "later lies flagged, the second list": "at least 20 of 25",
}
DETERMINED, EVERY, CAREFUL, LATER, LATER_STILL = FIGURES


def main() -> int:
    """Print the table; returns 1 where a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.mutations", description=__doc__)
    parser.add_argument("--mutations", type=int, default=2000)
    parser.add_argument("--into", type=Path, help="where runs and outcomes stay, so that it goes on where it stopped")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = args.into or Path(name)
        results = _mutations(place, args.mutations)
        print(table(results))
        determined = [flagged for mutation, flagged in results if not is_unknowable(mutation)]
        met = say(DETERMINED, f"{sum(determined)} of {len(determined)}", sum(determined) >= 0.99 * len(determined))
        say(EVERY, f"{sum(flagged for _, flagged in results)} of {len(results)}")
        print(f"not counted: {', '.join(f'{file}:{path}' for file, paths in UNKNOWABLE.items() for path in paths)}")
        source = honest(place / "lies", "batch_size=64", "--repeat", "3", "--seed", "3", epochs=3)
        plain = honest(place / "lies", "--repeat", "3", epochs=3)
        assert not found(source) + found(plain), "an honest run is flagged before anything is changed"
        for figure, told, run in zip(
            (CAREFUL, LATER, LATER_STILL), (LIES, FIRST, SECOND), (plain, source, source), strict=True
        ):
            flagged = _flagged(run, place / "lie", told)
            met &= say(figure, f"{flagged} of {len(told)}", flagged >= 0.8 * len(told))
    return 0 if met else 1


def _mutations(place: Path, number: int) -> list[tuple[Mutation, bool]]:
    """Of three runs in turn; a kind of fact is drawn first, then a leaf, so that long lists do not prevail."""
    words = (["batch_size=64", "--repeat", "3"], ["--repeat", "2", "--seed", "7"])
    if not (place / "sources.json").exists():
        made = [*(honest(place / str(run), *argv) for run, argv in enumerate(words)), _ranks(place / "ranks", 0)]
        assert not any(map(found, made)), "an honest run is flagged before anything is changed"
        (place / "sources.json").write_text(json.dumps(list(map(str, made))))
    sources, outcomes = list(map(Path, json.loads((place / "sources.json").read_text()))), place / "outcomes.jsonl"
    lines = outcomes.read_text().splitlines() if outcomes.exists() else []
    results = [
        (Mutation(**{**fields, "path": tuple(fields["path"])}), flagged) for fields, flagged in map(json.loads, lines)
    ]
    kinds: list[dict[tuple[str, str], list]] = [{} for _ in sources]
    for source, grouped in zip(sources, kinds, strict=True):
        for file, path, value in all_leaves(source):
            kind = ".".join("*" if part.isdigit() else part for part in path if "packages" not in path)
            grouped.setdefault((file, kind), []).append((file, path, value))
    for turn in range(len(results), number):
        rng, source, other = random.Random(turn), sources[turn % 3], sources[(turn + 1) % 3]
        leaf = rng.choice(kinds[turn % 3][rng.choice(list(kinds[turn % 3]))])
        shutil.rmtree(place / "copy", ignore_errors=True)
        folder = Folder(source, place / "copy")
        mutation = mutated(folder.path, other, *leaf, rng)
        results.append((mutation, bool(found(folder.path, page=leaf[0] == "claims.json"))))
        with outcomes.open("a") as file:
            file.write(json.dumps([asdict(mutation), results[-1][1]]) + "\n")
        if not results[-1][1]:
            print(f"silent: {mutation}", flush=True)
    return results


def _ranks(place: Path, seed: int) -> Path:
    """A run of every metric there is, on two ranks, by the command line."""
    words = ["--backend", "reference", "--ranks", "2", "--open", "epochs=2", "--quiet", "--seed", str(seed)]
    command = [sys.executable, "-m", "deep500", "run", "recipes/digits_every_metric.py", *words, "--out", str(place)]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, timeout=900)  # it misses its target after 2 epochs
    return next((place / "digits_every_metric").glob("2*"))


def _flagged(source: Path, place: Path, lies: Mapping[str, Callable]) -> int:
    """How many lies about a run are flagged."""
    flagged = 0
    for name, change in lies.items():
        shutil.rmtree(place, ignore_errors=True)
        folder = Folder(source, place)
        change(folder)
        seal(folder.path)
        flagged += bool(problems := found(folder.path))
        print(f"{'flagged' if problems else 'silent'}: {name}")
    return flagged


if __name__ == "__main__":
    raise SystemExit(main())
