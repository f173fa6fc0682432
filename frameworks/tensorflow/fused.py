"""What an optimizer is here: a rule traced into the training step, so that one ``tf.function`` does everything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from deep500.errors import InputError, nearest
from deep500.frameworks.tensorflow.dtypes import from_array, to_array
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.execution.executor import GraphExecutor
from deep500.training.optimizers.base import Optimizer

Slots = dict[str, Any]
Numbers = Mapping[str, Any]


class NativeOptimizer(Optimizer):
    """An optimizer whose rule is part of the training step; ``state_dict`` has the slots of the reference optimizer.

    A class says which ``slots`` it keeps and what :meth:`rule` does to a variable. Hyper-parameters reach the graph
    as tensors, so that schedules change them without tracing again; those that decide what is computed (:meth:`shape`)
    are traced anew.
    """

    def __init__(self, executor: GraphExecutor, loss: str = "loss", **options: Any) -> None:
        super().__init__(executor, loss, **options)
        self._slots: dict[str, Slots] = {}
        self._functions: dict[Any, Callable[..., Any]] = {}
        self._version: Any = None
        self._sent: tuple[tuple[float, ...], Any] | None = None
        self._begun: set[int] = set()  # ids of the slots that this step begins

    # -- what a class says --------------------------------------------------------------------------------------------
    def slots(self) -> dict[str, float]:
        """Names of the slots in use, and what they begin with."""
        return {}

    def numbers(self) -> dict[str, float]:
        """What the rule needs as numbers, computed in float64 for the coming step."""
        return {"lr": self.lr}  # type: ignore[attr-defined]

    def shape(self) -> tuple[Any, ...]:
        """What decides how the rule looks."""
        return ()

    def rule(self, variable: Any, grad: Any, slots: Slots, n: Numbers) -> None:
        """Update one variable and its slots; ``n`` holds :meth:`numbers` in the variable's dtype."""
        raise NotImplementedError

    # -- stepping -----------------------------------------------------------------------------------------------------
    def step(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """One function for everything, unless somebody wants to see gradients before the update, or its hooks."""
        executor: Any = self.executor
        events = executor.events
        if self.changes_gradients or events.before_update:
            return super().step(inputs)
        executor._check_planned(inputs, self.loss)
        compiled = executor.training_step(self.loss)
        self._refresh()
        compiled.check(inputs)
        key = ("step", id(compiled), self.shape())
        if key not in self._functions:
            self._functions[key] = self._fused(compiled)
        if events.before_forward_backward:
            events.emit(events.before_forward_backward, executor)
        results, gradients = executor.run(compiled, inputs, self._functions[key], self._values())
        if events.after_forward_backward:
            events.emit(events.after_forward_backward, executor)
        self.steps += 1
        if events.after_update:
            events.emit(events.after_update, self)
        return executor.keep(compiled, results, gradients)

    def update(self) -> None:
        """Apply the gradients of the last run."""
        self._refresh()
        names, gradient_names = self._names()
        gradients = self.network.fetch_tensors(gradient_names)
        if self.changes_gradients:
            gradients = list(self.modified(names, self.network.fetch_tensors(names), gradients))
        key = ("update", self.shape())
        if key not in self._functions:
            self._functions[key] = tf.function(self._update, autograph=False)
        with tf.device(self.executor.tf_device):  # type: ignore[attr-defined]
            self._functions[key](self._values(), *gradients)

    def _update(self, values: Any, *gradients: Any) -> None:
        held, names = self.executor.held, self.parameter_names()  # type: ignore[attr-defined]
        self._apply([held(name, gradient) for name, gradient in zip(names, gradients, strict=True)], values)

    def _fused(self, compiled: Any) -> Callable[..., Any]:
        def step(values: Any, *inputs: Any) -> Any:
            results, gradients = compiled.run(*inputs)
            self._apply(gradients, values)
            return results, gradients

        return compiled.trace(step)

    def _apply(self, gradients: Sequence[Any], values: Any) -> None:
        """Update all variables; gradients come in their layout."""
        executor: Any = self.executor
        decays = bool(getattr(self, "weight_decay", 0.0)) and self.couples_decay
        by_dtype: dict[Any, Numbers] = {}
        for name, gradient in zip(self.parameter_names(), gradients, strict=True):
            variable = executor.variables[name]
            if variable.dtype not in by_dtype:
                names = list(self.numbers())
                parts = tf.unstack(tf.cast(values, variable.dtype), len(names))
                by_dtype[variable.dtype] = dict(zip(names, parts, strict=True))
            numbers = by_dtype[variable.dtype]
            total = gradient + numbers["weight_decay"] * variable if decays else gradient
            self.rule(variable, total, self._slots[name], numbers)

    couples_decay = True
    """Whether weight decay is part of the gradient."""

    def _values(self) -> Any:
        numbers = tuple(self.numbers().values())
        if self._sent is None or self._sent[0] != numbers:
            self._sent = numbers, tf.constant(numbers, tf.float64)
        return self._sent[1]

    def _refresh(self) -> None:
        """Make the slots that are missing; what was traced for a network that has changed is dropped."""
        executor: Any = self.executor
        self._begun = set()
        wanted = tuple(self.slots())
        if (self.network.version, wanted) == self._version:
            return
        self._functions, self._version = {}, (self.network.version, wanted)
        for name in self.parameter_names():
            slots = self._slots.setdefault(name, {})
            for slot, first in self.slots().items():
                variable = executor.variables[name]
                if slot not in slots or slots[slot].shape != variable.shape:
                    self._begun.add(id(slots))
                    with tf.device(executor.tf_device), tf.init_scope():
                        slots[slot] = tf.Variable(
                            tf.fill(variable.shape, tf.constant(first, variable.dtype)), trainable=False
                        )

    # -- state --------------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, np.ndarray]:
        state = {"step": np.asarray(self.steps, np.int64)}
        for name, slots in self._slots.items():
            shown = {slot: self.executor.shown(name, value) for slot, value in slots.items()}  # type: ignore[attr-defined]
            state.update({f"{slot}/{name}": np.array(to_array(value)) for slot, value in shown.items()})
        return state

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        if "step" not in state:
            raise InputError("got optimizer state without 'step'; expected what state_dict() returned: load that")
        executor: Any = self.executor
        known = set(self.parameter_names())
        loaded: dict[str, Slots] = {}
        for key, array in state.items():
            if key == "step":
                continue
            slot, _, name = key.partition("/")
            if name not in known:
                raise InputError(
                    f"got optimizer state {key!r}; expected '<slot>/<parameter>': "
                    f"{nearest(name, known)} Load the state of the same network"
                )
            shape = executor.shape(name)
            if np.shape(array) not in (shape, ()):
                raise InputError(
                    f"optimizer state {key!r}: got shape {np.shape(array)}; expected {shape}, the parameter's: "
                    "load the state of the same network"
                )
            with tf.device(executor.tf_device):
                first = executor.held(name, from_array(np.array(np.broadcast_to(array, shape))))
                loaded.setdefault(name, {})[slot] = tf.Variable(first, trainable=False)
        self.steps, self._slots, self._version = int(state["step"]), loaded, None
