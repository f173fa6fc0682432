"""Updates of all parameters by jitted functions.

One function puts gradients end to end and runs the rule, another cuts the new parameters apart: that takes longest to
compile, and is compiled once for a network, whatever the rule. Numbers are arguments, so that a schedule compiles
nothing. Buffers of what is remembered are donated, since nothing else holds them; those of parameters are not.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deep500.networks.losses import gradient_name
from deep500.training.optimizers.compiling import Packed, Step, Update, UpdateEngine
from deep500.training.optimizers.tracing import FUNCTIONS


def _power(x: Any, exponent: Any) -> Any:
    return jnp.sqrt(x) if type(exponent) is float and exponent == 0.5 else x**exponent


_FUNCTIONS = {**FUNCTIONS, "pow": _power}


@jax.jit
def _join(tensors: list[Any]) -> Any:
    return jnp.concatenate([tensor.reshape(-1) for tensor in tensors])


class Engine(UpdateEngine):
    """Jits updates."""

    def __init__(self, executor: Any) -> None:
        super().__init__(executor)
        self.cut = jax.jit(self._pieces, static_argnums=1)
        self.whole: dict[tuple[str, ...], tuple[Any, list[Any]]] = {}  # chunks of the last step, and their pieces

    def _pieces(self, tensors: list[Any], chunks: tuple[tuple[str, ...], ...]) -> list[list[Any]]:
        """Chunks cut into tensors of the parameters' shapes."""
        parameters, pieces = self.executor.network.parameters, []
        for tensor, names in zip(tensors, chunks, strict=True):
            shapes = [parameters[name].value.shape for name in names]
            ends = list(accumulate(int(np.prod(shape)) for shape in shapes))
            split = jnp.split(tensor, ends[:-1])
            pieces.append([piece.reshape(shape) for piece, shape in zip(split, shapes, strict=True)])
        return pieces

    def parameter(self, names: tuple[str, ...]) -> Any:
        """The parameters of a chunk in one; those that the last step wrote are there still."""
        tensors = [self.executor.tensors[name] for name in names]
        if len(names) == 1:
            return tensors[0]
        whole, pieces = self.whole.get(names, (None, ()))
        if len(pieces) != len(tensors) or not all(map(operator.is_, pieces, tensors)):
            whole = _join(tensors)
        return whole

    def compile(self, updates: Sequence[Update]) -> Step:
        """Return the step for all chunks."""
        executor = self.executor
        joined = tuple(update.names for update in updates if len(update.names) > 1)
        written = [{slot for slot, _ in update.program.writes} for update in updates]

        def rules(numbers: Any, params: Any, grads: Any, slots: Any, others: Any) -> Any:
            results = []
            for (_, program, first), param, some, mine, other in zip(
                updates, params, grads, slots, others, strict=True
            ):
                grad = some[0] if len(some) == 1 else _join(some)
                values = numbers[first : first + program.count].astype(param.dtype)
                results.append(program(grad, param, {**mine, **other}, values, _FUNCTIONS))
            return [new for new, _ in results], [after for _, after in results]

        compute = jax.jit(rules, donate_argnums=3)

        def step(numbers: list[float], gradients: Mapping[str, Any] | None, packed: Sequence[Packed]) -> list[Packed]:
            executor.refresh()
            gradients = _LastGradients(executor) if gradients is None else gradients
            params = [self.parameter(update.names) for update in updates]
            grads = [[gradients[name] for name in update.names] for update in updates]
            mine = [{s: t for s, t in slots.items() if s in w} for slots, w in zip(packed, written, strict=True)]
            others = [{s: t for s, t in slots.items() if s not in w} for slots, w in zip(packed, written, strict=True)]
            new, after = compute(np.array(numbers), params, grads, mine, others)
            whole = [tensor for (names, *_), tensor in zip(updates, new, strict=True) if len(names) > 1]
            pieces = self.cut(whole, joined) if joined else []
            for (names, *_), tensor in zip(updates, new, strict=True):
                if len(names) == 1:
                    executor.tensors[names[0]] = tensor
            for names, tensor, some in zip(joined, whole, pieces, strict=True):
                executor.tensors.update(zip(names, some, strict=True))
                self.whole[names] = tensor, some
            return list(after)

        return step


class _LastGradients(dict[str, Any]):
    """Gradients of an executor's last run, by parameter."""

    def __init__(self, executor: Any) -> None:
        super().__init__(executor.gradients)
        self.executor = executor

    def __missing__(self, name: str) -> Any:
        return self.executor.network.fetch_tensors([gradient_name(name)])[0]
