"""`JaxNetwork`: the network of an executor, whose tensors are JAX arrays, which are immutable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from deep500.frameworks.jax.dtypes import place
from deep500.networks.execution.differentiating import LiveNetwork
from deep500.networks.execution.refusals import unfit_parameter


class JaxNetwork(LiveNetwork):
    """A network with JAX's arrays; gradients are in ``executor.gradients``."""

    def feed_tensor(self, name: str, value: Any) -> None:
        """Overwrite a parameter (see the base class); an array of JAX's is taken as it is, for nobody can change it."""
        executor = self._executor
        old, new = executor.tensor(name), value if hasattr(value, "dtype") else np.asarray(value)
        if new.dtype != old.dtype or new.shape != old.shape:
            raise unfit_parameter(name, new, old)
        if executor.is_constant(name) and not np.array_equal(np.asarray(old), np.asarray(new)):
            executor.forget_constant(name)
        executor.tensors[name] = place(new, executor.jax_device)

    def leave_gradients(self, gradients: Mapping[str, Any]) -> None:
        """In ``executor.gradients``."""
        self._executor.gradients.update(gradients)

    def weighted_sum(self, terms: Sequence[Sequence[Any]], weights: Sequence[float]) -> list[Any]:
        """One jitted function of all arrays."""
        return _weighted_sum([list(term) for term in terms], list(weights))

    def concatenate(self, tensors: Sequence[Any]) -> jax.Array:
        """By ``jax.numpy.concatenate``."""
        return jax.numpy.concatenate(list(tensors))

    def to_tensor(self, array: np.ndarray) -> jax.Array:
        """An array as one of JAX's on the device (a copy)."""
        return place(array, self._executor.jax_device)


@jax.jit
def _weighted_sum(terms: list[list[Any]], weights: list[Any]) -> list[Any]:
    return [sum(w * tensor for w, tensor in zip(weights, column, strict=True)) for column in zip(*terms, strict=True)]
