"""Measures, keeps rows, prints the table; see the package's docstring."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before anything that computes is imported
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # it warns of tensors that are older than a measurement

from tqdm import tqdm

import tests.benchmarks.recomputation_budgets as program
from deep500.measure.statistics import Interval
from deep500.results.files import write_atomic
from tests.benchmarks.filling import commit_here, say, say_not, say_ratio
from tests.benchmarks.recomputation_budgets import BITS, BLOCKS, BUDGET, HELD, OFF, PLANNING, PREDICTED
from tests.benchmarks.recomputation_budgets.networks import IMPORTED, NETWORKS
from tests.benchmarks.turns import inverse

SHARES, ROWS = "0.7,0.5,0.35", Path("results/recomputation_budgets.json")
HEAD = (
    "network",
    "asked",
    "held",
    "off",
    "bits",
    "time, predicted",
    "time",
    "activation_memory_budget",
    "checkpoint, equal segments",
    "checkpoint, every block",
    "CPU seconds of planning",
)


def options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=program.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog=program.__name__
    )
    parser.add_argument("--network", nargs="+", choices=NETWORKS, help="only these, also if they have rows")
    parser.add_argument("--shares", default=SHARES, help=f"of the measured peak ({SHARES})")
    parser.add_argument("--rounds", type=int, default=6, help="timed steps of each way; 0: nothing is timed (6)")
    parser.add_argument("--recompute", choices=("explicit", "checkpoint"), default="explicit")
    parser.add_argument("--no-torch", action="store_true", help="without PyTorch's own ways")
    parser.add_argument("--rows", type=Path, default=ROWS, help=f"where rows are kept ({ROWS})")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what has no rows of this commit, print all; 1 if a bar is missed."""
    chosen, commit = options(argv), commit_here()
    kept = json.loads(chosen.rows.read_text("utf-8")) if chosen.rows.exists() else {}
    rows = {name: network for name, network in kept.items() if network.get("commit") == commit}
    todo = chosen.network or [name for name in NETWORKS if name not in rows]
    shares = [float(word) for word in chosen.shares.split(",")]
    with tqdm(todo, file=sys.stderr, disable=None, unit="network") as bar:
        for name in bar:
            bar.set_description(name)
            from tests.benchmarks.recomputation_budgets.measuring import measure

            try:
                found = measure(name, shares, chosen.rounds, chosen.recompute, not chosen.no_torch)
                rows[name] = {**found, "commit": commit}
            except ModuleNotFoundError as error:
                if error.name != "torchvision":
                    raise
                print(f"{name}: not measured: {error}", file=sys.stderr)
                continue
            chosen.rows.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(chosen.rows, json.dumps(rows, indent=1) + "\n")
    measured = [rows[name] for name in NETWORKS if name in rows]
    print(table(measured))
    print(f"{len(measured)} networks, {sum(n['network'] in IMPORTED for n in measured)} of them imported")
    return 0 if say_figures(measured) else 1


def say_figures(networks: Sequence[Mapping[str, Any]]) -> bool:
    """All of them, of the rows under whose share a plan fits; whether every bar is met."""
    every = {f"{network['network']} {row['asked']:.0%}": row for network in networks for row in network["rows"]}
    rows = {key: row for key, row in every.items() if row["held"] is not None}
    above = [key for key, row in rows.items() if row["held"] > row["asked"]]
    text = f"{len(above)} of {len(rows)} above it, {len(networks)} networks, {len(every) - len(rows)} without a plan"
    met = say(HELD, ": ".join([text, *above]), not above)
    off = {key: row["off"] for key, row in rows.items()}
    met &= say_ratio(OFF, off, at_most=0.02, at_least=-0.02)
    unlike = [key for key, row in rows.items() if not row["same"]]
    met &= say(BITS, ": ".join([f"{len(unlike)} of {len(rows)} plans", *unlike]), not unlike)
    timed = {key: row for key, row in rows.items() if row["time"] is not None}
    for figure, rival in ((BUDGET, "budget"), (BLOCKS, "blocks")):
        others = {key: row[rival]["time"] for key, row in timed.items() if row[rival] and row[rival]["time"]}
        if others:
            met &= say_ratio(figure, {key: _time_over(rows[key], time) for key, time in others.items()}, at_most=1.0)
        else:
            say_not(figure, "none of PyTorch's ways that hold no more was timed")
    if timed:
        predicted = {key: inverse(_time_over(row, row["predicted"])) for key, row in timed.items()}
        met &= say_ratio(PREDICTED, predicted, at_most=1.05, at_least=0.95)
    return say_ratio(PLANNING, {key: row["planning"] for key, row in rows.items()}, at_most=20) and met


def _time_over(row: Mapping[str, Any], other: float) -> Interval:
    """The time of a plan's step over another time, with its own interval."""
    time, low, high = (row[key] and row[key] / other for key in ("time", "low", "high"))
    return Interval(time, low, high, row["rounds"])


def table(networks: Sequence[Mapping[str, Any]]) -> str:
    """In Markdown."""
    lines = [HEAD, ("---",) * len(HEAD)]
    for network in networks:
        for i, row in enumerate(network["rows"]):
            name = f"{network['network']}" if not i else ""
            lines.append((name, f"{row['asked']:.0%}", *_own(row), *_others(row)))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _own(row: Mapping[str, Any]) -> tuple[str, ...]:
    if row["held"] is None:
        smallest = row["note"].partition("(")[2].partition(" ")[0]
        return "cannot", *[""] * 3, f"smallest {smallest}"
    between = "" if row["low"] is None else f" [{row['low']:.2f}-{row['high']:.2f}]"
    time = "" if row["time"] is None else f"{row['time']:.3f}{between}"
    return (
        f"{row['held']:.1%}",
        f"{row['off']:+.2%}",
        "same" if row["same"] else "DIFFER",
        f"{row['predicted']:.3f}",
        time,
    )


def _others(row: Mapping[str, Any]) -> tuple[str, ...]:
    return *(_rival(row.get(kind)) for kind in ("budget", "segments", "blocks")), f"{row['planning']:.0f}"


def _rival(rival: Mapping[str, Any] | None) -> str:
    if rival is None:
        return ""
    if rival["time"] is None:
        return f"least peak {rival['peak']:.1%}" if rival["peak"] else ""
    return f"{rival['time']:.3f} ({rival['peak']:.1%})"


if __name__ == "__main__":
    raise SystemExit(main())
