"""The course of a run whose number of ranks changed: which epochs how many of them trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any


def course(manifest: Mapping[str, Any], curve: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which epochs of each seed how many ranks trained, and what the scheme promises, in words.

    Example:
        >>> curve = [{"seed": 0, "epoch": n, "clock": {"steps": 10}, "ranks": [{}] * (4 - n)} for n in (1, 2, 3)]
        >>> course({"resumed": [{"ranks": [3, 1], "promise": "the same bits"}]}, [curve[0], curve[2]])
        ['seed 0: epoch 1 (10 steps) on 3 ranks, epoch 3 (10 steps) on 1 rank', 'the same bits']
    """
    words = []
    for seed in dict.fromkeys(line["seed"] for line in curve):
        mine, parts = [line for line in curve if line["seed"] == seed], []
        for count, group in groupby(mine, lambda line: len(line.get("ranks") or [0])):
            lines = list(group)
            numbers = [line["epoch"] for line in lines]
            steps: list[Any] = [(line.get("clock") or {}).get("steps") for line in lines]
            name = f"epochs {numbers[0]} to {numbers[-1]}" if len(lines) > 1 else f"epoch {numbers[0]}"
            known = f" ({sum(steps)} steps)" if None not in steps else ""
            parts.append(f"{name}{known} on {count} rank{'s' * (count > 1)}")
        words.append(f"seed {seed}: {', '.join(parts)}")
    return [*words, *dict.fromkeys(entry["promise"] for entry in manifest["resumed"] if "promise" in entry)]
