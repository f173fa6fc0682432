"""Schemes whose exchange is an engine of the framework's own: the same mathematics as one of ours, which is its
definition and which it is compared with.

A backend has engines where its executor :class:`TrainsByEngines`. An engine has

* ``fuses``: whether it weighs gradients by itself, by the attribute ``samples`` that is set before each step, counts
  what it sends, and may run network and update in one;
* where it does not, ``weigh_by``: takes a function that gives the weight of this rank's gradients, before each run
  forward and backward, and which of how many runs it is whose gradients are added up; and ``sent``: bytes that the last
  run handed to collectives, by kind;

and that of :class:`FSDP` what is called below.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from deep500.distributed.buckets import BUCKET_BYTES
from deep500.distributed.optimizer import DistributedOptimizer
from deep500.distributed.stage_runs import clip_factor
from deep500.distributed.staged import check_elementwise, check_options
from deep500.distributed.transports.communicator import Communicator
from deep500.errors import InputError, nearest
from deep500.networks.drawing import draw_for_good
from deep500.networks.losses import SCALE, SCALED
from deep500.tensors import LaterArray
from deep500.training.accumulation import counts_of, outputs_together, pieces
from deep500.training.data.samplers import checked_integer
from deep500.training.optimizers.base import Optimizer

COMPRESSIONS = (None, "fp16", "powersgd")


@runtime_checkable
class TrainsByEngines(Protocol):
    """An executor whose framework has engines of its own for training on several ranks."""

    def start_engine(self, kind: str, comm: Any, loss: str, options: Mapping[str, Any]) -> Any:
        """Let training runs exchange by an engine from here on; all ranks call it together.

        Args:
            kind: of the engine, as the scheme that it serves is named.
            comm: the ranks.
            loss: the scalar that is differentiated.
            options: of the scheme.

        Returns:
            the engine, as the top of this file describes it.

        Raises:
            UnsupportedOperator: the backend has no engine of that kind, or not for this network.
        """


class NativeScheme(DistributedOptimizer):
    """Base of schemes by an engine of the framework's; on one rank the base optimizer trains as it is.

    Attributes:
        engine: the framework's; None on one rank.
    """

    waits = "together"
    agrees_on_overflow = True
    one_backend = True

    def start(self, **options: Any) -> None:
        """Let the backend's engine of this scheme's name exchange gradients from here on."""
        self.engine: Any = None
        if self.comm.size == 1:
            return
        kind = type(self).__name__
        if not isinstance(self.executor, TrainsByEngines):
            raise InputError(
                f"got {kind} on backend {self.executor.backend!r}, which has no engine for it; expected 'pytorch' or "
                f"'jax': add --backend pytorch, or use {self.definition}, which runs on every backend"
            )
        goal = self.loss if self.loss_scaling is None else SCALED
        self.engine = self.executor.start_engine(kind, self.comm, goal, options)
        if self.engine.fuses and self.accumulate > 1:
            raise InputError(
                f"got accumulate={self.accumulate} with {kind} on backend {self.executor.backend!r}, whose engine runs "
                f"whole batches; expected none: leave it out, or use --backend pytorch or {self.definition}"
            )

    @property
    def passes_steps(self) -> bool:  # type: ignore[override]
        """Whether the engine may run network and update in one."""
        return self.engine is not None and self.engine.fuses

    def step(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """One step of the base optimizer, whose engine exchanges."""
        if self.engine is not None:
            self.engine.samples = self.samples
        return super().step(inputs)

    @property
    @abc.abstractmethod
    def definition(self) -> str:
        """The scheme of ours that has the same mathematics."""

    def backprop(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Forward and backward through the engine; gradients are weighted by this rank's share of the batch."""
        if self.engine is None or self.engine.fuses:
            return super().backprop(inputs)
        count = np.array([float(self.samples)])
        pending = self.comm.start_all_reduce(count, control=count.nbytes)  # done when the forward run is

        def weight(share: float = 1.0) -> float:
            pending.wait()
            return self.comm.size * self.samples * share / (float(count[0]) or 1.0)

        if self.accumulate > 1:
            return self._in_pieces(inputs, weight)
        self.engine.weigh_by(weight)
        outputs = self.base_optimizer.backprop(inputs)
        self._count_sent()
        return outputs

    def _count_sent(self) -> None:
        for kind, size in self.engine.sent.items():
            self.comm.traffic.add(kind, size, 0)

    def _in_pieces(self, inputs: Mapping[str, Any], weight: Callable[[float], float]) -> dict[str, Any]:
        """A batch in pieces, as many on every rank, whose gradients the engine adds up."""
        base, network, scaling = self.base_optimizer, self.network, self.loss_scaling
        base.backprops += 1
        rows = sum(size for size, _ in pieces(network, inputs, 1))
        parts = list(pieces(network, inputs, min([self.accumulate, *self.comm.gather_facts(rows)])))
        more = {} if scaling is None else {SCALE: np.array(scaling.scale, np.float32)}
        results, counts = [], counts_of(parts, self.batch_weights)
        for number, ((_, part), count) in enumerate(zip(parts, counts, strict=True)):
            self.engine.weigh_by(partial(weight, count / sum(counts)), number, len(parts))
            feeds = part if count else self.batch_weights.counting(part)
            goal = self.loss if scaling is None else SCALED
            results.append(self.executor.inference_and_backprop({**feeds, **more}, goal))
            self._count_sent()
        if scaling is not None:
            sums = network.weighted_sum([network.fetch_tensors(base.gradient_names())], [1 / scaling.scale])
            network.leave_gradients(dict(zip(base.parameter_names(), sums, strict=True)))
        return outputs_together(network, results, [size for size, _ in parts], {self.loss: counts})

    def _step_without_samples(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Take part with weight 0."""
        with self.same_statistics():
            self.base_optimizer.step(self.made_up(inputs))
        return {}


class DDP(NativeScheme):
    """PyTorch's ``DistributedDataParallel``: mean gradients, in buckets while the backward run goes on (Li et al. 2020,
    PyTorch Distributed, VLDB 13(12)); on JAX one jitted step of all ranks, over a mesh by ``jax.sharding``.
    :class:`~deep500.distributed.schemes.synchronous.ConsistentDecentralized` is the same mathematics.

    Shares of a batch are weighted: the loss is multiplied by a rank's share before it goes backward. Running statistics
    stay each rank's until a validation, as in all schemes (``broadcast_buffers=False``).

    Payload per step and rank: the bytes of all gradients, once with ``accumulate`` too (``no_sync``); half of them with
    ``"fp16"``; by shape with ``"powersgd"``.

    Args:
        base_optimizer, comm: see :class:`~deep500.distributed.optimizer.DistributedOptimizer`.
        bucket_bytes: size of a bucket.
        compression: a communication hook: ``"fp16"`` sends gradients in float16; ``"powersgd"`` (Vogels et al. 2019,
            arXiv 1905.13727) two thin factors of each matrix, errors fed back; None: neither.
        rank: of PowerSGD's factors.
        begin: how many steps pass before PowerSGD compresses, at least 2.

    Raises:
        InputError: another backend than PyTorch and JAX, threads as ranks, an unknown compression, ``accumulate`` on
            JAX.
        UnsupportedOperator: ``compression`` on JAX.

    Example (``deep500 run recipe.py --ranks 2 scheme=DDP``, or in a recipe):
        >>> from functools import partial
        >>> MUTABLE = {"scheme": partial(DDP, compression="fp16")}
    """

    definition = "ConsistentDecentralized"

    def __init__(
        self,
        base_optimizer: Optimizer,
        comm: Communicator | None = None,
        bucket_bytes: int = BUCKET_BYTES,
        compression: str | None = None,
        rank: int = 1,
        begin: int = 1000,
    ) -> None:
        super().__init__(base_optimizer, comm)
        if compression not in COMPRESSIONS:
            known = [name for name in COMPRESSIONS if name]
            raise InputError(
                f"got compression={compression!r}; expected None, 'fp16' or 'powersgd': {nearest(compression, known)}"
            )
        self.start(
            bucket_bytes=checked_integer("bucket_bytes", bucket_bytes, 1),
            compression=compression,
            rank=checked_integer("rank", rank, 1),
            begin=checked_integer("begin", begin, 2),
        )

    def own_state(self) -> dict[str, np.ndarray]:
        return {} if self.engine is None else self.engine.remembered()

    def load_own_state(self, state: Mapping[str, np.ndarray]) -> None:
        if self.engine is not None:
            self.engine.remember(state)


class FSDP(NativeScheme):
    """PyTorch's ``fully_shard`` (FSDP2; Zhao et al. 2023, arXiv 2304.11277): each rank keeps some rows of every
    parameter, of its gradient and of the optimizer's state. On JAX one jitted step of all ranks, with a part of every
    parameter along its largest axis that is a multiple of the ranks (whole, if none is).
    :class:`~deep500.distributed.schemes.parameters.ShardedParameters` is the same mathematics.

    The network is cut in layers, or blocks where values skip layers (:func:`deep500.transformations.stages.layers`),
    each a module of its own: its parameters are gathered before it computes and let go after it, and again for the
    backward run, for which activations are held, as PyTorch does. What several layers read stays whole through a step.
    Within :meth:`evaluation` and when a state is asked for, by all ranks together, a rank holds all parameters. On
    PyTorch a trainer's validation gathers layer by layer (:meth:`judging`), a recipe's checkpoint goes to rank 0 one
    parameter at a time, and a network made within :func:`deep500.networks.undrawn`, as recipes make those of the zoo,
    is drawn where it lives: then no rank ever holds more than its rows and the largest layer.

    Payload per step and rank (n: bytes of parameters, rows filled up to equal numbers): n of gradients, 2n/P of
    parameters less n/P of the last layer and of what several layers read, which are gathered once. With ``accumulate``
    as much for each piece: no rank holds whole gradients.

    Args:
        base_optimizer: PyTorch's own, or one with an update rule that is elementwise.
        comm: see :class:`~deep500.distributed.optimizer.DistributedOptimizer`.
        crossing: how many activations may cross between layers at least; more make smaller layers.
        replicas: how many times all parameters are there (HSDP): each P / replicas ranks with numbers in a row share
            them out, and ``fully_shard`` averages gradients over replicas too, on a mesh of two dimensions. Payload
            then is as on P / replicas ranks, and this rank's rows of gradients besides.

    Raises:
        InputError: another backend than PyTorch and JAX, threads as ranks, what does not go with parts of parameters
            (see ``ShardedParameters``), or a parameter without dimensions.
        UnsupportedOperator: ``crossing`` or ``replicas`` on JAX.

    Example (``deep500 run recipe.py --ranks 2 scheme=FSDP``, or in a recipe):
        >>> MUTABLE = {"scheme": FSDP}
        >>> MUTABLE["scheme"].whole
        False
    """

    changes_parameters = joins_parts = draws = first_writes = True
    whole = False
    definition = "ShardedParameters"

    def __init__(
        self, base_optimizer: Optimizer, comm: Communicator | None = None, crossing: int = 1, replicas: int = 1
    ) -> None:
        check_elementwise(base_optimizer, type(self).__name__)
        super().__init__(base_optimizer, comm)
        if self.comm.size % checked_integer("replicas", replicas, 1) or replicas == self.comm.size > 1:
            raise InputError(
                f"got replicas={replicas} on {self.comm.size} ranks; expected a divisor below that: choose one, or DDP"
            )
        self.replicas, self.sharing = replicas, self.comm  # the ranks that have all rows together
        if replicas > 1:
            self.sharing = self.comm.split("shard", self.comm.rank // (self.comm.size // replicas))
        if self.comm.size > 1:
            advice = ", as no rank has whole gradients: leave it out, or use DDP"
            divided = base_optimizer.executor.backend == "pytorch"
            check_options(base_optimizer, type(self).__name__, advice, modifier=False, pieces=divided)
        if self.comm.size == 1:  # which has all rows
            to_tensor, network = self.network.to_tensor, self.network
            draw_for_good(network, lambda name, array: network.assign_tensor(name, to_tensor(array)))
        self.start(crossing=checked_integer("crossing", crossing, 1), sharing=self.sharing)
        if self.engine is not None:
            self.network.sharded = self
            self.network.part_shapes = {name: tuple(part.rows.shape) for name, part in self.engine.parts.items()}

    def update(self) -> None:
        """Each rank updates its rows."""
        super().update()
        if self.engine is not None:
            self.engine.updated()

    def transformed(self, transform: Any, names: Sequence[str], gradients: Sequence[Any]) -> Sequence[Any]:
        """Clipping by the norm of all ranks' gradients."""
        if self.engine is None:
            return super().transformed(transform, names, gradients)
        with self.communicating():
            rows = zip(names, self.arrays(gradients), strict=True)
            here = (array.ravel() for name, array in rows if self.engine.counts(name))
            factor = clip_factor(self.sharing, transform, here)
        return [gradient * factor for gradient in gradients]

    def judges_in_turn(self, outputs: Sequence[str], batches: int | None) -> bool:
        """Whether ranks can judge these outputs without holding all parameters (:meth:`judging`); all ranks ask
        together.

        Args:
            outputs: what is asked for, once for each batch.
            batches: how many this rank has; None: unknown.
        """
        if not hasattr(self.engine, "turns"):
            return False
        counts = self.comm.gather_facts(batches)
        return None not in counts and len(set(counts)) == 1 and bool(self.engine.runs_in_turn(tuple(outputs)))

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Like :meth:`evaluation`, but each run in evaluation mode gathers one layer after the other: all ranks must
        make as many, of what :meth:`judges_in_turn` was asked for."""
        with self.engine.turns(), super().evaluation():
            yield

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Within it every rank holds all parameters."""
        if self.engine is None:
            with super().evaluation():
                yield
            return
        with self.engine.gathered(), super().evaluation():
            yield

    # -- states are those of the whole --------------------------------------------------------------------------------
    def whole_state(self) -> dict[str, np.ndarray]:
        """``network.state()``, of all ranks together."""
        with self.engine.gathered():
            tensors = self.network.fetch_tensors(names := list(self.network.parameters))
            return {name: np.array(array) for name, array in zip(names, self.arrays(tensors), strict=True)}

    def load_whole_state(self, state: Mapping[str, Any]) -> None:
        """``network.load_state()``, of which each rank keeps its rows."""
        values, absent = self.network.parameters, self.engine.parts
        odd = sorted(set(state) ^ set(values)) or [n for n in values if np.shape(state[n]) != values[n].value.shape]
        if odd:
            raise InputError(
                f"got a state that differs in {odd[:4]}; expected the network's parameters: use the same network"
            )
        here = [name for name in values if name not in absent]
        self.feed_arrays(here, [np.asarray(state[name]) for name in here])
        for name in absent:  # of which the state may read one at a time
            self.engine.load({name: np.asarray(state[name])})

    def state_dict(self) -> dict[str, np.ndarray]:
        """The state of the whole, on every rank: all ranks must call it."""
        return super().state_dict() if self.engine is None else self._state(self._joined)

    def _state(self, join: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> dict[str, Any]:
        base: Any = self.base_optimizer
        state = {"step": np.asarray(base.steps, np.int64), **base.number_arrays()}
        for slot, tensors in sorted(base.state.items()):
            state.update({f"{slot}/{n}": array for n, array in join(tensors).items()})
        return {**state, "scheme.steps": np.asarray(self.steps, np.int64)}

    def states_in_turn(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """States of the network and of the optimizer, in which what ranks share out is a :class:`LaterArray`."""
        if not hasattr(self.engine, "turns") or self.engine.whole:
            return self.network.state(), self.state_dict()
        parts = self.engine.parts
        names = [name for name in self.network.parameters if name not in parts]
        here = map(np.array, self.arrays(self.network.fetch_tensors(names)))
        rows = self.joined_in_turn(dict(zip(parts, self.network.fetch_tensors(list(parts)), strict=True)))
        return {**dict(zip(names, here, strict=True)), **rows}, self._state(self.joined_in_turn)

    def joined_in_turn(self, tensors: Mapping[str, Any]) -> dict[str, LaterArray]:
        """Wholes of this rank's rows, each of which is gathered when it is read: by all ranks, in one order."""

        def whole(name: str) -> np.ndarray:
            return self._joined({name: tensors[name]})[name]

        parameters = self.network.parameters
        return {
            name: LaterArray(parameters[name].value.shape, rows.dtype, partial(whole, name))
            for name, rows in zip(tensors, self.arrays(list(tensors.values())), strict=True)
        }

    def joined(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Wholes of this rank's rows; all ranks must call it."""
        mine = {} if self.engine is None else {n: t for n, t in tensors.items() if n in self.engine.parts}
        wholes = self._joined(mine) if mine else {}
        return {name: self.network.to_tensor(wholes[name]) if name in wholes else t for name, t in tensors.items()}

    def divided(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """This rank's rows of wholes."""
        parts = {} if self.engine is None else self.engine.parts
        rows = {n: self.engine.mine(n, self.network.to_numpy(t)) for n, t in tensors.items() if n in parts}
        return {name: self.network.to_tensor(rows[name]) if name in rows else t for name, t in tensors.items()}

    def _joined(self, tensors: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Whole arrays of the rows of all ranks, which travel in a row."""
        rows = [np.ravel(array) for array in self.arrays(list(tensors.values()))]
        everyone = self.sharing.all_gather_ragged(np.concatenate(rows))
        ends, wholes = [0] * len(everyone), {}
        for name in tensors:
            pieces = []
            for rank, size in enumerate(self.engine.sizes(name)):
                pieces.append(everyone[rank][ends[rank] : ends[rank] + size])
                ends[rank] += size
            wholes[name] = self.engine.joined(name, pieces)
        return wholes

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a :meth:`state_dict` of any number of ranks."""
        if self.engine is None:
            super().load_state_dict(state)
            return
        base: Any = self.base_optimizer
        slots: dict[str, dict[str, Any]] = {}
        whole = {name: array for name, array in state.items() if not name.startswith("scheme")}
        for slot, name, array in base.checked_slots(whole):
            full = np.broadcast_to(array, self.engine.parts[name].shape)
            slots.setdefault(slot, {})[name] = self.network.to_tensor(self.engine.mine(name, full))
        base.state = slots
        base.load_numbers(whole)
        self.steps = int(state.get("scheme.steps", base.steps))

    # -- checkpoints that no rank holds whole -------------------------------------------------------------------------
    def save_sharded(self, folder: str | os.PathLike[str], asynchronous: bool = False) -> Any:
        """Write each rank's rows of parameters and of the optimizer's state into a folder, by PyTorch's
        ``torch.distributed.checkpoint``, as safetensors files that any number of ranks and PyTorch alone read. Running
        statistics are those of rank 0, unless it is called within :meth:`evaluation`, which makes them means.

        Args:
            folder: the same for all ranks, which must call this together.
            asynchronous: whether a thread writes copies while training goes on.

        Returns:
            an object whose ``wait()``, also of all ranks together, returns when the checkpoint is complete.

        Raises:
            InputError: one rank, which has nothing to share out: save ``network.state()``.
            ResultsError: the folder cannot be written.
        """
        if self.engine is None:
            raise InputError(
                "got one rank to save parts of; expected several, as one holds the whole: save network.state() and "
                "state_dict(), or start more with --ranks"
            )
        self._check_files()
        base: Any = self.base_optimizer
        numbers = {"step": base.steps, "scheme.steps": self.steps}
        numbers.update({name: float(number) for name, number in base.number_arrays().items()})
        return self.engine.save(base.state, numbers, Path(folder), asynchronous)

    def load_sharded(self, folder: str | os.PathLike[str]) -> None:
        """Go on from a checkpoint of :meth:`save_sharded`, which any number of ranks may have written.

        Raises:
            ResultsError: it is not complete: a shard is missing or cut, whose rank is named.
            InputError: it is of another network, or there is one rank: use
                ``deep500.frameworks.pytorch.sharded_checkpoint.read``.
        """
        if self.engine is None:
            raise InputError(
                "got one rank to load parts into; expected several: use "
                "deep500.frameworks.pytorch.sharded_checkpoint.read, network.load_state() and load_state_dict()"
            )
        self._check_files()
        base: Any = self.base_optimizer
        state, numbers = self.engine.load_saved(Path(folder))
        base.state = state
        base.load_numbers({name: np.asarray(number) for name, number in numbers.items()})
        self.steps = int(numbers["scheme.steps"])

    def _check_files(self) -> None:
        """Raise InputError where rows are there several times, of which torch's files would be of several ranks, and
        where the engine has no files."""
        if not hasattr(self.engine, "save"):
            raise InputError(
                f"got a sharded checkpoint on backend {self.executor.backend!r}, whose engine has none; expected "
                "'pytorch': save network.state() and state_dict(), which are those of the whole"
            )
        if self.replicas > 1:
            raise InputError(
                f"got a sharded checkpoint with replicas={self.replicas}; expected one replica: save network.state() "
                "and state_dict(), or train without replicas"
            )
