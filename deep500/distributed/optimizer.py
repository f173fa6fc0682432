"""`DistributedOptimizer`: any optimizer, on many ranks. A scheme derives from it in about ten lines.

Requirements of the seam, for the author of a scheme. Override one of

* :meth:`~DistributedOptimizer.exchange_gradients`: what the base optimizer gets instead of this rank's gradients;
* :meth:`~DistributedOptimizer.mix`: what happens to the parameters after the base optimizer's update;
* :meth:`~DistributedOptimizer.step` itself, with ``self.base_optimizer``, ``self.network``, ``self.executor`` and
  ``self.communication``, for everything else.

The batch of all ranks together is the batch of the serial run: ``loss`` must be a mean, and means over ranks are
weighted by ``self.samples``, which is what it divides by on this rank's share of the batch
(:class:`~deep500.training.batch_weights.BatchWeights`): its samples, or labels that count and weights of classes. The
share may be empty, and nothing in it may count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, ClassVar

import numpy as np

from deep500.distributed.buckets import Buckets
from deep500.distributed.checks import check_networks, check_shares
from deep500.distributed.replica import Replica
from deep500.distributed.tensors import TensorCommunicator
from deep500.distributed.traits import Traits
from deep500.distributed.transports.communicator import Communicator
from deep500.distributed.world import world
from deep500.errors import CommunicationError, InputError
from deep500.networks.drawing import check_drawn
from deep500.training.exchange import undone
from deep500.training.optimizers.base import Optimizer

_INSIDE = "scheme.inside."
"""Before what a scheme inside of another remembers, in the state of both."""


def _observed(step: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """A scheme's step, with the work common to all schemes: shares of the batch and counting."""

    @wraps(step)
    def observed(self: DistributedOptimizer, inputs: Mapping[str, Any]) -> dict[str, Any]:
        if self._within_step:  # super().step()
            return step(self, inputs)
        self.samples = self.batch_weights(inputs)
        if self.inside is not None:
            self.samples = self.inside.samples_together(self.samples)
        check_shares(self.comm, self.samples)
        self._within_step = True
        base = innermost(self.base_optimizer)
        before, backprops, modifications, base.updated = base.steps, base.backprops, base.modifications, False
        try:
            outputs = step(self, inputs)
        finally:
            self._within_step = False
        if base.in_pieces and outputs and base.backprops == backprops:
            raise InputError(
                f"got {type(self).__name__}, whose step calls the executor, with accumulate={base.accumulate}; "
                "expected it to call self.base_optimizer.backprop(inputs), which runs the batch in pieces: change the "
                "scheme, or leave accumulate out"
            )
        unmodified = [name for name in ("gradient_modifier", "gradient_transform") if getattr(base, name) is not None]
        if unmodified and base.updated and base.modifications == modifications:
            raise InputError(
                f"got {type(self).__name__}, whose step applies update_rule itself, with {' and '.join(unmodified)}; "
                "expected it to call self.base_optimizer.apply_gradients(names, parameters, gradients), which modifies "
                "them: change the scheme, or leave that out"
            )
        if base.updated and base.steps == before:
            base.count_update()  # the scheme applied the rule itself; a rank that made no update counts none
        self.steps += 1
        return outputs

    return observed


def innermost(optimizer: Any) -> Any:
    """The optimizer in all schemes around it."""
    while isinstance(optimizer, DistributedOptimizer):
        optimizer = optimizer.base_optimizer
    return optimizer


class DistributedOptimizer(Traits, Replica):
    """Wraps an optimizer so that all ranks train one network together; the initial parameters are those of rank 0.

    By itself it lets every rank train alone after that: schemes say what is exchanged.

    Args:
        base_optimizer: made for this rank's executor. A scheme that calls its ``update_rule`` needs a
            :class:`~deep500.training.optimizers.ThreeStepOptimizer`; the others take a framework's own too. Or a scheme
            on another axis of a mesh (:class:`~deep500.distributed.schemes.mesh.SchemeMesh`).
        comm: the communicator; that of this process (:func:`deep500.distributed.world`) if None.

    Attributes:
        base_optimizer: what does the updates.
        comm: exchanges arrays.
        communication: exchanges tensors of the framework.
        samples: how many samples of the present batch this rank has; where the loss divides by something else, by how
            much.

    Raises:
        CommunicationError: fewer ranks than ``least_ranks``, or ranks with different networks.
        InputError: a loss that is no mean, on several ranks.

    Example (gradients summed with ring neighbours):
        >>> class Neighbours(DistributedOptimizer):
        ...     def step(self, inputs):
        ...         self.base_optimizer.new_input()
        ...         for name in self.network.get_params():
        ...             self.base_optimizer.prepare_param(name)
        ...         outputs = self.base_optimizer.backprop(inputs)
        ...         for param_name, grad_name in self.network.gradient(self.base_optimizer.loss):
        ...             param, grad = self.network.fetch_tensors([param_name, grad_name])
        ...             grad = self.communication.reduce_from_neighbors(grad) / 3
        ...             param = self.base_optimizer.update_rule(grad, param, param_name)
        ...             self.network.feed_tensor(param_name, param)
        ...         return outputs
        >>> Neighbours.least_ranks
        1
    """

    around: ClassVar[Mapping[str, Callable[..., Any]]] = {"step": _observed}

    def __init__(self, base_optimizer: Optimizer, comm: Communicator | None = None) -> None:
        if not isinstance(base_optimizer, Optimizer):
            raise InputError(
                f"got {type(base_optimizer).__name__} to distribute; expected an optimizer made for an executor, such "
                "as MomentumOptimizer(executor): pass that"
            )
        self.comm = world() if comm is None else comm
        if self.comm.size < self.least_ranks:
            raise CommunicationError(
                f"got {self.comm.size} rank for {type(self).__name__}; expected at least {self.least_ranks}: start "
                f"more with --ranks {self.least_ranks}, or train without it"
            )
        if self.changes_parameters and self.comm.size > 1 and innermost(base_optimizer).keeps_parameters:
            raise InputError(
                f"got {type(base_optimizer).__name__} for {type(self).__name__}; expected an optimizer that takes the "
                "parameters from the network, which this scheme changes: this one keeps them itself. Use a scheme that "
                "exchanges gradients, such as ConsistentDecentralized, or another optimizer"
            )
        if not self.draws:
            check_drawn(base_optimizer.network, f"{type(self).__name__}, whose ranks hold the network when it is made")
        scaled = self.comm.size > 1 and base_optimizer.loss_scaling is not None
        if scaled and not self.agrees_on_overflow:
            raise InputError(
                f"got float16 with loss scaling for {type(self).__name__} on {self.comm.size} ranks; expected a scheme "
                "whose ranks agree on what overflows, such as ConsistentDecentralized: use that, or bf16, or one rank"
            )
        super().__init__(base_optimizer)
        if self.comm.size > 1 and not self.sees_whole_batch:
            self.batch_weights.denominator.check(self.loss, f"{type(self).__name__} on {self.comm.size} ranks")
        self.samples: float = 0
        self.rank, self._within_step = self.comm.world.rank, False
        self.inside = base_optimizer if isinstance(base_optimizer, DistributedOptimizer) else None
        self.communication = TensorCommunicator(self.comm, self.network)
        if self.comm.size > 1:
            kind = type(self).__name__ + (f" with {self.executor.backend}" if self.one_backend else "")
            check_networks(self.comm, self.network, kind)
            if self.inside is None:
                self.set_all(Buckets.like(arrays := self.all_arrays()).broadcast(self.comm, arrays))
            else:
                self.owned = self.inside.owned
                for trait in ("consistent", "whole", "agrees_on_statistics"):
                    setattr(self, trait, getattr(self, trait) and getattr(self.inside, trait))
            self.exchanges_gradients = type(self).exchange_gradients is not DistributedOptimizer.exchange_gradients
            base_optimizer.exchange = self  # from here on its gradients pass through agreed_gradients

    # -- what a scheme says -------------------------------------------------------------------------------------------
    def exchange_gradients(self, names: Sequence[str], gradients: Sequence[Any]) -> Sequence[Any]:
        """The gradients that the base optimizer gets, tensors of the framework; not called with one rank."""
        return gradients

    def mix(self) -> None:
        """Called after every update of the base optimizer."""

    def step(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """One step of the base optimizer, with :meth:`exchange_gradients` before its update and :meth:`mix` after."""
        takes_part = self.samples or self.inside is not None or self.comm.size == 1
        outputs = self.base_optimizer.step(inputs) if takes_part else self._step_without_samples(inputs)
        self.mix()
        return outputs

    # -- between the base optimizer and the other ranks ---------------------------------------------------------------
    def agreed_gradients(self, names: Sequence[str], gradients: Sequence[Any]) -> Sequence[Any]:
        """Gradients of all ranks for those of this one: the base optimizer asks, :meth:`exchange_gradients` answers."""
        with self.communicating():
            gradients = self.exchange_gradients(names, gradients)
        return self.agreed_outside(names, gradients)

    def agreed_outside(self, names: Sequence[str], gradients: Sequence[Any]) -> Sequence[Any]:
        """Gradients on which the ranks of this scheme agree, as the scheme around it makes them, if any."""
        return gradients if self.exchange is self else self.exchange.agreed_gradients(names, gradients)

    def samples_together(self, samples: float) -> float:
        """Samples of all ranks, those of schemes inside included, if this rank has so many."""
        if self.inside is not None:
            samples = self.inside.samples_together(samples)
        total = np.array([float(samples)])
        return float(self.comm.all_reduce(total, control=total.nbytes)[0])

    def all_finite(self, finite: bool) -> bool:
        """Whether the gradients of all ranks are finite."""
        if self.comm.size == 1:
            return finite
        with self.communicating():
            faults = np.array([0.0 if finite else 1.0])
            finite = bool(self.comm.all_reduce(faults, control=faults.nbytes)[0] == 0)
        return finite if self.exchange is self else self.exchange.all_finite(finite)

    def _step_without_samples(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Take part with weight 0: run on made-up samples, whose gradient is not used, and restore the statistics.

        A scheme that exchanges no gradients has none for this rank then, which makes no update.
        """
        if not self.exchanges_gradients:
            if self.loss_scaling is not None:
                self.loss_scaling.note(self.all_finite(True))
            return {}
        with self.same_statistics():
            self.base_optimizer.step(self.made_up(inputs))
        return {}

    # -- what a trainer asks ------------------------------------------------------------------------------------------
    def totals(self, values: np.ndarray) -> np.ndarray:
        """The sum of float64 values over all ranks."""
        total = np.array(values if self.inside is None else self.inside.totals(values), np.float64)
        return self.comm.all_reduce(total, control=total.nbytes)

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Validate one model: running statistics become their mean over ranks; where ranks differ in parameters, the
        mean of those too, until the end of the validation."""
        with self.base_optimizer.evaluation():
            if self.comm.size == 1:
                yield
                return
            statistics = set(self.running_statistics())
            names = [name for name in self.floating() if name in statistics or not self.consistent]
            before = dict(zip(names, map(np.array, self.arrays(self.network.fetch_tensors(names))), strict=True))
            self.feed_arrays(names, Buckets.like(arrays := list(before.values())).mean(self.comm, arrays))
            trained = [name for name in names if name not in statistics]
            with undone(lambda: self.feed_arrays(trained, [before[name] for name in trained])):
                yield

    def communication_facts(self) -> dict[str, Any]:
        """Scheme, ranks, and what this rank communicated so far (:meth:`Traffic.as_dict`)."""
        whole = self.comm.world
        facts = {
            "scheme": self.title,
            "ranks": whole.size,
            "transport": whole.transport,
            "traffic": whole.traffic.as_dict(),
        }
        axes = {scheme.comm.name: scheme.comm.traffic.as_dict() for scheme in self.around_each() if scheme.comm.name}
        return {**facts, "axes": axes} if axes else facts

    def around_each(self) -> list[DistributedOptimizer]:
        """This scheme and those inside, from the outermost."""
        return [self, *(() if self.inside is None else self.inside.around_each())]

    @property
    def title(self) -> str:
        """Its name; on a mesh those of all axes."""
        axes = [(scheme.comm.name, type(scheme).__name__) for scheme in self.around_each()]
        return ", ".join(f"{axis}: {name}" if axis else name for axis, name in axes)

    def names_here(self) -> list[str]:
        """Trainable parameters that this rank holds, or has parts of."""
        return list(self.network.trainable())

    # -- state --------------------------------------------------------------------------------------------------------
    def own_state(self) -> dict[str, np.ndarray]:
        """Arrays that the scheme itself remembers between steps; none unless a scheme says so."""
        return {}

    def load_own_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from :meth:`own_state`."""

    def state_dict(self) -> dict[str, np.ndarray]:
        scheme = {f"scheme/{name}": array for name, array in self.own_state().items()}
        base = {_INSIDE * name.startswith("scheme") + name: a for name, a in self.base_optimizer.state_dict().items()}
        return {**base, **scheme, "scheme.steps": np.asarray(self.steps, np.int64)}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        scheme = {name.removeprefix("scheme/"): array for name, array in state.items() if name.startswith("scheme/")}
        base = {name: array for name, array in state.items() if not name.startswith("scheme")}
        base |= {name.removeprefix(_INSIDE): array for name, array in state.items() if name.startswith(_INSIDE)}
        self.base_optimizer.load_state_dict(base)
        self.steps = int(state.get("scheme.steps", self.base_optimizer.steps))
        try:
            self.load_own_state(scheme)
        except KeyError as error:
            raise InputError(
                f"got a state without {error.args[0]!r}; expected that of {type(self).__name__}: load the state of the "
                "same scheme"
            ) from error
