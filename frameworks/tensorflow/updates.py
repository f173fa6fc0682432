"""Updates of all parameters in one ``tf.function``, with forward and backward pass where nothing comes between.

What is remembered is in variables, which the function writes. They have the layout of the parameters' variables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from deep500.frameworks.tensorflow.dtypes import from_array, to_array
from deep500.frameworks.tensorflow.operators.windows import kernel_first
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.losses import gradient_name
from deep500.training.optimizers.arithmetic import norm
from deep500.training.optimizers.compiling import CHUNK, Chunk, Packed, Update, UpdateEngine
from deep500.training.optimizers.tracing import FUNCTIONS


def _power(x: Any, exponent: Any) -> Any:
    return tf.sqrt(x) if type(exponent) is float and exponent == 0.5 else x**exponent


_FUNCTIONS = {**FUNCTIONS, "pow": _power}


def _joined(tensors: Sequence[Any]) -> Any:
    return tensors[0] if len(tensors) == 1 else tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], 0)


def _norms(whole: Any, sizes: Sequence[int]) -> Any:
    """The norm of each parameter, in the places of its elements."""
    if len(sizes) == 1:
        return norm(whole)
    return tf.repeat(tf.stack([norm(piece) for piece in tf.split(whole, sizes)]), sizes)


class Updater(UpdateEngine):
    """Traces updates."""

    fuses = True

    def __init__(self, executor: Any, chunks: list[Chunk]) -> None:
        super().__init__(executor, chunks)
        self.kernels = frozenset(executor.kernels)  # edits of the network change the executor's
        self.sizes = {name: tuple(variable.shape) for name, variable in executor.variables.items()}
        self.slots: dict[tuple[tuple[str, ...], str], Any] = {}

    def lay(self, name: str, array: np.ndarray) -> np.ndarray:
        return to_array(self.executor.turned(name, from_array(array)))

    def show(self, name: str, array: np.ndarray) -> np.ndarray:
        tensor = from_array(array.reshape(self.sizes[name]))
        return to_array(kernel_first(tensor) if name in self.kernels else tensor)

    def tensor(self, names: tuple[str, ...], slot: str, array: np.ndarray) -> Any:
        """A variable, the same one every time."""
        if (names, slot) not in self.slots:
            with tf.device(self.executor.tf_device):
                self.slots[names, slot] = tf.Variable(from_array(array), trainable=False)
        else:
            self.slots[names, slot].assign(from_array(array))
        return self.slots[names, slot]

    def compile(self, updates: Sequence[Update]) -> _TracedStep:
        return _TracedStep(self, updates)


class _TracedStep:
    """A step for all chunks, alone or with the network."""

    def __init__(self, engine: Updater, updates: Sequence[Update]) -> None:
        self.engine, self.executor, self.rules = engine, engine.executor, [_Rule(engine, update) for update in updates]
        self.names = [name for update in updates for name in update.names]
        self._sent: tuple[list[float], Any] = [], None
        self._fused: tuple[Any, Callable[..., Any]] | None = None
        self._traced = tf.function(self._update, autograph=False)

    def _update(self, numbers: Any, gradients: Mapping[str, Any]) -> None:
        """Update all variables; gradients come in their layout."""
        for rule in self.rules:
            rule([gradients[name] for name in rule.names], numbers)

    def _tensor(self, numbers: list[float]) -> Any:
        if self._sent[0] != numbers or self._sent[1] is None:
            self._sent = numbers, tf.constant(numbers, tf.float64)
        return self._sent[1]

    def __call__(
        self, numbers: list[float], gradients: Mapping[str, Any] | None, packed: Sequence[Packed]
    ) -> list[Packed]:
        executor = self.executor
        if gradients is None:
            tensors = executor.network.fetch_tensors([gradient_name(name) for name in self.names])
            gradients = dict(zip(self.names, tensors, strict=True))
        with tf.device(executor.tf_device):
            turned = {name: executor.turned(name, gradients[name]) for name in self.names}
            self._traced(self._tensor(numbers), turned)
        return self._written()

    def run(
        self, inputs: Mapping[str, Any], loss: str, numbers: list[float], packed: Sequence[Packed]
    ) -> tuple[dict[str, Any], list[Packed]]:
        """Run the network forward and backward, and update; returns its outputs and the slots."""
        executor = self.executor
        compiled, events = executor.checked_step(inputs, loss), executor.events
        if self._fused is None or self._fused[0] is not compiled:

            def fused(numbers: Any, *values: Any) -> Any:
                results, gradients = compiled.call(*values)  # traced once for all programs of the rule
                self._update(numbers, dict(zip(compiled.gradients, gradients, strict=True)))
                return results, gradients

            self._fused = compiled, compiled.trace(fused)
        if events.before_forward_backward:
            events.emit(events.before_forward_backward, executor)
        results, gradients = executor.run(compiled, inputs, self._fused[1], self._tensor(numbers))
        if events.after_forward_backward:
            events.emit(events.after_forward_backward, executor)
        return executor.keep(compiled, results, gradients), self._written()

    def _written(self) -> list[Packed]:
        self.executor.forget_constants(frozenset(self.names))
        return [rule.written for rule in self.rules]


class _Rule:
    """The update of a chunk, for functions to trace."""

    def __init__(self, engine: Updater, update: Update) -> None:
        self.names, program, self.first = update
        self.assign = "assign" if program.decrement is None else "assign_sub"  # in place
        self.program = program.decrement or program
        self.variables = [engine.executor.variables[name] for name in self.names]
        alone = len(self.names) == 1
        shape = self.variables[0].shape if alone else (sum(v.shape.num_elements() for v in self.variables),)
        zeros = np.zeros(shape, engine.executor.network.parameters[self.names[0]].value.dtype)
        for slot, _ in self.program.writes:
            if (self.names, slot) not in engine.slots:
                engine.tensor(self.names, slot, zeros)
        self.written: Packed = {slot: engine.slots[self.names, slot] for slot, _ in self.program.writes}
        self.read: Packed = {slot: engine.slots[self.names, slot] for slot in self.program.reads}
        # Memory decides how long large tensors take, and XLA reads and writes each of them once, in place.
        xla = alone and zeros.size > CHUNK and engine.executor.device.kind == "cpu"
        self.call = tf.function(self._update, autograph=False, jit_compile=True) if xla else self._update

    def __call__(self, gradients: Sequence[Any], numbers: Any) -> None:
        self.call(gradients, numbers[self.first : self.first + self.program.count])

    def _update(self, gradients: Sequence[Any], numbers: Any) -> None:
        params = [variable.read_value() for variable in self.variables]
        slots = {slot: variable.read_value() for slot, variable in self.read.items()}
        values = tf.unstack(tf.cast(numbers, params[0].dtype), self.program.count)
        if not (slots or self.written):  # a short rule takes less time than putting together and cutting apart
            for variable, gradient, param in zip(self.variables, gradients, params, strict=True):
                getattr(variable, self.assign)(self.program(gradient, param, {}, values, _FUNCTIONS)[0])
            return
        sizes = [int(np.prod(p.shape)) for p in params]
        functions: dict[str, Any] = {**_FUNCTIONS, "norm": partial(_norms, sizes=sizes)}
        new, after = self.program(_joined(gradients), _joined(params), slots, values, functions)
        pieces = [new] if len(params) == 1 else tf.split(new, sizes)
        for variable, piece in zip(self.variables, pieces, strict=True):
            getattr(variable, self.assign)(tf.reshape(piece, variable.shape))
        for slot, value in after.items():
            self.written[slot].assign(value)
