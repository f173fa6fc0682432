"""PyTorch's own engines of training on several ranks, behind an executor: ``DistributedDataParallel`` and
``fully_shard`` (FSDP2), for :mod:`deep500.distributed.schemes.native`; pipelining is in :mod:`.pipelining`.

An engine stands between an executor's compiled network and its training runs. Optimizers see ordinary tensors: with
``fully_shard`` those of this rank's parts, which are the memory of its ``DTensor`` s.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
import torch.distributed as dist

from deep500.distributed.transports.communicator import Communicator
from deep500.errors import InputError, MissingBackend, UnsupportedOperator
from deep500.frameworks.pytorch.distributed import OF_RANKS, failures
from deep500.frameworks.pytorch.layers import in_layers
from deep500.frameworks.pytorch.meeting import group_of, parts_of_group
from deep500.frameworks.pytorch.pipelining import PipeliningEngine
from deep500.frameworks.pytorch.recompute import checkpoint_within
from deep500.networks.drawing import draw_for_good, names_of_undrawn
from deep500.networks.losses import find_loss
from deep500.transformations.stages import layers

State: TypeAlias = dict[str, dict[str, torch.Tensor]]
"""An optimizer's state: slot -> parameter -> tensor."""
OPTIMIZER = "optimizer/"
"""Before the names of an optimizer's slots in a checkpoint."""


def start(kind: str, executor: Any, comm: Communicator, loss: str, options: Mapping[str, Any]) -> Any:
    """The engine of a scheme; see ``TrainsByEngines`` of :mod:`deep500.distributed.schemes.native`."""
    if not dist.is_available():
        raise MissingBackend(
            f"got a PyTorch without torch.distributed for {kind}; expected one with it: pip install 'deep500[pytorch]'"
        )
    engines: dict[str, Callable[..., Any]] = {
        "DDP": ReplicatingEngine,
        "FSDP": ShardingEngine,
        "NativePipeline": PipeliningEngine,
    }
    if kind not in engines:
        raise UnsupportedOperator(f"got {kind} for PyTorch; expected one of {', '.join(engines)}: use that")
    return engines[kind](executor, comm, loss, **options)


class Driver:
    """Base of engines.

    Attributes:
        weight: of this rank's gradients in the mean of the coming step; asked for between forward and backward.
        sent: bytes that the last run handed to the engine's collectives, by kind.
        first, last: whether the coming run is the first, or the last, of those whose gradients are added up.
    """

    fuses = False  # optimizers update by themselves, after a backward run that has exchanged

    def __init__(self, executor: Any, comm: Communicator, loss: str) -> None:
        self.executor, self.comm, self.loss = executor, comm, loss
        self.weight: Callable[[], float] = lambda: 1.0
        self.sent: dict[str, int] = {}
        self.first = self.last = True
        self.group, self.saving_group = group_of(comm, executor.torch_device), None

    def weigh_by(self, weight: Callable[[], float], number: int = 0, count: int = 1) -> None:
        """Let the gradients of the coming run count by what this function says when it is asked; the run has a number
        among those whose gradients are added up."""
        self.weight, self.first, self.last = weight, number == 0, number == count - 1

    def training(self, compiled: Any, loss: str) -> Any:
        """Return what an executor calls to train by a loss, for what it called without the engine."""
        raise NotImplementedError

    def evaluating(self, compiled: Any) -> Any:
        """Return what an executor calls in evaluation mode, for what it called without the engine; raises InputError
        where it does not hold what that needs."""
        return compiled

    def seeded(self, goal: torch.Tensor) -> None:
        """Go backward from the loss, times this rank's weight."""
        weight = self.weight()
        with failures(self.comm, "the backward run", OF_RANKS):
            goal.backward(None if weight == 1 else torch.full_like(goal, weight))

    def guarded(self, module: Callable[..., Any]) -> Callable[..., Any]:
        """A module's call, in which errors that other ranks caused are ours."""

        def call(*tensors: Any) -> Any:
            with failures(self.comm, "the forward run", OF_RANKS):
                return module(*tensors)

        return call


class _Callee(torch.nn.Module):
    """Gives what an executor calls the face of a module with its parameters."""

    def __init__(self, compiled: Any) -> None:
        super().__init__()
        self.network, self.call = compiled.module, compiled.call

    def forward(self, *tensors: Any) -> Any:
        """Call it."""
        return self.call(*tensors)


class ReplicatingEngine(Driver):
    """``DistributedDataParallel``: whole parameters on every rank; gradients are averaged in buckets while the backward
    run goes on, and are views of the buckets.

    Args:
        executor: runs the network.
        comm: the ranks.
        loss: is differentiated.
        bucket_bytes: size of a bucket.
        compression: None, ``"fp16"`` or ``"powersgd"``: a communication hook of PyTorch's.
        rank: of PowerSGD's factors.
        begin: the step from which PowerSGD compresses.
    """

    def __init__(
        self,
        executor: Any,
        comm: Communicator,
        loss: str,
        bucket_bytes: int,
        compression: str | None,
        rank: int,
        begin: int,
    ) -> None:
        super().__init__(executor, comm, loss)
        self.bucket_bytes, self.compression, self.rank, self.begin = bucket_bytes, compression, rank, begin
        self.native: Any = None
        self.powersgd: Any = None
        self._laid, self._sums = False, list[Any]()

    def training(self, compiled: Any, loss: str) -> Any:
        """See the base class; gradients of the loss are means over ranks."""
        from torch.nn.parallel import DistributedDataParallel

        if compiled.backward is not torch.Tensor.backward:
            raise InputError(
                "got recompute='explicit' with DDP, which listens to PyTorch's own differentiation; expected "
                "recompute='checkpoint': use that, or ConsistentDecentralized"
            )
        callee, network = _Callee(compiled), self.executor.network
        reached = {id(self.executor.tensors[name]) for name, _ in network.gradient(loss)}
        others = [name for name, tensor in callee.named_parameters() if id(tensor) not in reached]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(callee, others)
        branches = any(node.graphs for node in network.nodes)
        known = inspect.signature(DistributedDataParallel).parameters
        buffers = (
            "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
        )  # before torch 2.13
        options: dict[str, Any] = {buffers: False}
        self.native = DistributedDataParallel(
            callee,
            process_group=self.group,
            bucket_cap_mb=self.bucket_bytes / 2**20,
            **options,
            gradient_as_bucket_view=True,
            find_unused_parameters=branches,
            init_sync=False,
        )
        self._size = sum(tensor.nbytes for tensor in callee.parameters() if id(tensor) in reached)
        self._laid = branches
        if self.compression is not None:
            self.native.register_comm_hook(None, self._hook())
        place = compiled.outputs.index(loss)
        call = self.guarded(self.native)

        def run(*tensors: Any) -> Any:
            if not self._laid:
                self._lay(call, tensors, place)
            self.sent = {"all_reduce": self._size if self.compression is None and self.last else 0}
            with nullcontext() if self.last else self.native.no_sync():
                return call(*tensors)

        return replace(compiled, call=run, backward=self._backward)

    def _backward(self, goal: torch.Tensor) -> None:
        """Go backward; gradients of runs before this one, which an executor drops, are there to be added to."""
        parameters = list(self.native.parameters())
        for parameter, gradient in zip(parameters, [] if self.first else self._sums, strict=not self.first):
            parameter.grad = gradient
        self.seeded(goal)
        self._sums = [] if self.last else [parameter.grad for parameter in parameters]

    def _lay(self, call: Callable[..., Any], tensors: Sequence[Any], place: int) -> None:
        """Let DDP arrange its buckets, which it does by the order of the first step's gradients: then the first step
        after a resumption adds up in the same order as that of the run that was not stopped."""
        statistics = [t for t in self.executor.tensors.values() if not isinstance(t, torch.nn.Parameter)]
        before = [tensor.clone() for tensor in statistics]
        with torch.random.fork_rng():
            results = call(*tensors)
            goal = results[place] if isinstance(results, tuple) else results
            with failures(self.comm, "the backward run", OF_RANKS):
                goal.backward(torch.zeros_like(goal))
        for tensor, old in zip(statistics, before, strict=True):
            tensor.copy_(old)
        for parameter in self.native.parameters():
            parameter.grad = None
        self._laid = True

    # -- compression --------------------------------------------------------------------------------------------------
    def _hook(self) -> Callable[[Any, Any], Any]:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
        from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

        if self.compression == "powersgd":
            self.powersgd = PowerSGDState(self.group, self.rank, self.begin)

        def hook(_: Any, bucket: Any) -> Any:
            if not self._laid:
                return default_hooks.allreduce_hook(self.group, bucket)
            size = bucket.buffer().nbytes
            if self.powersgd is None:
                self.sent["all_reduce"] += size * 2 // bucket.buffer().element_size()
                return default_hooks.fp16_compress_hook(self.group, bucket)
            state, before = self.powersgd, self.powersgd.total_numel_after_compression
            early = state.iter < state.start_powerSGD_iter
            future = powerSGD_hook(state, bucket)
            if dist.get_backend(self.group) == "gloo":  # waits in gloo's two threads, which two buckets would both take
                future.wait()
            sent = state.total_numel_after_compression - before
            self.sent["all_reduce"] += size if early else sent * bucket.buffer().element_size()
            return future

        hook.__annotations__ = {"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]}  # it is asked
        return hook

    @property
    def _memory(self) -> dict[str, dict[int, torch.Tensor]]:
        """Memory of PowerSGD, of each bucket."""
        state = self.powersgd
        return {"owed": state.error_dict, "left": state.p_memory_dict, "right": state.q_memory_dict}

    def remembered(self) -> dict[str, np.ndarray]:
        """Gradients that PowerSGD owes, its factors and its steps; they are this rank's own."""
        if self.powersgd is None:
            return {}
        arrays = {f"{kind}/{n}": t.numpy().copy() for kind, known in self._memory.items() for n, t in known.items()}
        return {**arrays, "iterations": np.asarray(self.powersgd.iter, np.int64)}

    def remember(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from :meth:`remembered`; raises KeyError for what is not there."""
        if self.compression != "powersgd":
            return
        self.executor.training_step(self.loss)  # which makes the hook
        self.powersgd.iter = int(arrays["iterations"])
        for kind, known in self._memory.items():
            known.clear()
            for name, array in arrays.items():
                if name.startswith(f"{kind}/"):
                    known[int(name.partition("/")[2])] = torch.from_numpy(array.copy())


class SharedRows(NamedTuple):
    """A parameter of which each rank has some rows.

    Attributes:
        tensor: the executor's; between validations this rank's rows.
        sharded: the ``DTensor`` of all ranks, whose memory that is.
        rows: this rank's rows.
        shape: of the whole.
    """

    tensor: torch.nn.Parameter
    sharded: Any
    rows: torch.Tensor
    shape: tuple[int, ...]


class ShardingEngine(Driver):
    """``fully_shard``: each rank has some rows of every parameter; those of a layer are gathered before it computes,
    and its gradients are reduced to their owners.

    Args:
        executor: runs the network, which it holds whole for the last time, or not at all: then each rank draws its rows
            (:mod:`deep500.networks.drawing`).
        comm: the ranks.
        loss: is differentiated.
        crossing: how many activations may cross between layers at least.
        sharing: the ranks that have all rows together: all, or a part of them with numbers in a row (HSDP).

    Attributes:
        parts: the parameters that are shared out, by name.
        in_turn: whether runs in evaluation mode gather layer by layer.
    """

    def __init__(
        self, executor: Any, comm: Communicator, loss: str, crossing: int, sharing: Communicator | None = None
    ) -> None:
        super().__init__(executor, comm, loss)
        self.sharing, network = comm if sharing is None else sharing, executor.network
        executor.refresh()
        outputs = tuple(network.outputs)
        self.outputs = outputs if loss in outputs else (*outputs, find_loss(network, loss))
        self.whole, self.in_turn, self.version = True, False, network.version
        self.parts: dict[str, SharedRows] = {}
        program = executor.compiled(self.outputs, None)
        if not hasattr(program.module, "program"):
            raise UnsupportedOperator(
                "got FSDP for a module of your own, which cannot be cut in layers here; expected a network: use "
                "from_model, or apply fully_shard to the module by yourself"
            )
        _check_scalars(program.module)
        numbers = layers(network, loss, crossing)
        self._layered, self._plan = in_layers(program.module, numbers), None
        self._plain = {module: module.graph for module in (self._layered.root, *self._layered.layers)}
        undrawn = names_of_undrawn(network)
        if undrawn:
            _check_values(network)
        self._shard({name for name, _ in network.gradient(loss)}, undrawn)
        self.release()
        draw_for_good(network, lambda name, array: self.load({name: array}))

    def _shard(self, trained: set[str], undrawn: Sequence[str]) -> None:
        from torch.distributed.device_mesh import DeviceMesh
        from torch.distributed.fsdp import fully_shard

        layered, executor = self._layered, self.executor
        kind, ranks = executor.torch_device.type, self.sharing.size
        if ranks == self.comm.size:
            mesh = DeviceMesh.from_group(self.group, kind)
        else:
            grid = torch.arange(self.comm.size).view(-1, ranks)
            groups = [parts_of_group(self.comm, self.group, rows.tolist()) for rows in (grid.T, grid)]
            mesh = DeviceMesh.from_group(groups, kind, grid, mesh_dim_names=("data", "shard"))
        for module, attribute in (layered.places[name] for name in undrawn):
            shape, dtype = getattr(module, attribute).shape, getattr(module, attribute).dtype
            setattr(module, attribute, torch.nn.Parameter(torch.empty(shape, dtype=dtype, device="meta")))
        last = len(layered.layers) - 1
        for number, layer in enumerate(layered.layers):
            fully_shard(layer, mesh=mesh, reshard_after_forward=number < last)
        fully_shard(layered.root, mesh=mesh, reshard_after_forward=False)
        if undrawn:  # rows that are no longer on meta, of no value yet
            device = executor.torch_device
            layered.root._apply(lambda t: torch.empty_like(t, device=device) if t.device.type == "meta" else t)
        for name, (module, attribute) in layered.places.items():
            sharded, tensor = getattr(module, attribute), executor.tensors[name]
            self.parts[name] = SharedRows(tensor, sharded, sharded.to_local().detach(), tuple(tensor.shape))
        gathered = {module: 1 for module, _ in layered.places.values()} | dict.fromkeys(layered.layers[:last], 2)
        self._sent = {
            "all_gather": sum(times * self._bytes(module) for module, times in gathered.items()),
            "reduce_scatter": ranks * sum(self._bytes(module, trained) for module in gathered),
        }
        if ranks < self.comm.size:
            self._sent["all_reduce"] = sum(self._bytes(module, trained) for module in gathered)

    def _bytes(self, module: Any, names: Any = None) -> int:
        """Bytes of this rank's rows of a module's parameters, filled up to those of the fullest rank."""
        return sum(
            -(-part.shape[0] // self.sharing.size) * int(np.prod(part.shape[1:])) * part.rows.element_size()
            for name, part in self.parts.items()
            if self._layered.places[name][0] is module and (names is None or name in names)
        )

    def training(self, compiled: Any, loss: str) -> Any:
        """See the base class; every parameter's gradient is that of this rank's rows, the mean over ranks."""
        network = self.executor.network
        if network.version != self.version or compiled.outputs != self.outputs or loss != self.loss:
            raise InputError(
                "got a network that was edited, or another loss, after FSDP had shared it out; expected the same: edit "
                "the network before the scheme is made"
            )
        if self.executor.checkpointing is not self._plan:
            self._recompute(self.executor.checkpointing)
        return replace(compiled, module=self._layered.root, call=self._root(), backward=self._backward)

    def _recompute(self, plan: Any) -> None:
        """Let the regions of a plan run again, each within the layers that it is of; None: no longer."""
        if plan is not None and self.executor.recompute == "explicit":
            raise InputError(
                "got recompute='explicit' with FSDP, which listens to PyTorch's own differentiation; expected "
                "recompute='checkpoint': use that, or ConsistentDecentralized"
            )
        regions = [] if plan is None else [region.values for region in plan.regions]
        for module, plain in self._plain.items():
            checkpoint_within(module, plain, self.executor.network, regions)
        self._plan = plan

    def _backward(self, goal: torch.Tensor) -> None:
        parts = self.parts.values()
        for part in parts if self.first else ():
            part.sharded.grad = None
        self.seeded(goal)
        self.sent = self._sent
        with torch.no_grad():  # else each to_local() is noted for differentiation, which takes longer than an update
            for part in parts if self.last else ():  # until then fully_shard adds them up
                gradient = part.sharded.grad
                part.tensor.grad = None if gradient is None else gradient.to_local()
                part.sharded.grad = None

    # -- parts and wholes ---------------------------------------------------------------------------------------------
    def evaluating(self, compiled: Any) -> Any:
        if self.whole:
            return compiled
        if not self.in_turn:
            raise InputError(
                "got a run in evaluation mode between steps of FSDP, when each rank has some rows of the parameters; "
                "expected it within evaluation() of the scheme, or after a Trainer's step: put it there"
            )
        whole, places = self._root(), [self.outputs.index(name) for name in compiled.outputs]
        inputs = self._layered.root.program.inputs

        def call(*tensors: Any) -> tuple[Any, ...]:
            results = whole(*tensors)
            return tuple((results if isinstance(results, tuple) else (results,))[place] for place in places)

        return replace(compiled, module=self._layered.root, call=call, inputs=inputs)

    def runs_in_turn(self, outputs: tuple[str, ...]) -> bool:
        """Whether layers that are gathered one after the other give these outputs of the same inputs."""
        inputs = self._layered.root.program.inputs
        return set(outputs) <= set(self.outputs) and self.executor.evaluation(outputs).inputs == inputs

    @contextmanager
    def turns(self) -> Iterator[None]:
        """Within it runs in evaluation mode gather layer by layer; all ranks make as many."""
        self.in_turn = True
        try:
            yield
        finally:
            self.in_turn = False
            for module in (self._layered.root, *self._layered.layers):
                module.reshard()  # type: ignore[operator]

    def _root(self) -> Callable[..., Any]:
        """The call of all layers."""
        # It warns of views, into which nobody writes here: lines of a network's code give new values.
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view tensor")
        return self.guarded(self._layered.root)

    def updated(self) -> None:
        """After an update: rows that an optimizer moved elsewhere are brought back to the memory of the engine."""
        with torch.no_grad():
            for part in self.parts.values():
                if part.tensor.data_ptr() != part.rows.data_ptr():
                    part.rows.copy_(part.tensor)
                    part.tensor.data = part.rows

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Within it this rank holds all parameters; all ranks enter it together."""
        if self.whole:
            yield
            return
        with failures(self.comm, "the gathering of parameters", OF_RANKS):
            for part in self.parts.values():
                part.tensor.grad = None
                part.tensor.data = part.sharded.detach().full_tensor()
                torch.autograd.graph.increment_version(part.tensor)
        self.whole = True
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Hold this rank's rows only."""
        self.whole = False
        for name, part in self.parts.items():
            self.executor.network.release_tensor(name)
            part.tensor.data = part.rows

    def load(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take this rank's rows of whole parameters, of those that are given."""
        for name, array in arrays.items():
            self.parts[name].rows.copy_(torch.from_numpy(np.ascontiguousarray(self.mine(name, array))))

    def parts_of(self, name: str, rows: torch.Tensor) -> Any:
        """Rows of this rank that belong to a parameter, as a ``DTensor`` of all ranks."""
        from torch.distributed.tensor import DTensor

        like = self.parts[name].sharded
        shape, stride = like.shape, like.stride()
        return DTensor.from_local(rows, like.device_mesh, like.placements, run_check=False, shape=shape, stride=stride)

    def save(self, state: State, numbers: Mapping[str, float], folder: Path, asynchronous: bool) -> Any:
        """Write parameters and an optimizer's state, rank by rank; see :mod:`.sharded_checkpoint`."""
        from deep500.frameworks.pytorch.sharded_checkpoint import save

        return save(self, self._named(state), numbers, folder, asynchronous)

    def load_saved(self, folder: Path) -> tuple[State, dict[str, float]]:
        """Read parameters back, and return this rank's rows of the optimizer's state, and the numbers."""
        from deep500.frameworks.pytorch import sharded_checkpoint

        index = sharded_checkpoint.read_index(folder)
        state: State = {}
        for entry in index["tensors"]:
            slot, _, name = entry.removeprefix(OPTIMIZER).partition("/")
            if entry.startswith(OPTIMIZER) and name in self.parts:
                state.setdefault(slot, {})[name] = torch.empty_like(self.parts[name].rows)
        tensors = self._named(state)
        have = {name: list(tensor.shape) for name, tensor in tensors.items()}
        want = {name: shape for name, (_, *shape) in index["tensors"].items()}
        if have != want:
            odd = next(n for n in [*have, *want] if have.get(n) != want.get(n))
            raise InputError(
                f"{folder}: got {odd!r} of shape {want.get(odd)}; expected {have.get(odd)}, as in this network: load "
                "the checkpoint of the same network"
            )
        sharded_checkpoint.load(folder, tensors, self.group)
        return state, index["numbers"]

    def _named(self, state: State) -> dict[str, Any]:
        """Tensors of a checkpoint by name: parameters, running statistics, slots of the optimizer."""
        tensors: dict[str, Any] = {n: t for n, t in self.executor.tensors.items() if n not in self.parts}
        tensors = {name: tensor.detach() for name, tensor in tensors.items() if isinstance(tensor, torch.Tensor)}
        tensors.update({name: part.sharded.detach() for name, part in self.parts.items()})
        for slot, rows in state.items():
            tensors.update({f"{OPTIMIZER}{slot}/{name}": self.parts_of(name, some) for name, some in rows.items()})
        return tensors

    def bounds(self, name: str) -> list[tuple[int, int]]:
        """First and last row, and one more, of each rank."""
        count, ranks = self.parts[name].shape[0], self.sharing.size
        most = -(-count // ranks)
        return [(min(rank * most, count), min((rank + 1) * most, count)) for rank in range(ranks)]

    def sizes(self, name: str) -> list[int]:
        """Elements of each rank's rows."""
        return [(end - first) * int(np.prod(self.parts[name].shape[1:])) for first, end in self.bounds(name)]

    def joined(self, name: str, pieces: Sequence[np.ndarray]) -> np.ndarray:
        """The whole of the flat rows of all ranks."""
        return np.concatenate(pieces).reshape(self.parts[name].shape)

    def counts(self, name: str) -> bool:
        """Whether this rank's rows of a parameter are in sums over all ranks."""
        return True

    def mine(self, name: str, array: np.ndarray) -> np.ndarray:
        """This rank's rows of an array like a parameter."""
        first, end = self.bounds(name)[self.sharing.rank]
        return array[first:end]


def _check_values(network: Any) -> None:
    """Raise InputError for what was computed from initial values that are not drawn."""
    values = {name: p.value for name, p in network.parameters.items() if p.undrawn is None}
    odd = [name for name, value in values.items() if value.dtype.kind == "f" and np.isnan(value).any()]
    if odd:
        raise InputError(
            f"got NaN in {odd[0]!r} of a network whose initial values are not drawn; expected no value that is made of "
            "those: make the network outside of undrawn()"
        )


def _check_scalars(module: Any) -> None:
    """Raise InputError for parameters without rows."""
    for attribute, name in module.names.items():
        tensor = getattr(module, attribute, None)
        if isinstance(tensor, torch.nn.Parameter) and tensor.ndim == 0:
            raise InputError(
                f"got parameter {name!r} without dimensions for FSDP, whose ranks have rows of parameters; expected at "
                "least one dimension: give it the shape [1], or use DDP or ShardedParameters"
            )
