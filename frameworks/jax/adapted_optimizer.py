"""Transformations of gradients with the interface of Optax, from any package, as optimizers of Deep500."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import new_class
from typing import Any, ClassVar

import jax
import numpy as np

from deep500.errors import InputError
from deep500.training.optimizers.base import Optimizer
from deep500.training.optimizers.hyperparameters import hyperparameter


class OptaxOptimizer(Optimizer, declares=False):
    """Base of what :func:`optimizer_from_native` makes; its state are the leaves of the transformation's."""

    make: ClassVar[Callable[..., Any]]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.groups:
            raise InputError(
                f"got groups or no_decay with {type(self).__name__}, which has one rule for all parameters; expected "
                "none: make its transformation of optax.partition or with its mask"
            )
        self._compute, self._state = jax.jit(self._updated), None

    def _updated(self, values: Any, params: Any, grads: Any, state: Any) -> Any:
        updates, state = type(self).make(**values).update(grads, state, params)
        return jax.tree.map(lambda param, update: (param + update).astype(param.dtype), params, updates), state

    def _parameters(self) -> tuple[dict[str, Any], Any]:
        """Those now, and the transformation's state for them."""
        names = self.parameter_names()
        params = dict(zip(names, self.network.fetch_tensors(names), strict=True))
        if self._state is None:
            self._state = type(self).make(**self.get_parameters()).init(params)
        return params, self._state

    def update(self) -> None:
        params, state = self._parameters()
        gradients = self.network.fetch_tensors(self.gradient_names())
        grads = dict(zip(params, self.modified(list(params), list(params.values()), gradients), strict=True))
        new, self._state = self._compute(self.get_parameters(), params, grads, state)
        for name, tensor in new.items():
            self.network.assign_tensor(name, tensor)

    def state_dict(self) -> dict[str, np.ndarray]:
        leaves = {f"leaf{number}": np.array(leaf) for number, leaf in enumerate(jax.tree.leaves(self._parameters()[1]))}
        return {"step": np.asarray(self.steps, np.int64), **leaves}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        leaves, structure = jax.tree.flatten(self._parameters()[1])
        want = {f"leaf{number}": leaf for number, leaf in enumerate(leaves)}
        if state.keys() != {"step", *want} or any(np.shape(state[n]) != np.shape(want[n]) for n in want):
            raise InputError(
                f"got optimizer state with {len(state)} entries; expected 'step' and {len(want)} leaves in the shapes "
                f"of {type(self).__name__}'s: load the state of the same optimizer and network"
            )
        arrays = [jax.numpy.asarray(state[name], leaf.dtype) for name, leaf in want.items()]
        self._state, self.steps = jax.tree.unflatten(structure, arrays), int(state["step"])


def optimizer_from_native(make: Callable[..., Any], **options: Any) -> type[OptaxOptimizer]:
    """Return the class of an optimizer for executors around what ``make`` makes, such as ``optax.lion``.

    Args:
        make: returns an object with ``init(params)`` and ``update(gradients, state, params)``.
        options: its arguments; floats are hyper-parameters, ``learning_rate`` by the name ``lr``. They are arguments of
            the jitted update, so that a schedule compiles nothing.

    Example:
        >>> import optax
        >>> optimizer_from_native(optax.lion, learning_rate=1e-3, b1=0.9).hyperparameters
        ('lr', 'b1')
    """
    names = {name: "lr" if name == "learning_rate" else name for name in options if type(options[name]) is float}
    fixed = {name: value for name, value in options.items() if name not in names}
    body: dict[str, Any] = {names[n]: hyperparameter(options[n], least=-math.inf) for n in names}
    body["make"] = staticmethod(lambda **values: make(**fixed, **{name: values[ours] for name, ours in names.items()}))
    body["__annotations__"] = dict.fromkeys(names.values(), "float")
    return new_class(f"{make.__name__}Optimizer", (OptaxOptimizer,), {}, lambda space: space.update(body))
