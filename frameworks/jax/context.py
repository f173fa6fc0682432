"""The context of a run: what it knows beside its values, and what operators may ask of it."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax

from deep500.networks.node import Node


@dataclass
class RunContext:
    """The mode, random keys, the state and what becomes of it.

    ``mode_of`` is the node that is running; ``follows`` tells whether it belongs to the network itself (and so follows
    the executor's mode) or to the body of another node.

    ``statistics`` are the running statistics: untrained parameters that batch normalization keeps.
    Where regions run again (:mod:`deep500.frameworks.jax.recompute`), ``never`` is a predicate that is false in every
    run; in regions (``keeping``) what custom nodes return is noted in ``custom_outputs``, by node, and taken again.
    """

    training: bool
    key: Any
    state: Mapping[str, Any] = field(default_factory=dict)
    statistics: Container[str] = ()
    updates: dict[str, Any] = field(default_factory=dict)
    node: Node | None = None
    follows: bool = True
    draws: int = 0
    never: Any = None
    custom_outputs: dict[str, Any] = field(default_factory=dict)
    keeping: bool = False

    def next_key(self, seed: float | None) -> Any:
        """A key of this node's own in this run; the same in every run for a node with a seed of its own."""
        if seed is not None:
            return jax.random.key(hash(float(seed)) & (2**63 - 1))
        self.draws += 1
        return jax.random.fold_in(self.key, self.draws)
