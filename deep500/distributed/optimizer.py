"""`DistributedOptimizer`: any optimizer, on many ranks. A scheme derives from it in about ten lines.

Requirements of the seam, for the author of a scheme. Override one of

* :meth:`~DistributedOptimizer.exchange_gradients`: what the base optimizer gets instead of this rank's gradients;
* :meth:`~DistributedOptimizer.mix`: what happens to the parameters after the base optimizer's update;
* :meth:`~DistributedOptimizer.step` itself, with ``self.base_optimizer``, ``self.network``, ``self.executor`` and
  ``self.communication``, for everything else.

The batch of all ranks together is the batch of the serial run: ``loss`` must be a mean over samples, and means over
ranks are weighted by ``self.samples``, this rank's share of the batch, which may be empty.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, ClassVar, Literal

import numpy as np

from deep500.distributed.buckets import Buckets
from deep500.distributed.tensors import TensorCommunicator
from deep500.distributed.transports.communicator import Communicator
from deep500.distributed.world import world
from deep500.errors import CommunicationError, InputError, nearest
from deep500.operators.cpp.ranks import communicating
from deep500.tasks.task import batch_length
from deep500.training.optimizers.base import Optimizer

Waiting = Literal["together", "neighbours", "pairs", "server"]
"""Which ranks a rank waits for: all ranks at every exchange; those whose parameters it takes; one partner, another
one in each step; or the link of a server, rank 0, which carries one message at a time."""


def _observed(step: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """A scheme's step, with the work common to all schemes: shares of the batch and counting."""

    @wraps(step)
    def observed(self: DistributedOptimizer, inputs: Mapping[str, Any]) -> dict[str, Any]:
        if self._within_step:  # super().step()
            return step(self, inputs)
        self.samples = self.count_samples(inputs)
        self._check_shares()
        self._within_step = True
        base = self.base_optimizer
        before, backprops, base.updated = base.steps, base.backprops, False
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
        if base.updated and base.steps == before:
            base.steps += 1  # the scheme applied the rule itself; a rank that made no update counts none
        self.steps += 1
        return outputs

    return observed


class DistributedOptimizer(Optimizer):
    """Wraps an optimizer so that all ranks train one network together; the initial parameters are those of rank 0.

    By itself it lets every rank train alone after that: schemes say what is exchanged.

    Args:
        base_optimizer: made for this rank's executor. A scheme that calls its ``update_rule`` needs a
            :class:`~deep500.training.optimizers.ThreeStepOptimizer`; the others take a framework's own too.
        comm: the communicator; that of this process (:func:`deep500.distributed.world`) if None.

    Attributes:
        base_optimizer: what does the updates.
        comm: exchanges arrays.
        communication: exchanges tensors of the framework.
        samples: how many samples of the present batch this rank has.

    Raises:
        CommunicationError: fewer ranks than ``least_ranks``, or ranks with different networks.

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

    waits: ClassVar[Waiting | None] = None
    """Which ranks a rank waits for; ``deep500 simulate`` asks for it and refuses a scheme that has not declared it."""
    least_ranks: ClassVar[int] = 1
    consistent: ClassVar[bool] = True
    """Whether all ranks have the same parameters, bit by bit, after every step."""
    whole: ClassVar[bool] = True
    """Whether every rank holds all parameters between steps."""
    changes_parameters: ClassVar[bool] = False
    """Whether it changes parameters itself; then it refuses a base optimizer that would not notice."""
    agrees_on_overflow: ClassVar[bool] = False
    """Whether all ranks make an update or none does, so that float16's loss scaling is the same everywhere: every rank
    passes through the base optimizer's step each time."""
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
        if self.changes_parameters and self.comm.size > 1 and base_optimizer.keeps_parameters:
            raise InputError(
                f"got {type(base_optimizer).__name__} for {type(self).__name__}; expected an optimizer that takes the "
                "parameters from the network, which this scheme changes: this one keeps them itself. Use a scheme that "
                "exchanges gradients, such as ConsistentDecentralized, or another optimizer"
            )
        scaled = self.comm.size > 1 and base_optimizer.loss_scaling is not None
        if scaled and not self.agrees_on_overflow:
            raise InputError(
                f"got float16 with loss scaling for {type(self).__name__} on {self.comm.size} ranks; expected a scheme "
                "whose ranks agree on what overflows, such as ConsistentDecentralized: use that, or bf16, or one rank"
            )
        self.base_optimizer, self.rank = base_optimizer, self.comm.rank
        super().__init__(base_optimizer.executor, base_optimizer.loss)
        self.loss_scaling, self.accumulate = base_optimizer.loss_scaling, base_optimizer.accumulate
        self.communication = TensorCommunicator(self.comm, self.network)
        self.count_samples: Callable[[Mapping[str, Any]], int]
        self.count_samples = partial(batch_length, label="label")  # a trainer puts its task's in place
        self.samples = 0
        self._within_step = False
        self._buckets_of: dict[Hashable, Buckets] = {}
        if self.comm.size > 1:
            self._check_networks()
            self.set_all(Buckets.of(arrays := self.all_arrays()).broadcast(self.comm, arrays))
            if type(self).exchange_gradients is not DistributedOptimizer.exchange_gradients:
                base_optimizer.exchange = self._exchange
            if scaled:
                base_optimizer.finite_everywhere = self._agree

    # -- what a scheme says -------------------------------------------------------------------------------------------
    @classmethod
    def computing_ranks(cls, size: int) -> range:
        """The ranks among which batches are divided; all of them, unless one only serves the others."""
        return range(size)

    @classmethod
    def kept_by_each(cls) -> str:
        """What each rank keeps that another number of ranks could not take over, in words; empty: nothing, so that a
        run may go on on another number."""
        return "" if cls.consistent else "parameters of its own"

    @classmethod
    def put_together(cls, states: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """The :meth:`state_dict` of a run on any number of ranks, from those of all ranks in their order.

        Raises:
            InputError: they differ, unless the scheme says what then holds.
        """
        return same_everywhere(states, cls.__name__)

    def exchange_gradients(self, names: Sequence[str], gradients: Sequence[Any]) -> Sequence[Any]:
        """The gradients that the base optimizer gets, tensors of the framework; not called with one rank."""
        return gradients

    def mix(self) -> None:
        """Called after every update of the base optimizer."""

    def step(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """One step of the base optimizer, with :meth:`exchange_gradients` before its update and :meth:`mix` after."""
        outputs = self.base_optimizer.step(inputs) if self.samples else self._step_without_samples(inputs)
        self.mix()
        return outputs

    def update(self) -> None:
        """The base optimizer's, with the gradients of this rank's last run."""
        self.base_optimizer.update()

    # -- pieces for schemes -------------------------------------------------------------------------------------------
    def parameters(self) -> list[Any]:
        """Live tensors of the parameters that the loss depends on."""
        return self.network.fetch_tensors(self.parameter_names())

    def set_parameters(self, tensors: Sequence[Any]) -> None:
        """Give those parameters new tensors."""
        for name, tensor in zip(self.parameter_names(), tensors, strict=True):
            self.network.assign_tensor(name, tensor)

    def arrays(self, tensors: Sequence[Any]) -> list[np.ndarray]:
        """Tensors as arrays, sharing their memory where the framework allows: read them, do not write."""
        to_numpy = self.network.to_numpy
        return [to_numpy(tensor) for tensor in tensors]

    def tensors(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        """Arrays as new tensors of the framework, copied."""
        to_tensor = self.network.to_tensor
        return [to_tensor(array) for array in arrays]

    def laid_out(self, what: Hashable, arrays: Sequence[np.ndarray]) -> Buckets:
        """Buckets for arrays that are exchanged again and again, made once: allocating them anew in every step can cost
        more than the sums. What they hold is overwritten by the next exchange under the same name."""
        buckets = self._buckets_of.get(what)
        if buckets is None or not buckets.fits(arrays):
            buckets = self._buckets_of[what] = Buckets.of(arrays)
        return buckets

    def all_arrays(self) -> list[np.ndarray]:
        """Every floating-point parameter, running statistics included, as an array."""
        return self.arrays(self.network.fetch_tensors(self._floating()))

    def set_all(self, arrays: Sequence[np.ndarray]) -> None:
        """Overwrite what :meth:`all_arrays` returned."""
        for name, array in zip(self._floating(), arrays, strict=True):
            self.network.feed_tensor(name, array)

    def made_up(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Zeros like the inputs, two samples of them: some frameworks refuse to normalise a batch of one."""
        arrays = {n: v if isinstance(v, np.ndarray) else self.network.to_numpy(v) for n, v in inputs.items()}
        return {name: np.zeros((2, *array.shape[1:]), array.dtype) for name, array in arrays.items()}

    def _floating(self) -> list[str]:
        return [name for name, p in self.network.parameters.items() if p.value.dtype.kind not in "biuOSU"]

    def _check_networks(self) -> None:
        mine = [[name, list(p.value.shape), str(p.value.dtype)] for name, p in self.network.parameters.items()]
        for rank, theirs in enumerate(self.comm.gather_facts(mine)):
            if theirs != mine:
                counts = (f"{len(mine)} parameters", f"{len(theirs)} parameters")
                odd = next((pair for pair in zip(mine, theirs, strict=False) if pair[0] != pair[1]), counts)
                raise CommunicationError(
                    f"got different networks: rank {self.comm.rank} has {odd[0]}, rank {rank} has {odd[1]}; expected "
                    "the same on every rank: run the same recipe everywhere"
                )

    def _check_shares(self) -> None:
        """Raise InputError for shares that differ where operators communicate, which no weight of a rank reaches.

        What such an operator returns is of all samples: means of gradients would weigh them twice.
        """
        if self.comm.size == 1 or not communicating():
            return
        shares = self.comm.gather_facts(self.samples)
        if len(set(shares)) > 1 or not self.samples:
            raise InputError(
                f"got a batch of {', '.join(map(str, shares))} samples on {len(shares)} ranks; expected equal shares, "
                f"because the operator {communicating()[0]!r} communicates: choose a batch_size that the ranks divide, "
                "and a train_sampler that drops the last batch"
            )

    def _exchange(self, names: Sequence[str], gradients: Sequence[Any]) -> Sequence[Any]:
        with self.communicating():
            return self.exchange_gradients(names, gradients)

    def _agree(self, finite: bool) -> bool:
        """Whether the gradients of all ranks are finite."""
        with self.communicating():
            faults = np.array([0.0 if finite else 1.0])
            return bool(self.comm.all_reduce(faults, control=faults.nbytes)[0] == 0)

    @contextmanager
    def communicating(self) -> Iterator[None]:
        """Report what runs inside the block to listeners as communication."""
        events = self.executor.events
        if events.before_communication:
            events.emit(events.before_communication, self)
        yield
        if events.after_communication:
            events.emit(events.after_communication, self)

    def _step_without_samples(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Take part with weight 0: run on made-up samples, whose gradient is not used, and restore the statistics.

        A scheme that exchanges no gradients has none for this rank then, which makes no update.
        """
        if self.base_optimizer.exchange is None:
            if self.loss_scaling is not None:
                self.loss_scaling.note(self._agree(True))
            return {}
        statistics = [n for n in self._floating() if not self.network.parameters[n].trainable]
        before = [np.array(array) for array in self.arrays(self.network.fetch_tensors(statistics))]
        self.base_optimizer.step(self.made_up(inputs))
        for name, array in zip(statistics, before, strict=True):
            self.network.feed_tensor(name, array)
        return {}

    # -- what a trainer asks ------------------------------------------------------------------------------------------
    def totals(self, values: np.ndarray) -> np.ndarray:
        """The sum of float64 values over all ranks."""
        total = np.array(values, np.float64)
        return self.comm.all_reduce(total, control=total.nbytes)

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Validate one model: running statistics become their mean over ranks; where ranks differ in parameters, the
        mean of those too, until the end of the validation."""
        if self.comm.size == 1:
            yield
            return
        trainable = {name for name in self._floating() if self.network.parameters[name].trainable}
        names = [name for name in self._floating() if not (self.consistent and name in trainable)]
        kept = [np.array(array) for array in self.arrays(self.network.fetch_tensors(names))]
        means = Buckets.of(kept).mean(self.comm, kept)
        for name, array in zip(names, means, strict=True):
            self.network.feed_tensor(name, array)
        try:
            yield
        finally:
            for name, array in zip(names, kept, strict=True):
                if name in trainable:
                    self.network.feed_tensor(name, array)

    def communication_facts(self) -> dict[str, Any]:
        """What this rank communicated so far: scheme, ranks, and :meth:`Traffic.as_dict`."""
        return {
            "scheme": type(self).__name__,
            "ranks": self.comm.size,
            "transport": self.comm.transport,
            "traffic": self.comm.traffic.as_dict(),
        }

    # -- hyper-parameters and state are the base optimizer's -----------------------------------------------------------
    @property
    def hyperparameters(self) -> tuple[str, ...]:  # type: ignore[override]
        """Those of the base optimizer."""
        return self.base_optimizer.hyperparameters

    def set_parameter(self, name: str, value: Any) -> None:
        """Change one of the base optimizer's."""
        self.base_optimizer.set_parameter(name, value)

    def get_parameters(self) -> dict[str, Any]:
        """The base optimizer's."""
        return self.base_optimizer.get_parameters()

    def initial_parameter(self, name: str) -> Any:
        """The base optimizer's."""
        return self.base_optimizer.initial_parameter(name)

    def own_state(self) -> dict[str, np.ndarray]:
        """What the scheme itself remembers between steps, as arrays; nothing unless a scheme says so."""
        return {}

    def load_own_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from :meth:`own_state`."""

    def slots(self, slot: str, state: Mapping[str, np.ndarray], shaped: bool = True) -> dict[str, np.ndarray]:
        """For :meth:`load_own_state`: what a state holds under ``"<slot>/<parameter>"``, by parameter, as copies.

        Raises:
            InputError: no such parameter, or (``shaped``) not of its shape.
        """
        parameters, slots = self.network.parameters, {}
        for key, array in state.items():
            kind, _, name = key.partition("/")
            if kind != slot:
                continue
            if name not in parameters:
                raise InputError(
                    f"got {slot} of {name!r}; expected a parameter: {nearest(name, parameters)} Load the state of the "
                    "same network"
                )
            want = parameters[name].value.shape
            if shaped and array.shape != want:
                raise InputError(
                    f"got {slot} of {name!r} with shape {array.shape}; expected {want}: load the state of the same "
                    "network"
                )
            slots[name] = np.array(array)
        return slots

    def state_dict(self) -> dict[str, np.ndarray]:
        own = {f"scheme/{name}": array for name, array in self.own_state().items()}
        return {**self.base_optimizer.state_dict(), **own, "scheme.steps": np.asarray(self.steps, np.int64)}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        own = {name.removeprefix("scheme/"): array for name, array in state.items() if name.startswith("scheme/")}
        base = {name: array for name, array in state.items() if not name.startswith("scheme")}
        self.base_optimizer.load_state_dict(base)
        self.steps = int(state.get("scheme.steps", self.base_optimizer.steps))
        try:
            self.load_own_state(own)
        except KeyError as error:
            raise InputError(
                f"got a state without {error.args[0]!r}; expected that of {type(self).__name__}: load the state of the "
                "same scheme"
            ) from error


def same_everywhere(states: Sequence[Mapping[str, np.ndarray]], scheme: str) -> dict[str, np.ndarray]:
    """The arrays that all ranks have, bit by bit; raises InputError that names the first one in which a rank differs.

    Example:
        >>> same_everywhere([{"step": np.array(3)}, {"step": np.array(4)}], "ModelAverage")
        Traceback (most recent call last):
        deep500.errors.InputError: got ranks of ModelAverage that differ in 'step' (rank 1 from rank 0); expected nothing that each keeps of its own: go on with as many ranks
    """  # noqa: E501
    first = {name: np.asarray(array) for name, array in states[0].items()}
    for rank, state in enumerate(states):
        for name in [*first, *(name for name in state if name not in first)]:
            here, there = first.get(name), state.get(name)
            if here is None or there is None or not _same_bits(here, np.asarray(there)):
                raise InputError(
                    f"got ranks of {scheme} that differ in {name!r} (rank {rank} from rank 0); expected nothing that "
                    "each keeps of its own: go on with as many ranks"
                )
    return first


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
