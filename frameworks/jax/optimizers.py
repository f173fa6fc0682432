"""JAX's optimizers under the names and keywords of the reference ones: one jitted update of all parameters.

Optax's transformations are used where their formula is PyTorch's (momentum, Adam, AdamW); where it is not, the exact
one is written out: optax has no dampening, its AdaGrad takes ``rsqrt(s + eps)``, its centered RMSProp can take the root
of a hair below zero. Hyper-parameters are arguments of the jitted function: a schedule compiles nothing.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.losses import gradient_name
from deep500.training import optimizers
from deep500.training.optimizers import Optimizer
from deep500.training.optimizers.groups import Part

Tree: TypeAlias = dict[str, Any]
"""Arrays by parameter."""
Slots: TypeAlias = dict[str, Tree]
"""What is remembered between steps: slot -> parameter -> array."""


class NativeOptimizer(Optimizer):
    """An optimizer whose update is one jitted function; ``state_dict`` has the reference optimizer's slots.

    A class has ``slots``, ``rule`` and the optimizer that it is like. The buffers of slots are donated (nothing else
    holds them); those of parameters are not.
    """

    if TYPE_CHECKING:  # hyper-parameters, which the optimizer that a class is like declares

        def __getattr__(self, name: str) -> Any: ...

    coupled: ClassVar[bool] = True
    """Whether weight decay enters the gradient, before the rule."""

    def __init__(self, executor: GraphExecutor, loss: str = "loss", *values: Any, **options: Any) -> None:
        super().__init__(executor, loss, *values, **options)
        self._slots: dict[str, Tree] = {}
        self._jitted: dict[Any, Callable[..., Any]] = {}

    def slots(self) -> dict[str, float]:
        """Names of the slots that the present hyper-parameters need, and what they begin with."""
        return {}

    @abc.abstractmethod
    def rule(self, h: Mapping[str, Any], t: Any, params: Tree, grads: Tree, slots: Slots) -> tuple[Tree, Slots]:
        """New parameters and slots. ``h`` holds the hyper-parameters (traced, where they are numbers; ask
        :meth:`on` whether one counts), ``t`` counts from 1."""

    def on(self, name: str) -> bool:
        """Whether a hyper-parameter is true, or not 0."""
        return bool(getattr(self, name))

    def update(self) -> None:
        """Apply the gradients of the last run."""
        names, executor = self.parameter_names(), cast(Any, self.executor)
        tensors, gradients = executor.tensors, executor.gradients
        params = {name: tensors[name] for name in names}
        grads = {n: gradients[n] if n in gradients else executor.result(gradient_name(n)) for n in names}
        if self.changes_gradients:
            changed = self.modified(names, list(params.values()), list(grads.values()))
            grads = dict(zip(names, changed, strict=True))
        parts, step = self.parts(), float(self.steps + 1)
        numbers, ready = [], []
        for part in parts:
            with self.within(part):
                numbers.append({n: v for n, v in self.get_parameters().items() if not isinstance(v, bool)})
                ready.append(self._ready({name: params[name] for name in part.names}))
        new, slots = self._function(parts)(numbers, step, params, grads, ready)
        self._slots = {}
        for of_part in slots:
            for slot, arrays in of_part.items():
                self._slots.setdefault(slot, {}).update(arrays)
        tensors.update(new)

    def _ready(self, params: Tree) -> dict[str, Tree]:
        """The slots; those of parameters that are new are begun."""
        wanted = self.slots()
        ready: dict[str, Tree] = {}
        for slot, start in wanted.items():
            old = self._slots.get(slot, {})
            ready[slot] = {n: old[n] if n in old else jnp.full_like(p, start) for n, p in params.items()}
        return ready

    def _function(self, parts: Sequence[Part]) -> Callable[..., Any]:
        """The update, jitted once for each set of hyper-parameters that count."""
        # values are traced, so that a schedule compiles nothing; only whether a term is there decides the code
        count = []
        for part in parts:
            with self.within(part):
                count.append((part.names, tuple(name for name in self.hyperparameters if self.on(name))))
        key = tuple(count)
        if key not in self._jitted:

            def update(h: Any, t: Any, params: Tree, grads: Tree, slots: Any) -> tuple[Tree, list[Slots]]:
                new, kept = dict[str, Any](), []
                for part, numbers, held, (_, on) in zip(parts, h, slots, key, strict=True):
                    some, their = ({name: tree[name] for name in part.names} for tree in (params, grads))
                    with self.within(part):
                        if self.coupled and "weight_decay" in on:
                            decay = numbers["weight_decay"]
                            their = {name: their[name] + decay * some[name] for name in part.names}
                        updated, after = self.rule(numbers, t, some, their, held)
                    new.update(updated)
                    kept.append(after)
                return new, kept

            self._jitted[key] = jax.jit(update, donate_argnums=4)
        return self._jitted[key]

    def state_dict(self) -> dict[str, np.ndarray]:
        state = {"step": np.asarray(self.steps, np.int64)}
        for slot, tensors in self._slots.items():
            state.update({f"{slot}/{name}": np.array(tensor) for name, tensor in tensors.items()})
        return state

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        parameters, loaded = self.network.parameters, dict[str, Tree]()
        for slot, name, array in self.checked_slots(state):
            like = parameters[name].value
            full = np.broadcast_to(np.asarray(array, like.dtype), like.shape)
            loaded.setdefault(slot, {})[name] = self.network.to_tensor(full)
        self.steps, self._slots = int(state["step"]), loaded


def _map(function: Callable[..., Any], *trees: Tree) -> Tree:
    return {name: function(*(tree[name] for tree in trees)) for name in trees[0]}


def _descend(params: Tree, rate: Any, directions: Tree) -> Tree:
    return _map(lambda w, d: w - rate * d, params, directions)


class GradientDescent(NativeOptimizer, like=optimizers.GradientDescent):
    """``w <- w - lr g``."""

    def rule(self, h: Mapping[str, Any], t: Any, params: Tree, grads: Tree, slots: Slots) -> tuple[Tree, Slots]:
        return _descend(params, h["lr"], grads), slots


class MomentumOptimizer(NativeOptimizer, like=optimizers.MomentumOptimizer):
    """``optax.trace``: ``v <- momentum v + g;  w <- w - lr v``; arguments of
    :class:`deep500.training.optimizers.MomentumOptimizer`. With dampening, from the second step on
    ``v <- momentum v + (1 - dampening) g``, which optax does not have."""

    def slots(self) -> dict[str, float]:
        return {"momentum_buffer": 0.0} if self.momentum else {}

    def rule(self, h: Mapping[str, Any], t: Any, params: Tree, grads: Tree, slots: Slots) -> tuple[Tree, Slots]:
        if not self.on("momentum"):
            return _descend(params, h["lr"], grads), slots
        buffers = slots["momentum_buffer"]
        if self.on("dampening"):
            share = jnp.where(t == 1, 1.0, 1 - h["dampening"])
            new = _map(lambda v, g: h["momentum"] * v + share.astype(g.dtype) * g, buffers, grads)
            return _descend(params, h["lr"], new), {"momentum_buffer": new}
        transformation = optax.trace(h["momentum"], self.nesterov)
        directions, state = transformation.update(grads, optax.TraceState(buffers))
        return _descend(params, h["lr"], directions), {"momentum_buffer": state.trace}


class AdamOptimizer(NativeOptimizer, like=optimizers.AdamOptimizer):
    """``optax.scale_by_adam``."""

    def slots(self) -> dict[str, float]:
        return {"exp_avg": 0.0, "exp_avg_sq": 0.0}

    def rule(self, h: Mapping[str, Any], t: Any, params: Tree, grads: Tree, slots: Slots) -> tuple[Tree, Slots]:
        count = (t - 1).astype(np.int32)
        before = optax.ScaleByAdamState(count, slots["exp_avg"], slots["exp_avg_sq"])
        transformation = optax.scale_by_adam(*h["betas"], eps=h["eps"])
        directions, state = transformation.update(grads, before)
        return _descend(params, h["lr"], directions), {"exp_avg": state.mu, "exp_avg_sq": state.nu}


class AdamWOptimizer(AdamOptimizer, like=optimizers.AdamWOptimizer):
    """Adam after ``w <- (1 - lr weight_decay) w``, as ``optax.adamw`` has it; arguments of
    :class:`deep500.training.optimizers.AdamWOptimizer`."""

    coupled = False

    def rule(self, h: Mapping[str, Any], t: Any, params: Tree, grads: Tree, slots: Slots) -> tuple[Tree, Slots]:
        decayed = _map(lambda w: (1 - h["lr"] * h["weight_decay"]) * w, params)
        return super().rule(h, t, decayed, grads, slots)


class AdaGradOptimizer(NativeOptimizer, like=optimizers.AdaGradOptimizer):
    """``s <- s + g^2;  w <- w - lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps)``; arguments of
    :class:`deep500.training.optimizers.AdaGradOptimizer`."""

    def slots(self) -> dict[str, float]:
        return {"sum": self.initial_accumulator_value}

    def rule(self, h: Mapping[str, Any], t: Any, params: Tree, grads: Tree, slots: Slots) -> tuple[Tree, Slots]:
        sums = _map(lambda s, g: s + g * g, slots["sum"], grads)
        directions = _map(lambda g, s: g / (jnp.sqrt(s) + h["eps"]), grads, sums)
        return _descend(params, h["lr"] / (1 + (t - 1) * h["lr_decay"]), directions), {"sum": sums}


class RMSPropOptimizer(NativeOptimizer, like=optimizers.RMSPropOptimizer):
    """``s <- alpha s + (1 - alpha) g^2;  d = g / (sqrt(s) + eps)``, centered ``d = g / (sqrt(s - a^2) + eps)``; with
    momentum ``b <- momentum b + d``; arguments of :class:`deep500.training.optimizers.RMSPropOptimizer`."""

    def slots(self) -> dict[str, float]:
        names = {"square_avg": True, "grad_avg": self.centered, "momentum_buffer": bool(self.momentum)}
        return {name: 0.0 for name, needed in names.items() if needed}

    def rule(self, h: Mapping[str, Any], t: Any, params: Tree, grads: Tree, slots: Slots) -> tuple[Tree, Slots]:
        def average(old: Any, new: Any) -> Any:
            return h["alpha"] * old + (1 - h["alpha"]) * new

        new = {"square_avg": _map(average, slots["square_avg"], _map(lambda g: g * g, grads))}
        variance = new["square_avg"]
        if self.centered:  # rounding may put the difference a hair below zero
            new["grad_avg"] = _map(average, slots["grad_avg"], grads)
            variance = _map(lambda s, a: jnp.abs(s - a * a), variance, new["grad_avg"])
        directions = _map(lambda g, s: g / (jnp.sqrt(s) + h["eps"]), grads, variance)
        if self.on("momentum"):
            buffers = slots["momentum_buffer"]
            directions = new["momentum_buffer"] = _map(lambda b, d: h["momentum"] * b + d, buffers, directions)
        return _descend(params, h["lr"], directions), new
