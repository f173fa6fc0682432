"""Updates of all parameters by one jitted function.

It puts parameters and gradients end to end, runs the rule and cuts the new parameters apart. Numbers are arguments, so
that a schedule compiles nothing. Buffers of what is remembered are donated, since nothing else holds them; those of
parameters are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deep500.networks.losses import gradient_name
from deep500.training.optimizers.arithmetic import norm
from deep500.training.optimizers.compiling import Packed, Step, Update, UpdateEngine
from deep500.training.optimizers.tracing import FUNCTIONS


def _power(x: Any, exponent: Any) -> Any:
    return jnp.sqrt(x) if type(exponent) is float and exponent == 0.5 else x**exponent


_FUNCTIONS = {**FUNCTIONS, "pow": _power}


def join(tensors: Sequence[Any]) -> Any:
    """Tensors end to end."""
    return tensors[0] if len(tensors) == 1 else jnp.concatenate([tensor.reshape(-1) for tensor in tensors])


def cut(whole: Any, like: Sequence[Any]) -> list[Any]:
    """Reverse :func:`join`."""
    ends = list(accumulate(tensor.size for tensor in like))[:-1]
    return [piece.reshape(tensor.shape) for piece, tensor in zip(jnp.split(whole.reshape(-1), ends), like, strict=True)]


def _norms(whole: Any, like: Sequence[Any]) -> Any:
    """The norm of each parameter, in the places of its elements."""
    if len(like) == 1:
        return norm(whole)
    sizes = np.array([tensor.size for tensor in like])
    return jnp.repeat(jnp.stack([norm(piece) for piece in cut(whole, like)]), sizes, total_repeat_length=sizes.sum())


def rules_of(updates: Sequence[Update]) -> Callable[..., Any]:
    """The function ``f(numbers, parameters, gradients, slots) -> (new parameters, slots)`` of all chunks."""

    def rules(numbers: Any, params: Any, grads: Any, packed: Any) -> Any:
        results, after = [], []
        for (_, program, first), old, grad, slots in zip(updates, params, grads, packed, strict=True):
            values = numbers[first : first + program.count].astype(old[0].dtype)
            if not (
                slots or program.writes
            ):  # a short rule, which takes less time than putting together and cutting apart
                results.append([program(g, p, {}, values, _FUNCTIONS)[0] for g, p in zip(grad, old, strict=True)])
                after.append(slots)
                continue
            functions: dict[str, Any] = {**_FUNCTIONS, "norm": partial(_norms, like=old)}
            new, written = program(join(grad), join(old), slots, values, functions)
            results.append(cut(new, old))
            after.append({**slots, **written})
        return results, after

    return rules


class Updater(UpdateEngine):
    """Jits updates."""

    def compile(self, updates: Sequence[Update]) -> Step:
        """Return the step for all chunks."""
        executor, every = self.executor, frozenset(name for update in updates for name in update.names)
        compute = jax.jit(rules_of(updates), donate_argnums=3)

        def step(numbers: list[float], gradients: Mapping[str, Any] | None, packed: Sequence[Packed]) -> list[Packed]:
            executor.refresh()
            last = executor.gradients if gradients is None else gradients
            params = [[executor.tensors[name] for name in update.names] for update in updates]
            grads = [
                [last[n] if n in last else executor.result(gradient_name(n)) for n in update.names]
                for update in updates
            ]
            results, after = compute(np.array(numbers), params, grads, list(packed))
            for update, new in zip(updates, results, strict=True):
                executor.tensors.update(zip(update.names, new, strict=True))
            executor.forget_constants(every)
            return list(after)

        return step
