"""`Optimizer`: ``step(inputs)`` runs a network forward and backward and moves its parameters.

Requirements of the seam, for new optimizers here and for native ones in a framework's folder:

* Hyper-parameters are annotated defaults of the class (see :mod:`deep500.training.optimizers.hyperparameters`), with
  the names and the order of PyTorch's optimizer of that kind. They are attributes, which schedules change between any
  two steps; a native optimizer that keeps a copy (parameter groups) refreshes it in every update.
* A gradient passes through the ``exchange`` (other ranks, :mod:`deep500.training.exchange`), ``gradient_modifier``
  (one parameter at a time), ``gradient_transform`` (all together: clipping), weight decay, in this order, everywhere.
* ``state_dict`` is all that an update depends on besides gradients, parameters and hyper-parameters, so that training
  goes on from a loaded one as if never stopped. Slots are named as PyTorch names them: ``"exp_avg/conv1.weight"``, and
  ``"step"``; what is remembered of no parameter in particular is in ``numbers``.
* A three-step rule is plain arithmetic on the framework's own tensors (``+ - * / ** abs``; a root is ``** 0.5``): one
  file runs on NumPy, PyTorch, TensorFlow and JAX. It must not write into its arguments, nor keep them: keep ``g * 1``.
"""

from __future__ import annotations

import abc
import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from deep500.errors import InputError
from deep500.events import Event
from deep500.networks.execution.executor import GraphExecutor
from deep500.training.exchange import Exchange
from deep500.training.loss_scaling import SCALE, LossScaling
from deep500.training.optimizers.counting import OwnCounts
from deep500.training.optimizers.tunable import Tunable, in_its_group

if TYPE_CHECKING:
    from deep500.training.batch_weights import BatchWeights

GradientModifier: TypeAlias = Callable[[str, Any, Any], Any]
"""``(name, parameter, gradient) -> gradient``, for one parameter at a time."""
GradientTransform: TypeAlias = Callable[[Sequence[str], Sequence[Any]], Sequence[Any]]
"""``(names, gradients) -> gradients``, for all at once; see :class:`deep500.training.clipping.ClipGradientNorm`."""


def _noted(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the method sets ``updated``, by which a scheme sees whether a step has made an update."""

    @wraps(method)
    def noted(self: Optimizer, *arguments: Any) -> Any:
        self.updated = True
        return method(self, *arguments)

    return noted


class Optimizer(Exchange, Tunable, declares=False):
    """Minimizes ``loss`` over the trainable parameters of an executor's network.

    Args:
        executor: runs the network; its parameters are updated in place.
        loss: name of the scalar to minimize.
        gradient_modifier: see :data:`GradientModifier`.
        gradient_transform: see :data:`GradientTransform`.
        groups: dicts of ``"parameters"`` (names, patterns, or ``"norms_and_biases"``) and hyper-parameters of
            their own; see :mod:`deep500.training.optimizers.groups`.
        no_decay: parameters without weight decay, as ``"parameters"`` of a group: ``"norms_and_biases"``.
        accumulate: in how many pieces a batch runs; the gradient is that of the whole, see
            :mod:`deep500.training.accumulation`.
        loss_scaling: of a network in float16, which gets the usual one if None; see
            :mod:`deep500.training.loss_scaling`.
        values, hyperparameters: those that the class declares, in its order or by name.

    Attributes:
        steps: number of updates done so far; in the rule of a parameter that began to train later, of that one's.
        updated: whether parameters were updated since this was last set to False.
        numbers: what is remembered of no parameter in particular, by name.

    Raises:
        InputError: a hyper-parameter is unknown or out of range, or a group fits no parameter.

    Example:
        >>> from deep500.frameworks import reference
        >>> from deep500.networks import add_loss, create
        >>> from deep500.training.optimizers import AdamWOptimizer
        >>> executor = reference.from_model(add_loss(create("mlp", shape=(4,), hidden=(3,), classes=2)))
        >>> optimizer = AdamWOptimizer(executor, lr=0.1, no_decay="norms_and_biases")
        >>> [(part.values, part.names) for part in optimizer.parts()]  # doctest: +NORMALIZE_WHITESPACE
        [({}, ('fc1.weight', 'fc2.weight')), ({'weight_decay': 0.0}, ('fc1.bias', 'fc2.bias'))]
    """

    keeps_parameters: ClassVar[bool] = False
    """Whether its state holds the parameters too, so that it misses changes that a scheme makes to the network's."""
    begins_with: ClassVar[Mapping[str, float]] = {}
    """The ``numbers`` before the first update."""
    judges_other: bool = False
    """Whether a network is judged by other weights than it trains, which :meth:`evaluation` shows."""
    shared: ClassVar[frozenset[str]] = frozenset()
    """Hyper-parameters that no group may have of its own, because ``numbers`` are computed from them."""
    around: ClassVar[Mapping[str, Callable[..., Any]]] = {"update": _noted}
    """Decorators by method: they surround it wherever a subclass defines it, also for a scheme that calls it alone."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Surround the methods that the class defines as :attr:`around` says."""
        super().__init_subclass__(**options)
        for name in cls.around.keys() & vars(cls).keys():
            setattr(cls, name, cls.around[name](vars(cls)[name]))

    def __init__(
        self,
        executor: GraphExecutor,
        loss: str = "loss",
        *values: Any,
        gradient_modifier: GradientModifier | None = None,
        gradient_transform: GradientTransform | None = None,
        groups: Sequence[Mapping[str, Any]] | None = None,
        no_decay: str | Collection[str] | None = None,
        accumulate: int = 1,
        loss_scaling: LossScaling | None = None,
        **hyperparameters: Any,
    ) -> None:
        self.executor, self.loss = executor, loss
        self.gradient_modifier, self.gradient_transform = gradient_modifier, gradient_transform
        self._batch_weights: BatchWeights | None = None
        self._exchange: Exchange | None = None
        self.steps, self.updated, self.counts = 0, False, OwnCounts()
        self.numbers: Mapping[str, float] = dict(self.begins_with)
        self._pairs: tuple[int, list[str], list[str]] | None = None
        self._take(values, hyperparameters)
        self.accumulate, self.backprops, self.modifications = accumulate, 0, 0
        if type(accumulate) is not int or accumulate != 1:
            from deep500.training.accumulation import warn_of_pieces  # here, because most runs are of whole batches

            warn_of_pieces(self.network, loss, accumulate)
        if (loss_scaling is not None) > (SCALE in self.network.inputs):
            raise InputError(
                "got loss_scaling for a network that is not in float16; expected one that mixed_precision made with "
                "'f16': leave loss_scaling out"
            )
        if loss_scaling is None and SCALE in self.network.inputs:
            loss_scaling = LossScaling()
        self.loss_scaling = copy.copy(loss_scaling)  # its scale moves: several runs of a recipe are given one object
        self._divide(groups, no_decay)

    @property
    def network(self) -> Any:
        """The executor's bound network."""
        return self.executor.network

    @property
    def exchange(self) -> Exchange:
        """The exchange with other processes: a scheme, or this optimizer itself."""
        return self if self._exchange is None else self._exchange

    @exchange.setter
    def exchange(self, exchange: Exchange) -> None:
        self._exchange = None if exchange is self else exchange  # a reference to itself would outlive its last user

    @property
    def batch_weights(self) -> BatchWeights:
        """Weights of batches in means over several: what their losses divide by."""
        if self._batch_weights is None:
            from deep500.training.batch_weights import BatchWeights  # here, because a step alone needs none

            self._batch_weights = BatchWeights(self.executor, self.loss)
        return self._batch_weights

    @batch_weights.setter
    def batch_weights(self, weights: BatchWeights) -> None:
        self._batch_weights = weights

    # -- stepping ---------------------------------------------------------------------------------------------------
    def step(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run forward and backward on one batch, update the parameters.

        Args:
            inputs: arrays or tensors by input name.

        Returns:
            the network's outputs and the loss by name, as the framework's tensors (from before the update, which is
            left out where loss scaling finds gradients that are not finite).
        """
        self.prepare()
        exchange, events, scaling = self.exchange, self.executor.events, self.loss_scaling
        outputs = self.run_and_update(inputs)
        if outputs is None:
            outputs = exchange.backprop(inputs)
            if scaling is not None and not scaling.passes(self.network, self.gradient_names(), exchange.all_finite):
                return outputs
            if events.before_update:
                events.emit(events.before_update, self)
            exchange.update()
        self.count_update()
        if events.after_update:
            events.emit(events.after_update, self)
        return outputs

    def count_update(self) -> None:
        """Count an update that was made."""
        self.steps += 1

    @property
    def in_pieces(self) -> bool:
        """Whether forward and backward are more than one plain run of the executor."""
        return self.accumulate > 1 or self.loss_scaling is not None

    def backprop(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Forward and backward over one batch, in pieces if asked for; the executor holds the gradients afterwards.

        Schemes call this, not the executor: it is this process's part of :meth:`Exchange.backprop`.
        """
        self.backprops += 1
        if not self.in_pieces:
            return self.executor.inference_and_backprop(inputs, self.loss)
        from deep500.training.accumulation import backprop_in_pieces

        names, gradients = self._names()
        return backprop_in_pieces(
            self.executor, inputs, self.loss, names, gradients, self.accumulate, self.loss_scaling, self.batch_weights
        )

    def judged_tensors(self, names: Sequence[str]) -> list[Any]:
        """The tensors of these parameters by which the network is judged: those that it trains, unless it says so."""
        return self.network.fetch_tensors(names)

    def prepare(self) -> None:
        """Hook before the forward run; by default nothing."""

    def run_and_update(self, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
        """Backpropagate and update in one where the backend can and nothing has to happen in between; else None."""
        return None

    @abc.abstractmethod
    def update(self) -> None:
        """Apply the gradients that the executor's last run left behind."""

    def train(self, iterations: int, sampler: Any, events: Iterable[Event] = ()) -> list[Any]:
        """Take ``iterations`` steps over a sampler, beginning new epochs as needed, and return the losses.

        Listeners get the batch hooks with a :class:`deep500.training.run.Run`. The losses are the framework's tensors,
        so that nothing waits for the device. Raises InputError for a sampler without batches.
        """
        from deep500.training.run import train  # loops know runs, steps do not

        return train(self, iterations, sampler, events)

    # -- for schemes, which take an optimizer apart ------------------------------------------------------------------
    def new_input(self) -> None:
        """Called once before each forward run; a :class:`ThreeStepOptimizer` says what it does."""

    def prepare_param(self, name: str) -> None:
        """Called for each parameter before the forward run; a :class:`ThreeStepOptimizer` says what it does."""

    def update_rule(self, grad: Any, old_param: Any, name: str) -> Any:
        """The parameter's new value; only a :class:`ThreeStepOptimizer` has this as a step of its own.

        Raises:
            InputError: this optimizer updates all parameters at once.
        """
        raise InputError(
            f"got {type(self).__module__}.{type(self).__qualname__}, which updates all parameters at once; expected a "
            f"three-step optimizer: use deep500.training.optimizers.{type(self).__name__}, which runs on every backend"
        )

    # -- gradients --------------------------------------------------------------------------------------------------
    def parameter_names(self) -> list[str]:
        """Names of the parameters that the loss depends on, in the network's order."""
        return self._names()[0]

    def gradient_names(self) -> list[str]:
        """Names of their gradients, in the same order."""
        return self._names()[1]

    def _names(self) -> tuple[list[str], list[str]]:
        version = self.network.version
        if self._pairs is None or self._pairs[0] != version:
            pairs = self.network.gradient(self.loss)
            self._pairs = (version, [name for name, _ in pairs], [gradient for _, gradient in pairs])
            self.counts.change(self._pairs[1], self.steps)
        return self._pairs[1], self._pairs[2]

    @property
    def changes_gradients(self) -> bool:
        """Whether :meth:`modified` does anything."""
        plain = self.gradient_modifier is None and self.gradient_transform is None
        return not plain or self.exchange.exchanges_gradients

    def modified(self, names: Sequence[str], parameters: Sequence[Any], gradients: Sequence[Any]) -> Sequence[Any]:
        """The gradients after exchange with other ranks, modifier and transform (weight decay belongs to the rule).

        Here, and nowhere else, gradients of this process become those of all.
        """
        self.modifications += 1
        if self.exchange.exchanges_gradients:
            gradients = self.exchange.agreed_gradients(names, gradients)
        if self.gradient_modifier is not None:
            modifier = self.gradient_modifier
            gradients = [modifier(n, p, g) for n, p, g in zip(names, parameters, gradients, strict=True)]
        return gradients if (t := self.gradient_transform) is None else self.exchange.transformed(t, names, gradients)

    # -- state ------------------------------------------------------------------------------------------------------
    @abc.abstractmethod
    def state_dict(self) -> dict[str, np.ndarray]:
        """Everything that later updates depend on, as arrays: ``"step"``, ``"<slot>/<parameter>"``, and
        ``"own_steps/<parameter>"`` of parameters that began to train later."""

    @abc.abstractmethod
    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from what :meth:`state_dict` returned; raises InputError if it does not belong to these parameters."""

    def load_counts(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from the counts of parameters in a checked state."""
        self.parameter_names()  # which the counts have to know
        self.counts.load(state, self.steps)
        self._parts = None

    def checked_slots(self, state: Mapping[str, np.ndarray]) -> Iterator[tuple[str, str, np.ndarray]]:
        """Slot, parameter and array of each entry of a state, for :meth:`load_state_dict`, which says when it fails."""
        from deep500.training.optimizers.states import checked_slots  # here, because steps load none

        return checked_slots(self, state)

    def slot_shape(self, slot: str, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of what a slot holds of a parameter, whose own shape this is unless an optimizer says otherwise."""
        return shape


class ThreeStepOptimizer(Optimizer):
    """An optimizer in three steps, which a distributed scheme can take apart.

    For each input: :meth:`new_input` once, :meth:`prepare_param` for each parameter, run forward and backward, then
    :meth:`update_rule` for each parameter. What is remembered between steps lives in ``state[slot][parameter]``.

    A rule of plain arithmetic runs for all parameters at once where the backend compiles it, else parameter by
    parameter; ``updates.refusal`` says why. Every step runs it on symbols first (``optimizers/tracing.py``).

    Attributes:
        coming: the ``numbers`` as the coming update makes them, for the rule; see :meth:`next_numbers`.

    Example (gradient descent whose rate falls as 1/t):
        >>> class Falling(ThreeStepOptimizer):
        ...     lr: float = 0.1
        ...     def new_input(self): self.rate = self.lr / (self.steps + 1)
        ...     def prepare_param(self, name): pass
        ...     def update_rule(self, grad, old_param, name): return old_param - self.rate * grad
        >>> import inspect; inspect.isabstract(Falling)
        False
    """

    elementwise: ClassVar[bool] = False
    """Whether :meth:`update_rule` gives each element what it would give it alone, so that a rank may hold some elements
    of a parameter only. Each class says it of itself: a subclass does not inherit the promise."""
    needs_all: ClassVar[bool] = False
    """Whether :meth:`take_all` has to see all gradients of an update, before its rules."""
    around: ClassVar[Mapping[str, Callable[..., Any]]] = {
        "update": _noted,
        "update_rule": lambda method: _noted(in_its_group(method)),
        "prepare_param": in_its_group,
    }

    def __init__(self, executor: GraphExecutor, loss: str = "loss", *values: Any, **options: Any) -> None:
        from deep500.training.optimizers.updates import Updates  # here, because native optimizers need none

        self.updates = Updates()
        if hasattr(executor, "update_engine"):
            from deep500.training.optimizers.compiling import CompiledUpdates

            self.updates = CompiledUpdates()
        super().__init__(executor, loss, *values, **options)
        self.coming = self.numbers

    @abc.abstractmethod
    def new_input(self) -> None:
        """Called once before each forward run."""

    @abc.abstractmethod
    def prepare_param(self, name: str) -> None:
        """Called for each parameter before the forward run; may change it with ``self.network.assign_tensor``."""

    @abc.abstractmethod
    def update_rule(self, grad: Any, old_param: Any, name: str) -> Any:
        """The parameter's new value, a new tensor."""

    @property
    def state(self) -> dict[str, dict[str, Any]]:
        """The state between steps: slot -> parameter -> tensor."""
        return self.updates.state

    @state.setter
    def state(self, state: dict[str, dict[str, Any]]) -> None:
        self.updates.state = state

    def run_and_update(self, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
        cls, methods = type(self), ("update", "apply_gradients", "backprop")
        plain = all(getattr(cls, name) is getattr(ThreeStepOptimizer, name) for name in methods)
        return self.updates.run(self, inputs) if plain and not self.needs_all else None

    def take_all(self, rows: Sequence[tuple[str, Any, Any]]) -> None:
        """Look at names, parameters and gradients of all that this process updates, if ``needs_all``."""

    def next_numbers(self) -> Mapping[str, float]:
        """The ``numbers`` after the coming update, from those now and hyper-parameters; by default as they are.

        Called before each forward run; they count when the update is made, which loss scaling may leave out.
        """
        return self.numbers

    def count_update(self) -> None:
        self.numbers = self.coming
        super().count_update()

    def prepare(self) -> None:
        """Steps one and two."""
        self.new_input()
        if type(self).prepare_param is not UpdateRuleOptimizer.prepare_param:
            for name in self._owned(self.parameter_names()):
                self.prepare_param(name)
        self.exchange.after_prepare()

    def update(self) -> None:
        """Step three: fetch, modify, apply the rule, assign."""
        names, gradient_names = self._names()
        plain = type(self).apply_gradients is ThreeStepOptimizer.apply_gradients and not self.changes_gradients
        if plain and not self.needs_all and self.updates.apply(self, self._owned(names)):
            return
        tensors = self.network.fetch_tensors([*names, *gradient_names])
        self.apply_gradients(names, tensors[: len(names)], tensors[len(names) :])

    def apply_gradients(self, names: Sequence[str], parameters: Sequence[Any], gradients: Sequence[Any]) -> None:
        """Apply the rule with these gradients, for instance averages over ranks; counting ``steps`` is the caller's."""
        gradients, owned = self.modified(names, parameters, gradients), self.exchange.owned
        rows = [row for row in zip(names, parameters, gradients, strict=True) if owned is None or row[0] in owned]
        if self.needs_all:
            self.take_all(rows)
        alike = all(getattr(g, "shape", None) == old.shape and g.dtype == old.dtype for _, old, g in rows)
        if not (alike and self.updates.apply(self, [name for name, *_ in rows], [gradient for *_, gradient in rows])):
            for name, old, gradient in rows:
                self.network.assign_tensor(name, self.update_rule(gradient, old, name))

    def _owned(self, names: Sequence[str]) -> Sequence[str]:
        """Those that this process updates."""
        owned = self.exchange.owned
        return names if owned is None else [name for name in names if name in owned]

    def slot(self, name: str) -> dict[str, Any]:
        """The tensors remembered under a slot's name, by parameter."""
        return self.state.setdefault(name, {})

    def state_dict(self) -> dict[str, np.ndarray]:
        state = {"step": np.asarray(self.steps, np.int64), **self.number_arrays()}
        for slot, arrays in self.updates.arrays(self.network.to_numpy).items():
            state.update({f"{slot}/{name}": array for name, array in arrays.items()})
        return state

    def number_arrays(self) -> dict[str, np.ndarray]:
        """The part of :meth:`state_dict` that is numbers, but for ``"step"``."""
        numbers = {name: np.asarray(number, np.float64) for name, number in self.numbers.items()}
        return {**numbers, **self.counts.arrays(self.steps)}

    def load_numbers(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from the ``"step"`` and the numbers of a checked state."""
        self.steps = int(state["step"])
        self.load_counts(state)
        self.numbers = self.coming = {name: float(state[name]) for name in self.numbers}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        loaded: dict[str, dict[str, Any]] = {}
        for slot, name, array in self.checked_slots(state):
            loaded.setdefault(slot, {})[name] = self.network.to_tensor(array)
        self.state = loaded
        self.load_numbers(state)


class UpdateRuleOptimizer(ThreeStepOptimizer):
    """A three-step optimizer that needs only :meth:`update_rule`."""

    decoupled: ClassVar[bool] = False
    """Whether weight decay is ``w <- (1 - lr weight_decay) w``, beside the step."""

    def new_input(self) -> None:
        """Compute the numbers of the coming update."""
        self.coming = self.next_numbers()

    def decayed(self, param: Any) -> Any:
        """A parameter after decoupled weight decay, beside which the rule takes its step; as it is if there is none."""
        return (1 - self.lr * self.weight_decay) * param if self.decoupled else param  # type: ignore[attr-defined]

    def prepare_param(self, name: str) -> None:
        """Nothing to do."""
