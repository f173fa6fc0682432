"""Random chains with whole numbers, every plan for a short one, and uniform chains with their oracles."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from deep500.transformations.recomputation.chain import ChainPlan, ChainStage, Keep, Mode, Recompute
from deep500.transformations.workshop.recomputation.revolve import Action


def random_chain(seed: int, stages: int, modes: int = 1) -> list[ChainStage]:
    """Heterogeneous stages; a cheaper mode of saving takes longer to reverse."""
    rng = np.random.default_rng(seed)
    chain = []
    for k in range(stages):
        output = int(rng.integers(1, 9))
        saved = output + int(rng.integers(2, 25))
        forward, backward = int(rng.integers(1, 12)), int(rng.integers(2, 20))
        offered = [
            Mode(
                forward, backward + 2 * i, max(output, saved - 7 * i), int(rng.integers(0, 5)), int(rng.integers(0, 9))
            )
            for i in range(modes)
        ]
        chain.append(ChainStage(f"s{k}", output, tuple(offered), forward, int(rng.integers(0, 6))))
    return chain


def all_plans(chain: list[ChainStage], first: int, last: int, whole: bool = True) -> Iterator[ChainPlan]:
    """Every plan for a stretch; unless ``whole``, none that first runs all of it without recording (no gain)."""
    if first > last:
        yield ()
        return
    for rest in all_plans(chain, first + 1, last):
        for mode in range(len(chain[first].modes)):
            yield (Keep(first, mode), *rest)
    for end in range(first, last + 1):
        if end == last and not whole:
            continue
        for rest in all_plans(chain, end + 1, last):
            for plan in all_plans(chain, first, end, whole=False):
                yield (Recompute(first, end, plan), *rest)


def unit_chain(steps: int) -> list[ChainStage]:
    """A slot holds a state or the tape of a step: Maddison's mixed checkpointing (2023) as a chain."""
    return [ChainStage("step", output=1, modes=(Mode(1, 0, saved=1),), forward=1, gradient=0)] * steps


def run(actions: list[Action], snapshots: int) -> tuple[int, list[int]]:
    """Carry a schedule out; returns how often steps ran forward and the order of the reversals, checks the states."""
    stored: set[int] = set()
    current: int | None = 0
    forward, reversed_ = 0, []
    for kind, first, last in actions:
        if kind in ("store", "advance", "reverse"):
            assert current == first, f"{kind} {first} in state {current}"
        if kind == "store":
            stored.add(first)
            assert len(stored) <= snapshots
        elif kind == "restore":
            assert first in stored
            current = first
        elif kind == "drop":
            stored.remove(first)
        elif kind == "advance":
            forward, current = forward + last - first, last
        else:
            forward, current = forward + 1, None
            reversed_.append(first)
    return forward, reversed_
