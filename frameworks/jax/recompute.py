"""Regions of a network that run again: the values inside are computed once more in the backward pass, not kept.

``jax.checkpoint`` does not save memory on processors: XLA drops the barriers that it emits before it schedules, so the
second run moves to the front or is merged with the first. So a region is a ``jax.custom_vjp`` whose second run *reads*
the gradient that arrives: every input passes through a selection by a predicate that is false whenever the function
runs, but that XLA cannot know to be, as it is made of an argument and of an element of that gradient.

Random numbers are drawn again with the same keys, statistics are those of the first run, and operators that may hold
state (custom ones) do not run again: their results are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deep500.frameworks.jax.context import RunContext
from deep500.frameworks.jax.dtypes import is_float
from deep500.frameworks.jax.operators.table import is_known
from deep500.networks.execution.grouping import NodeGroup

Inside = Callable[[dict[str, Any], RunContext], None]
"""Runs a region's nodes on an environment, which it extends."""
Tree = Any


class _Names(frozenset[str]):
    """Names that are no data to JAX, but part of the program."""


jax.tree_util.register_static(_Names)


def run_group(
    group: NodeGroup, env: dict[str, Any], context: RunContext, inside: Inside, parameters: frozenset[str]
) -> None:
    """Run a region, so that what it computes is computed again when its gradient is wanted, and extend ``env``.

    Args:
        group: the region.
        env: values by name.
        context: of the run; gets the region's new statistics and what its custom operators returned.
        inside: runs the nodes.
        parameters: values that are held anyway, which the second run may read as they are.
    """
    region = _Region(group, env, context, inside, parameters)
    traced = {name: env[name] for name in group.reads if not is_known(env[name])}
    # fmt: off
    rest = {
        "key": None if context.key is None else jax.random.key_data(context.key),
        "state": dict(context.state), "updates": dict(context.updates), "custom_outputs": dict(context.custom_outputs),
        "never": context.never,
    }
    # fmt: on
    values, updates, returned = region.function()(traced, rest)
    env.update(values)
    env.update(region.known)
    context.updates.update(updates)
    context.custom_outputs.update(returned)
    context.draws = region.draws


class _Region:
    """One run of a region: a function with a gradient of its own, and what is known once it was traced."""

    def __init__(
        self, group: NodeGroup, env: Mapping[str, Any], context: RunContext, inside: Inside, parameters: frozenset[str]
    ) -> None:
        self.group, self.context, self.inside = group, context, inside
        self.given = {name: env[name] for name in group.reads if is_known(env[name])}
        self.first, self.draws = context.draws, context.draws
        moving = [name for name in group.reads if name not in parameters]
        self.tied = set(moving or group.reads)
        self.known: dict[str, Any] = {}

    def run(self, traced: Tree, rest: Tree) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """The values that the region hands on, its new statistics, and what its custom operators returned."""
        key = None if rest["key"] is None else jax.random.wrap_key_data(rest["key"])
        context = replace(
            self.context,
            key=key,
            state=rest["state"],
            updates=dict(rest["updates"]),
            custom_outputs=dict(rest["custom_outputs"]),
            never=rest["never"],
            draws=self.first,
            keeping=True,
        )
        env = {**self.given, **traced}
        self.inside(env, context)
        self.draws = context.draws
        self.known = {name: env[name] for name in self.group.writes if is_known(env[name])}
        values = {name: env[name] for name in self.group.writes if name not in self.known}
        return (
            values,
            context.updates,
            {n: v for n, v in context.custom_outputs.items() if n not in rest["custom_outputs"]},
        )

    def function(self) -> Callable[..., Any]:
        """The region as a function that JAX differentiates by running it again."""
        function = jax.custom_vjp(self.run)

        def forward(traced: Tree, rest: Tree) -> tuple[Any, Any]:
            reached = _Names(name for name, value in traced.items() if value.perturbed)
            traced, rest = jax.tree.map(lambda leaf: leaf.value, (traced, rest), is_leaf=_is_primal)
            results = self.run(traced, rest)
            return results, (traced, {**rest, "custom_outputs": {**rest["custom_outputs"], **results[2]}}, reached)

        function.defvjp(forward, self.backward, symbolic_zeros=True)
        return function

    def backward(self, saved: Tree, gradients: Tree) -> tuple[Any, None]:
        """The gradients of what the region reads."""
        traced, rest, reached = saved
        arriving = {name: g for name, g in gradients[0].items() if _counts(g)}
        needed = [name for name in traced if name in reached and is_float(traced[name])]
        if not arriving or not needed:
            return dict.fromkeys(traced), None
        never = _after(rest["never"], list(arriving.values()))
        traced = {name: _tie(value, never) if name in self.tied else value for name, value in traced.items()}
        key = None if rest["key"] is None else _tie(rest["key"], never)

        def again(moving: dict[str, Any]) -> list[Any]:
            values, _, _ = self.run({**traced, **moving}, {**rest, "key": key})
            return [values[name] for name in arriving]

        _, pull = jax.vjp(again, {name: traced[name] for name in needed})
        (gradients_of,) = pull(list(arriving.values()))
        return {name: gradients_of.get(name) for name in traced}, None


def _is_primal(leaf: Any) -> bool:
    return hasattr(leaf, "perturbed")


def _counts(gradient: Any) -> bool:
    """Whether a gradient arrives at all: that of integers and of what the loss does not read does not."""
    zero = isinstance(gradient, jax.custom_derivatives.SymbolicZero)
    return not zero and gradient.dtype != jax.dtypes.float0


def _after(never: Any, gradients: list[Any]) -> Any:
    """A predicate that is never true, and that cannot be computed before these gradients are."""
    for gradient in gradients:
        never = never & (jnp.ravel(gradient)[0] == 0) if gradient.size else never
    return never


def _tie(value: Any, never: Any) -> Any:
    """The value bit by bit, as XLA cannot have it before the predicate."""
    return jnp.where(never, np.zeros((), value.dtype), value)
