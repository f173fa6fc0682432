"""Single facts of sealed runs, changed: how many are flagged, by kind: ``python -m tests.benchmarks.mutations``.

Alarms in honest runs are counted by :mod:`tests.benchmarks.honest_runs`.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from deep500.results.verify import seal
from tests.benchmarks.filling import say
from tests.results.broken_folders import Folder
from tests.results.careful_lies import LIES
from tests.results.mutations import UNKNOWABLE, Mutation, all_leaves, found, is_unknowable, mutated, table
from tests.results.test_relations import honest

FIGURES = {
    "mutations flagged, of facts that something determines": "at least 99 % of 2,000",
    "mutations flagged, of all leaves": "said, no bar",
    "careful lies flagged, written down before the relations": "at least 20 of 25",
}
DETERMINED, EVERY, LIED = FIGURES


def main() -> int:
    """Print the table; returns 1 where a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.mutations", description=__doc__)
    parser.add_argument("--mutations", type=int, default=2000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        results = _mutations(place, args.mutations)
        print(table(results))
        determined = [flagged for mutation, flagged in results if not is_unknowable(mutation)]
        met = say(DETERMINED, f"{sum(determined)} of {len(determined)}", sum(determined) >= 0.99 * len(determined))
        say(EVERY, f"{sum(flagged for _, flagged in results)} of {len(results)}")
        print(f"not counted: {', '.join(f'{file}:{path}' for file, paths in UNKNOWABLE.items() for path in paths)}")
        lies = _lies(place)
        met &= say(LIED, f"{lies} of {len(LIES)}", lies >= 0.8 * len(LIES))
    return 0 if met else 1


def _mutations(place: Path, number: int) -> list[tuple[Mutation, bool]]:
    """Of three runs in turn; a kind of fact is drawn first, then a leaf, so that long lists do not prevail."""
    words = (["batch_size=64", "--repeat", "3"], ["--repeat", "2", "--seed", "7"])
    sources = [*(honest(place / str(run), *argv) for run, argv in enumerate(words)), _ranks(place / "ranks", 0)]
    assert not any(map(found, sources)), "an honest run is flagged before anything is changed"
    rng, results = random.Random(0), []
    kinds: list[dict[tuple[str, str], list]] = [{} for _ in sources]
    for source, grouped in zip(sources, kinds, strict=True):
        for file, path, value in all_leaves(source):
            kind = ".".join("*" if part.isdigit() else part for part in path if "packages" not in path)
            grouped.setdefault((file, kind), []).append((file, path, value))
    for turn in range(number):
        source, other = sources[turn % 3], sources[(turn + 1) % 3]
        leaf = rng.choice(kinds[turn % 3][rng.choice(list(kinds[turn % 3]))])
        folder = Folder(source, place / "copy")
        results.append((mutated(folder.path, other, *leaf, rng), False))
        results[-1] = (results[-1][0], bool(found(folder.path, page=leaf[0] == "claims.json")))
        shutil.rmtree(place / "copy")
        if not results[-1][1]:
            print(f"silent: {results[-1][0]}")
    return results


def _ranks(place: Path, seed: int) -> Path:
    """A run of every metric there is, on two ranks, by the command line."""
    words = ["--backend", "reference", "--ranks", "2", "--open", "epochs=2", "--quiet", "--seed", str(seed)]
    command = [sys.executable, "-m", "deep500", "run", "recipes/digits_every_metric.py", *words, "--out", str(place)]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, timeout=300)  # it misses its target after 2 epochs
    return next((place / "digits_every_metric").glob("2*"))


def _lies(place: Path) -> int:
    source, flagged = honest(place / "lies", "--repeat", "3", epochs=3), 0
    assert not found(source), "an honest run is flagged before anything is changed"
    for number, (name, change) in enumerate(LIES.items()):
        folder = Folder(source, place / "lie" / str(number))
        change(folder)
        seal(folder.path)
        flagged += bool(problems := found(folder.path))
        print(f"{'flagged' if problems else 'silent'}: {name}")
    return flagged


if __name__ == "__main__":
    raise SystemExit(main())
