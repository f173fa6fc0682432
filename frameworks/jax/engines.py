"""JAX's own engine of training on several ranks, behind an executor: one jitted step over a mesh of all ranks, for
:mod:`deep500.distributed.schemes.native`.

The step is one program for all ranks (``jax.shard_map`` under ``jax.jit``): each has its share of the batch, parameters
are whole everywhere (DDP) or in parts by a ``NamedSharding`` (FSDP); forward run, backward run, sums over ranks and
update are compiled together. Between steps an executor's tensors are ordinary arrays of this rank's device: whole
parameters, or this rank's parts, which are the memory of the arrays of all ranks.

One program has one shape: where shares of a batch differ, or a rank has no samples, or shapes follow from values, each
rank runs its own function of forward and backward, and the mesh adds up the weighted gradients.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as Spec

from deep500.distributed.buckets import BUCKET_BYTES
from deep500.distributed.transports.communicator import Communicator
from deep500.errors import InputError, UnsupportedOperator
from deep500.frameworks.jax.dtypes import enable_x64, place
from deep500.frameworks.jax.functions import Compiled
from deep500.frameworks.jax.meeting import RANKS, failures, mesh_of
from deep500.frameworks.jax.operators.table import DependsOnData
from deep500.frameworks.jax.updates import Updater, cut, join, rules_of
from deep500.training.optimizers.compiling import Packed, Step, Update

_USUAL = {"bucket_bytes": BUCKET_BYTES, "compression": None, "rank": 1, "begin": 1000, "crossing": 1}
"""Options of schemes that are about other engines, and the values that ask for nothing."""
_EACH, _SAME = Spec(RANKS), Spec()


def start(kind: str, executor: Any, comm: Communicator, loss: str, options: Mapping[str, Any]) -> RanksEngine:
    """The engine of a scheme; see ``TrainsByEngines`` of :mod:`deep500.distributed.schemes.native`."""
    if kind not in ("DDP", "FSDP"):
        raise UnsupportedOperator(f"got {kind} for JAX; expected one of DDP, FSDP: use that")
    asked = {**options, "replicas": comm.size // options["sharing"].size if "sharing" in options else 1}
    for name, usual in {**_USUAL, "replicas": 1}.items():
        if asked.get(name, usual) != usual and name != "bucket_bytes":
            raise UnsupportedOperator(
                f"got {name}={asked[name]!r} with {kind} on JAX, whose engine has none; expected {name}={usual!r}: "
                "leave it out, or use --backend pytorch"
            )
    return RanksEngine(executor, comm, loss, kind == "FSDP", options.get("bucket_bytes", BUCKET_BYTES))


class SharedPart(NamedTuple):
    """A parameter of which each rank has a part.

    Attributes:
        rows: shape and dtype of this rank's part.
        shape: of the whole.
        axis: along which it is divided; None: no axis is a multiple of the ranks, so all have the whole.
    """

    rows: jax.ShapeDtypeStruct
    shape: tuple[int, ...]
    axis: int | None


class RanksEngine:
    """One jitted step of all ranks.

    Args:
        executor: runs the network; where parameters are shared out it holds them whole for the last time.
        comm: the ranks.
        loss: is differentiated.
        shares: whether parameters are shared out, along their largest axis that is a multiple of the ranks.
        bucket_bytes: size in which gradients are put together for a sum.

    Attributes:
        samples: of this rank in the coming step.
        sent: bytes that the last step handed to JAX's collectives, by kind.
        parts: the parameters that are shared out, by name.
        whole: whether this rank holds all parameters.
    """

    fuses = True

    def __init__(self, executor: Any, comm: Communicator, loss: str, shares: bool, bucket_bytes: int) -> None:
        self.executor, self.comm, self.loss, self.bucket_bytes = executor, comm, loss, bucket_bytes
        self.mesh = mesh_of(comm, executor.jax_device)
        self.samples, self.sent = 0, dict[str, int]()
        self.parts: dict[str, SharedPart] = {}
        self.whole, self._apart, self._share = True, False, 0.0
        self._spread: dict[str, tuple[Any, Any]] = {}  # of a parameter: this rank's array, and that of all ranks
        self._gather: Any = None
        self._sharded, self._lone = {s: NamedSharding(self.mesh, s) for s in (_EACH, _SAME)}, set[str]()
        executor.refresh()
        if shares:
            trained = [name for name, _ in executor.network.gradient(loss)]  # in one order: programs must be alike
            self.parts = {name: self._part(name, executor.tensors[name]) for name in trained}
            self.version = executor.network.version
            self.release()

    def _part(self, name: str, tensor: Any) -> SharedPart:
        if tensor.ndim == 0:
            raise InputError(
                f"got parameter {name!r} without dimensions for FSDP, whose ranks have parts of parameters; expected "
                "at least one dimension: give it the shape [1], or use DDP or ShardedParameters"
            )
        fit = [axis for axis, size in enumerate(tensor.shape) if size and size % self.comm.size == 0]
        axis, shape = max(fit, key=lambda axis: tensor.shape[axis], default=None), list(tensor.shape)
        if axis is not None:
            shape[axis] //= self.comm.size
        return SharedPart(jax.ShapeDtypeStruct(tuple(shape), tensor.dtype), tuple(tensor.shape), axis)

    def spec(self, name: str) -> Spec:
        """How a parameter lies on the ranks."""
        part = self.parts.get(name)
        return _SAME if part is None or part.axis is None else Spec(*[None] * part.axis, RANKS)

    # -- steps --------------------------------------------------------------------------------------------------------
    def step(self, compiled: Compiled, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Forward and backward over this rank's share of the batch; the executor then has the mean gradients."""
        done = self.together(compiled, inputs, None, [], [])
        if done is None:
            return self.separate(compiled, inputs)
        return done[0]

    def together(
        self, compiled: Compiled, inputs: Mapping[str, Any], fused: FusedStep | None, numbers: Any, packed: Any
    ) -> tuple[dict[str, Any], list[Packed]] | None:
        """The step of all ranks as one program, with the update if one is given: outputs and the slots that were
        written; None where shares differ."""
        executor = self.executor
        self._check(compiled)
        if not self._alike(inputs) or self._apart:
            return None
        runs = executor.runs
        try:
            trained, others, state, arguments, draw = compiled.operands(inputs)
            arguments = {name: place(value, executor.jax_device) for name, value in arguments.items()}
            draw = None if draw is None else place(draw, executor.jax_device)
            row = np.array(numbers, np.float64 if executor.wide else np.float32)
            placed = [] if fused is None else [place(row, executor.jax_device), list(packed)]
            operands = (trained, others, state, arguments, draw, *placed)
            specs = self._specs(compiled, operands)
            function = self._program(compiled, specs, fused)
            with enable_x64(executor.wide), self._agreeing("a step"):
                results = function(*self._arrays(compiled, operands, specs))
        except DependsOnData:
            self._apart, executor.runs = True, runs  # so each rank runs by itself, in all steps to come
            return None
        return self._taken(compiled, results, fused)

    def separate(self, compiled: Compiled, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Forward and backward by each rank's own function; the mesh adds up weighted gradients."""
        executor = self.executor
        with self.gathered():
            (_, (results, state)), gradients = compiled(inputs)
        executor.tensors.update(state)
        key, names, axes = ("ranks", "sum"), compiled.trained, [gradient.shape for gradient in gradients]
        if key not in compiled.variants:
            specs = tuple(_EACH for _ in names)
            mean = tuple(map(self.spec, names))
            compiled.variants[key] = self._jit(
                lambda some, share: self._summed(names, some, share[0], axes), (specs, _EACH), mean
            )
        rows = [gradient.reshape(1) if gradient.ndim == 0 else gradient for gradient in gradients]
        share = place(np.array([self._share]), executor.jax_device)
        with self._agreeing("the sum of gradients"):
            means = compiled.variants[key](*self._global(((*rows,), share), ((*(_EACH for _ in rows),), _EACH)))
        executor.gradients = {**dict(zip(names, map(_local, means), strict=True)), **compiled.unreached}
        self._count(compiled)
        return {name: results[name] for name in compiled.outputs}

    def _check(self, compiled: Compiled) -> None:
        """Raise InputError where the network is another than the one whose parameters were shared out."""
        network = self.executor.network
        if self.parts and (network.version != self.version or compiled.loss != self.loss):
            raise InputError(
                "got a network that was edited, or another loss, after FSDP had shared it out; expected the same: edit "
                "the network before the scheme is made"
            )

    def _alike(self, inputs: Mapping[str, Any]) -> bool:
        """Whether all ranks have samples, in arrays of the same shapes; also notes this rank's share."""
        shapes = [[name, np.shape(value), str(getattr(value, "dtype", ""))] for name, value in sorted(inputs.items())]
        mine = np.array([self.samples, zlib.crc32(repr(shapes).encode())], np.float64)  # exact below 2**53
        rows = self.comm.all_gather(mine, control=mine.nbytes)
        self._share = self.samples / (float(rows[:, 0].sum()) or 1.0)
        return bool(self.samples and (rows == mine).all())

    # -- programs -----------------------------------------------------------------------------------------------------
    def _program(self, compiled: Compiled, specs: Any, fused: FusedStep | None) -> Callable[..., Any]:
        """The jitted step, kept with what the executor compiled."""
        key = ("ranks", fused)
        if key not in compiled.variants:
            function, names = compiled.traced({}), compiled.trained
            means = tuple(map(self.spec, names))

            def body(trained: Any, others: Any, state: Any, inputs: Any, draw: Any, *update: Any) -> Any:
                whole = self._wholes(names, trained)
                (_, (results, after)), gradients = function(whole, others, state, inputs, draw)
                gradients = self._summed(names, gradients, 1 / self.comm.size)
                passed = {name: self._rows(name, value) for name, value in results.items()}, after, gradients
                if fused is None:
                    return passed
                old, new = dict(zip(names, trained, strict=True)), dict(zip(names, gradients, strict=True))
                return (*passed, *fused.rules(update[0], fused.by_chunk(old), fused.by_chunk(new), update[1]))

            out: tuple[Any, ...] = (_EACH, _EACH, means)
            if fused is not None:
                out = (*out, fused.by_chunk(dict(zip(names, means, strict=True))), self._slots)
            donated = () if fused is None else (6,)
            compiled.variants[key] = self._jit(body, specs, out, donated)
        return compiled.variants[key]

    def _jit(self, body: Callable[..., Any], specs: Any, out: Any, donated: Any = ()) -> Callable[..., Any]:
        return jax.jit(_shard_map(body, self.mesh, specs, out), donate_argnums=donated)

    @property
    def _slots(self) -> Spec:
        """How what an optimizer remembers lies on the ranks: as its parameters."""
        return _EACH if self.parts else _SAME

    def _rows(self, name: str, value: Any) -> Any:
        """An output of this rank, as one row of all ranks' if it is a number."""
        if getattr(value, "ndim", None) == 0:
            self._lone.add(name)
            return jnp.reshape(value, 1)
        return value

    def _wholes(self, names: Sequence[str], tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Parameters of which this rank may have parts, in the program."""
        wholes = dict(zip(names, tensors, strict=True))
        rows = {name: tensor.reshape(-1) for name, tensor in wholes.items() if self._divided(name)}
        for bucket in _buckets(rows, self.bucket_bytes):
            everyone = jax.lax.all_gather(join([rows[name] for name in bucket]), RANKS)
            for name, some in zip(bucket, self._columns(everyone, bucket), strict=True):
                part = self.parts[name]
                of_ranks = some.reshape(self.comm.size, *part.rows.shape)
                wholes[name] = jnp.moveaxis(of_ranks, 0, part.axis or 0).reshape(part.shape)
        return tuple(wholes.values())

    def _divided(self, name: str) -> bool:
        return name in self.parts and self.parts[name].axis is not None

    def _columns(self, rows: Any, names: Sequence[str]) -> list[Any]:
        """Cut the last axis in the parts of these parameters."""
        ends = np.cumsum([int(np.prod(self.parts[name].rows.shape)) for name in names])
        return list(jnp.split(rows, ends[:-1], -1))

    def _summed(self, names: Sequence[str], gradients: Sequence[Any], share: Any, shapes: Any = None) -> Any:
        """Gradients of all ranks, weighted: whole, or this rank's parts; in the program."""
        shapes = [gradient.shape for gradient in gradients] if shapes is None else shapes
        weighted = [
            jnp.where(share > 0, gradient.reshape(shape) * jnp.asarray(share, gradient.dtype), 0).astype(gradient.dtype)
            for gradient, shape in zip(gradients, shapes, strict=True)
        ]
        sums: dict[str, Any] = {}
        rest = dict(zip(names, weighted, strict=True))
        rows = {name: self._of_ranks(name, rest.pop(name)) for name in names if self._divided(name)}
        for bucket in _buckets(rows, self.bucket_bytes):
            together = jnp.concatenate([rows[name] for name in bucket], 1)
            mine = self._columns(jax.lax.psum_scatter(together, RANKS), bucket)
            sums.update({n: some.reshape(self.parts[n].rows.shape) for n, some in zip(bucket, mine, strict=True)})
        for bucket in _buckets(rest, self.bucket_bytes):
            some = [rest[name] for name in bucket]
            sums.update(zip(bucket, cut(jax.lax.psum(join(some), RANKS), some), strict=True))
        return tuple(sums[name] for name in names)

    def _of_ranks(self, name: str, whole: Any) -> Any:
        """The parts of a whole, each a row."""
        part = self.parts[name]
        return jnp.stack(jnp.split(whole, self.comm.size, part.axis or 0)).reshape(self.comm.size, -1)

    # -- between this rank's arrays and those of all ranks ------------------------------------------------------------
    def _specs(self, compiled: Compiled, operands: Any) -> Any:
        _, others, state, inputs, draw, *update = operands
        others_specs = jax.tree.map(lambda array: _EACH if np.ndim(array) else _SAME, (others, state, inputs, draw))
        packed = (_SAME, jax.tree.map(lambda _: self._slots, update[1])) if update else ()
        return (tuple(map(self.spec, compiled.trained)), *others_specs, *packed)

    def _arrays(self, compiled: Compiled, operands: Any, specs: Any) -> Any:
        """Operands as arrays of all ranks; those of parameters that did not change since are there."""
        trained = []
        for name, tensor, spec in zip(compiled.trained, operands[0], specs[0], strict=True):
            if name not in self._spread or self._spread[name][0] is not tensor:
                self._spread[name] = tensor, self._global(tensor, spec)
            trained.append(self._spread[name][1])
        return (tuple(trained), *self._global(operands[1:], specs[1:]))

    def _global(self, tree: Any, specs: Any) -> Any:
        return jax.tree.map(self._of_all, tree, specs)

    def _of_all(self, array: Any, spec: Spec) -> Any:
        """This rank's array as a part of all ranks', without a copy."""
        if spec not in self._sharded:
            self._sharded[spec] = NamedSharding(self.mesh, spec)
        shape = list(array.shape)
        for axis, name in enumerate(spec):
            shape[axis] *= 1 if name is None else self.comm.size
        return jax.make_array_from_single_device_arrays(tuple(shape), self._sharded[spec], [array])

    def _taken(
        self, compiled: Compiled, everything: Any, fused: FusedStep | None
    ) -> tuple[dict[str, Any], list[Packed]]:
        """Keep what a step left: statistics, gradients and new parameters; return this rank's outputs, and slots."""
        executor, (results, state, gradients, *update) = self.executor, everything
        executor.tensors.update(jax.tree.map(_local, state))
        means = dict(zip(compiled.trained, map(_local, gradients), strict=True))
        executor.gradients = {**means, **compiled.unreached}
        self._count(compiled)
        outputs = {name: jax.tree.map(_local, results[name]) for name in compiled.outputs}
        outputs.update({name: outputs[name].reshape(()) for name in outputs if name in self._lone})
        if fused is None:
            return outputs, []
        for row, tensors in zip(fused.updates, update[0], strict=True):
            for name, tensor in zip(row.names, tensors, strict=True):
                self._spread[name] = _local(tensor), tensor
                executor.tensors[name] = self._spread[name][0]
        return outputs, jax.tree.map(_local, update[1])

    def _count(self, compiled: Compiled) -> None:
        """Count the bytes of a step: gradients, and of parts the parameters."""
        counts = {"all_reduce": 0, "all_gather": 0, "reduce_scatter": 0}
        for name in compiled.trained:
            part = self.parts.get(name)
            if part is None or part.axis is None:
                counts["all_reduce"] += self.executor.gradients[name].nbytes
            else:
                size = self.executor.gradients[name].nbytes
                counts["all_gather"] += size
                counts["reduce_scatter"] += size * self.comm.size
        self.sent = {kind: size for kind, size in counts.items() if size}
        for kind, size in self.sent.items():
            self.comm.traffic.add(kind, size, 0)

    # -- parts and wholes ---------------------------------------------------------------------------------------------
    def check_whole(self) -> None:
        """Raise InputError where the executor does not hold what it needs for a run in evaluation mode."""
        if not self.whole:
            raise InputError(
                "got a run in evaluation mode between steps of FSDP, when each rank has parts of the parameters; "
                "expected it within evaluation() of the scheme, or after a Trainer's step: put it there"
            )

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Within it this rank holds all parameters; all ranks enter it together."""
        if self.whole:
            yield
            return
        tensors, names = self.executor.tensors, [name for name, part in self.parts.items() if part.axis is not None]
        rows = {name: tensors[name] for name in names}
        specs = tuple(map(self.spec, names))
        if self._gather is None:
            self._gather = self._jit(lambda some: self._wholes(names, some), (specs,), tuple(_SAME for _ in names))
        with self._agreeing("the gathering of parameters"):
            wholes = self._gather(self._global(tuple(rows.values()), specs))
        tensors.update(zip(names, map(_local, wholes), strict=True))
        self.whole = True
        try:
            yield
        finally:
            self.whole = False
            tensors.update(rows)

    def release(self) -> None:
        """Hold this rank's parts only."""
        self.whole = False
        self.load({name: np.asarray(self.executor.tensors[name]) for name in self.parts})

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take this rank's parts of whole parameters, of those that are given."""
        executor = self.executor
        for name, array in arrays.items():
            executor.tensors[name] = place(np.ascontiguousarray(self.mine(name, array)), executor.jax_device)

    def mine(self, name: str, array: np.ndarray) -> np.ndarray:
        """This rank's part of an array like a parameter."""
        axis = self.parts[name].axis
        return array if axis is None else np.split(array, self.comm.size, axis)[self.comm.rank]

    def sizes(self, name: str) -> list[int]:
        """Elements of each rank's part."""
        return [int(np.prod(self.parts[name].rows.shape))] * self.comm.size

    def joined(self, name: str, pieces: Sequence[np.ndarray]) -> np.ndarray:
        """The whole of the flat parts of all ranks."""
        part = self.parts[name]
        arrays = [piece.reshape(part.rows.shape) for piece in pieces]
        return arrays[0] if part.axis is None else np.concatenate(arrays, part.axis)

    def counts(self, name: str) -> bool:
        """Whether this rank's part of a parameter is in sums over all ranks: what all have whole is once."""
        return self.parts[name].axis is not None or self.comm.rank == 0

    def _agreeing(self, what: str) -> AbstractContextManager[None]:
        return failures(self.comm, what)

    def updated(self) -> None:
        """Nothing: an update gives the executor new arrays."""

    def remembered(self) -> dict[str, np.ndarray]:
        """Nothing of this rank's own."""
        return {}

    def remember(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Nothing."""


class RanksUpdater(Updater):
    """Jits updates, with the step of all ranks where it can."""

    fuses = True

    def compile(self, updates: Sequence[Update]) -> Step:
        return FusedStep(self.executor, updates, super().compile(updates))


class FusedStep:
    """An update of all chunks, alone or in one program with the step of all ranks."""

    def __init__(self, executor: Any, updates: Sequence[Update], plain: Step) -> None:
        self.executor, self.updates, self.plain, self.rules = executor, updates, plain, rules_of(updates)
        self.names = frozenset(name for update in updates for name in update.names)

    def by_chunk(self, values: Mapping[str, Any]) -> list[list[Any]]:
        """Values of parameters, by chunk."""
        return [[values[name] for name in update.names] for update in self.updates]

    def __call__(
        self, numbers: list[float], gradients: Mapping[str, Any] | None, packed: Sequence[Packed]
    ) -> Sequence[Packed]:
        return self.plain(numbers, gradients, packed)

    def run(
        self, inputs: Mapping[str, Any], loss: str, numbers: list[float], packed: Sequence[Packed]
    ) -> tuple[dict[str, Any], Sequence[Packed]]:
        """Run the network forward and backward, and update; returns its outputs and the slots."""
        executor = self.executor
        compiled, events = executor.checked_step(inputs, loss), executor.events
        if events.before_forward_backward:
            events.emit(events.before_forward_backward, executor)
        done = executor.engine.together(compiled, inputs, self, numbers, packed)
        outputs = executor.engine.separate(compiled, inputs) if done is None else done[0]
        if events.after_forward_backward:
            events.emit(events.after_forward_backward, executor)
        executor.keep(outputs)
        if done is None:
            return outputs, self.plain(numbers, None, packed)
        executor.forget_constants(self.names)
        return outputs, done[1]


def _local(array: Any) -> Any:
    """This rank's part of an array of all ranks."""
    return array.addressable_data(0)


def _buckets(gradients: Mapping[str, Any], size: int) -> list[list[str]]:
    """Names in their order, in rows of one dtype of about that many bytes."""
    rows: list[list[str]] = []
    room, before = 0, None
    for name, gradient in gradients.items():
        if room <= 0 or gradient.dtype != before:
            rows.append([])
            room, before = size, gradient.dtype
        rows[-1].append(name)
        room -= gradient.size * gradient.dtype.itemsize
    return rows


def _shard_map(body: Callable[..., Any], mesh: Any, specs: Any, out: Any) -> Callable[..., Any]:
    """``jax.shard_map``, which older versions of JAX keep elsewhere; ranks may have values of their own."""
    if hasattr(jax, "shard_map"):
        return jax.shard_map(body, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False)
    from jax.experimental.shard_map import shard_map

    return shard_map(body, mesh=mesh, in_specs=specs, out_specs=out, check_rep=False)
