"""Optimizers that run with the network in one ``tf.function``: forward, backward and update, under the usual names.

TensorFlow's kernels update the variables in place where their formula is PyTorch's (momentum, Adam with its eps scaled,
AdaGrad); RMSprop's is not (eps stands inside its root), nor is dampened momentum: these are written out. Keras's
optimizers are not used: SGD puts the learning rate into the velocity, Adagrad and Adam place eps elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from deep500.frameworks.tensorflow.dtypes import from_array, to_array
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.execution.executor import GraphExecutor
from deep500.training import optimizers
from deep500.training.optimizers import Optimizer

Slots = dict[str, Any]
Numbers = Mapping[str, Any]


class NativeOptimizer(Optimizer):
    """An optimizer whose rule is part of the training step; ``state_dict`` has the slots of the reference optimizer.

    A class says which optimizer it is like, which ``slots`` it keeps and what :meth:`rule` does to a variable.
    Hyper-parameters reach the graph as tensors, so that schedules change them without tracing again; those that decide
    what is computed (:meth:`shape`) are traced anew.
    """

    if TYPE_CHECKING:  # hyper-parameters, which the optimizer that a class is like declares

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, executor: GraphExecutor, loss: str = "loss", *values: Any, **options: Any) -> None:
        super().__init__(executor, loss, *values, **options)
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
        return {"lr": self.lr}

    def shape(self) -> tuple[Any, ...]:
        """What decides how the rule looks."""
        return ()

    def rule(self, variable: Any, grad: Any, slots: Slots, n: Numbers) -> None:
        """Update one variable and its slots; ``n`` holds :meth:`numbers` in the variable's dtype."""
        raise NotImplementedError

    # -- stepping -----------------------------------------------------------------------------------------------------
    def step(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """One function for everything, unless gradients are changed or watched between backward and update."""
        executor: Any = self.executor
        events = executor.events
        if self.changes_gradients or self.in_pieces or events.before_update:
            return super().step(inputs)
        executor._check_planned(inputs, self.loss)
        compiled = executor.training_step(self.loss)
        self._refresh()
        compiled.check(inputs)
        key = ("step", id(compiled), *self._each(self.shape))
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
        key = ("update", *self._each(self.shape))
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
        of = dict(zip(self.parameter_names(), gradients, strict=True))
        parts, first, count = self.parts(), 0, len(self._flat())
        by_dtype: dict[Any, Sequence[Any]] = {}  # numbers come as one float64 tensor: one transfer per step
        for part in parts:
            with self.within(part):
                names = list(self.numbers())
                decays = bool(getattr(self, "weight_decay", 0.0)) and self.couples_decay
                for name in part.names:
                    variable, gradient = executor.variables[name], of[name]
                    if variable.dtype not in by_dtype:
                        by_dtype[variable.dtype] = tf.unstack(tf.cast(values, variable.dtype), count)
                    numbers = dict(zip(names, by_dtype[variable.dtype][first : first + len(names)], strict=True))
                    total = gradient + numbers["weight_decay"] * variable if decays else gradient
                    self.rule(variable, total, self._slots[name], numbers)
            first += len(names)

    couples_decay = True
    """Whether weight decay is part of the gradient."""

    def _values(self) -> Any:
        numbers = self._flat()
        if self._sent is None or self._sent[0] != numbers:
            self._sent = numbers, tf.constant(numbers, tf.float64)
        return self._sent[1]

    def _flat(self) -> tuple[float, ...]:
        return tuple(number for part in self._each(self.numbers) for number in part.values())

    def _each(self, tell: Callable[[], Any]) -> list[Any]:
        """What a method tells under the hyper-parameters of each part."""
        told = []
        for part in self.parts():
            with self.within(part):
                told.append(tell())
        return told

    def _refresh(self) -> None:
        """Make the slots that are missing; what was traced for a network that has changed is dropped."""
        executor: Any = self.executor
        self._begun = set()
        wanted = self._each(self.slots)
        if (self.network.version, wanted) == self._version:
            return
        self._functions, self._version = {}, (self.network.version, wanted)
        pairs = [(n, begin) for part, begin in zip(self.parts(), wanted, strict=True) for n in part.names]
        for name, begin in pairs:
            slots = self._slots.setdefault(name, {})
            for slot, first in begin.items():
                variable = executor.variables[name]
                # init_scope: a variable that is made while tracing would belong to the traced graph
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
        executor: Any = self.executor
        loaded: dict[str, Slots] = {}
        for slot, name, array in self.checked_slots(state):
            with tf.device(executor.tf_device):
                first = executor.held(name, from_array(np.array(np.broadcast_to(array, executor.shape(name)))))
                loaded.setdefault(name, {})[slot] = tf.Variable(first, trainable=False)
        self.steps, self._slots, self._version = int(state["step"]), loaded, None


class GradientDescent(NativeOptimizer, like=optimizers.GradientDescent):
    """The rule of :class:`deep500.training.optimizers.GradientDescent`, traced into the step."""

    def numbers(self) -> dict[str, float]:
        return {"lr": self.lr, "weight_decay": self.weight_decay}

    def shape(self) -> tuple[Any, ...]:
        return (bool(self.weight_decay),)

    def rule(self, variable: Any, grad: Any, slots: Slots, n: Numbers) -> None:
        variable.assign_sub(n["lr"] * grad)


class MomentumOptimizer(NativeOptimizer, like=optimizers.MomentumOptimizer):
    """The rule of :class:`deep500.training.optimizers.MomentumOptimizer`, traced into the step."""

    def slots(self) -> dict[str, float]:
        return {"momentum_buffer": 0.0} if self.momentum else {}

    def numbers(self) -> dict[str, float]:
        return {
            "lr": self.lr,
            "momentum": self.momentum,
            "share": 1 - self.dampening,
            "weight_decay": self.weight_decay,
        }

    def shape(self) -> tuple[Any, ...]:
        begun = frozenset(self._begun) if self.dampening else None
        return bool(self.momentum), begun, bool(self.weight_decay), self.nesterov

    def rule(self, variable: Any, grad: Any, slots: Slots, n: Numbers) -> None:
        if not self.momentum:
            variable.assign_sub(n["lr"] * grad)
            return
        if self.dampening and id(slots) not in self._begun:  # the first gradient enters whole
            grad = grad * n["share"]
        tf.raw_ops.ResourceApplyMomentum(
            var=variable.handle,
            accum=slots["momentum_buffer"].handle,
            lr=n["lr"],
            grad=grad,
            momentum=n["momentum"],
            use_nesterov=self.nesterov,
        )


class AdamOptimizer(NativeOptimizer, like=optimizers.AdamOptimizer):
    """The rule of :class:`deep500.training.optimizers.AdamOptimizer`, traced into the step."""

    def slots(self) -> dict[str, float]:
        return {"exp_avg": 0.0, "exp_avg_sq": 0.0}

    def numbers(self) -> dict[str, float]:
        (b1, b2), t = self.betas, self.steps + 1
        # the kernel's eps stands beside the root of the uncorrected moment: scaled, the formula is the paper's
        return {
            "lr": self.lr,
            "b1": b1,
            "b2": b2,
            "p1": b1**t,
            "p2": b2**t,
            "eps": self.eps * (1 - b2**t) ** 0.5,
            "weight_decay": self.weight_decay,
            "kept": 1 - self.lr * self.weight_decay,
        }

    def shape(self) -> tuple[Any, ...]:
        return (bool(self.weight_decay),)

    def rule(self, variable: Any, grad: Any, slots: Slots, n: Numbers) -> None:
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=slots["exp_avg"].handle,
            v=slots["exp_avg_sq"].handle,
            beta1_power=n["p1"],
            beta2_power=n["p2"],
            lr=n["lr"],
            beta1=n["b1"],
            beta2=n["b2"],
            epsilon=n["eps"],
            grad=grad,
        )


class AdamWOptimizer(AdamOptimizer, like=optimizers.AdamWOptimizer):
    """The rule of :class:`deep500.training.optimizers.AdamWOptimizer`, traced into the step."""

    couples_decay = False

    def rule(self, variable: Any, grad: Any, slots: Slots, n: Numbers) -> None:
        if self.weight_decay:
            variable.assign(variable * n["kept"])
        super().rule(variable, grad, slots, n)


class AdaGradOptimizer(NativeOptimizer, like=optimizers.AdaGradOptimizer):
    """The rule of :class:`deep500.training.optimizers.AdaGradOptimizer`, traced into the step."""

    def slots(self) -> dict[str, float]:
        return {"sum": self.initial_accumulator_value}

    def numbers(self) -> dict[str, float]:
        return {"lr": self.lr / (1 + self.steps * self.lr_decay), "eps": self.eps, "weight_decay": self.weight_decay}

    def shape(self) -> tuple[Any, ...]:
        return (bool(self.weight_decay),)

    def rule(self, variable: Any, grad: Any, slots: Slots, n: Numbers) -> None:
        tf.raw_ops.ResourceApplyAdagradV2(
            var=variable.handle, accum=slots["sum"].handle, lr=n["lr"], epsilon=n["eps"], grad=grad
        )


class RMSPropOptimizer(NativeOptimizer, like=optimizers.RMSPropOptimizer):
    """The rule of :class:`deep500.training.optimizers.RMSPropOptimizer`, traced into the step."""

    def slots(self) -> dict[str, float]:
        wanted = {"square_avg": True, "grad_avg": self.centered, "momentum_buffer": bool(self.momentum)}
        return {name: 0.0 for name, used in wanted.items() if used}

    def numbers(self) -> dict[str, float]:
        return {
            "lr": self.lr,
            "alpha": self.alpha,
            "rest": 1 - self.alpha,
            "eps": self.eps,
            "momentum": self.momentum,
            "weight_decay": self.weight_decay,
        }

    def shape(self) -> tuple[Any, ...]:
        return bool(self.weight_decay), bool(self.momentum), self.centered

    def rule(self, variable: Any, grad: Any, slots: Slots, n: Numbers) -> None:
        def average(slot: str, value: Any) -> Any:
            return slots[slot].assign(n["alpha"] * slots[slot] + n["rest"] * value, read_value=True)

        variance = average("square_avg", grad * grad)
        if self.centered:  # rounding may put the difference a hair below zero
            variance = tf.abs(variance - tf.square(average("grad_avg", grad)))
        direction = grad / (tf.sqrt(variance) + n["eps"])
        if self.momentum:
            direction = slots["momentum_buffer"].assign(n["momentum"] * slots["momentum_buffer"] + direction)
        variable.assign_sub(n["lr"] * direction)
