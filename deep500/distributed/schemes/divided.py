"""`DividedNetwork`: the network itself is shared out among ranks, as a parallel plan says."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from deep500.distributed.collectives import run_collective
from deep500.distributed.optimizer import DistributedOptimizer
from deep500.distributed.pingpong import measured_costs
from deep500.distributed.rank_runs import RankRun
from deep500.distributed.staged import Staged, check_elementwise, check_options
from deep500.distributed.transports.communicator import Communicator
from deep500.errors import CommunicationError, InputError
from deep500.networks.execution.bound import BoundNetwork
from deep500.networks.network import Network
from deep500.training.optimizers.base import Optimizer, UpdateRuleOptimizer
from deep500.training.optimizers.states import arrays_of_training
from deep500.transformations.parallel.checking import check_division
from deep500.transformations.parallel.costs import StepCosts
from deep500.transformations.parallel.dividing import part
from deep500.transformations.parallel.joint import joint_network
from deep500.transformations.parallel.plan_file import ParallelPlan, PlanRow, load_parallel_plan, parallel_plan_from
from deep500.transformations.parallel.planning import Wishes, parallelize
from deep500.transformations.parallel.recomputing import backward_nodes, rank_step
from deep500.transformations.parallel.shardings import R, Sharding, collective_attributes
from deep500.transformations.recomputation.rewriting import recomputing

AUTO = "auto"
"""As a recipe asks: the planner decides alone, by round numbers for the costs of messages."""

MEASURED: Literal["measured"] = "measured"
"""The same by what messages between these ranks take."""


@dataclass
class GatheredBatch:
    """The batch of all ranks.

    Attributes:
        arrays: inputs.
        begin, count: of this rank's samples in it.
        samples: in all; a network whose inputs have none counts as one.
    """

    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    begin: int = 0
    count: int = 1
    samples: int = 1

    def share(self, value: Any) -> Any:
        """The rows of this rank's samples; what has none as it is.

        Example:
            >>> GatheredBatch(begin=2, count=1, samples=3).share(np.array([1, 2, 3])).tolist()
            [3]
        """
        mine = value.shape[:1] == (self.samples,) and self.count < self.samples
        return value[self.begin : self.begin + self.count] if mine else value


class DividedNetwork(Staged):
    """Training with layers divided among ranks (tensor parallelism), the batch, or both, as a parallel plan chooses.

    The step, forward and backward, is one network; a :class:`~deep500.transformations.parallel.plan_file.ParallelPlan`
    says for each of its nodes how the ranks share it, and each rank runs a plain network with collectives between its
    pieces, on any backend. Rank 0 plans; the plan is checked before it runs. It holds for a batch size; for another one
    the rest is planned again while parameters stay where they are. The norm of
    :class:`~deep500.training.clipping.ClipGradientNorm` is summed over pieces.

    Each rank has a share of the batch, as in other schemes; the shares are gathered first, and every rank reads of the
    whole what its plan says. Outputs are this rank's share.

    What a rank holds: its pieces of parameters, gradients and optimizer state. In a validation, and when a state is
    asked for (all ranks together), all of them; when it is made the whole network. JAX and TensorFlow do not let go
    of the whole, and hold it besides. States are those of the whole: they load on any number of ranks and plan. On one
    rank the base optimizer trains as it is.

    Args:
        base_optimizer: with an update rule that is elementwise, see
            :attr:`~deep500.training.optimizers.base.ThreeStepOptimizer.elementwise`.
        comm: see :class:`~deep500.distributed.optimizer.DistributedOptimizer`.
        plan: a plan, or a file of it; None plans for the first batch.
        memory, pins, recompute: of the plan that is made, see
            :class:`~deep500.transformations.parallel.planning.Wishes`.
        costs: of messages, by which a plan is made: ``"measured"`` between these ranks, before the first step (another
            launch may then plan otherwise: the plan repeats it), or given; None for round numbers.

    Attributes:
        plan: of the first batch; None before it, and on one rank.

    Raises:
        InputError: another optimizer, ``accumulate``, a gradient transform but ``ClipGradientNorm``, a plan and
            ``recompute``.
        PlanError: a plan for another network or number of ranks.

    Example:
        >>> from deep500.distributed import Threads
        >>> from deep500.frameworks import reference
        >>> from deep500.networks import add_loss, create
        >>> from deep500.training.optimizers import AdamOptimizer
        >>> def train(comm):
        ...     executor = reference.from_model(add_loss(create("mlp", shape=(4,), hidden=(8,), classes=2)))
        ...     scheme = DividedNetwork(AdamOptimizer(executor), comm, pins={"fc1": "n", "fc2": "k"})
        ...     scheme.step({"input": np.ones((2, 4), "float32"), "label": np.zeros(2, "int64")})
        ...     return scheme.shapes()["fc1.weight"]
        >>> Threads(2).run(train)
        [(4, 4), (4, 4)]
    """

    changes_parameters = stands_inside = sees_whole_batch = True
    computes_once = "whose step is one network; expected recompute, which plans what each rank computes again: give it"

    def __init__(
        self,
        base_optimizer: Optimizer,
        comm: Communicator | None = None,
        plan: ParallelPlan | str | None = None,
        memory: int | None = None,
        pins: Mapping[str, str] | None = None,
        costs: StepCosts | Literal["measured"] | None = None,
        recompute: float | int | None = None,
    ) -> None:
        check_elementwise(base_optimizer, "DividedNetwork", UpdateRuleOptimizer)
        super().__init__(base_optimizer, comm)
        self.stages, self.absent = [], []
        self.plan: ParallelPlan | None = load_parallel_plan(plan) if isinstance(plan, str) else plan
        self.wishes = Wishes(memory, dict(pins or {}), recompute, arrays_of_training(base_optimizer))
        if isinstance(costs, StepCosts):
            self.wishes = replace(self.wishes, model=costs)
        elif costs not in (None, MEASURED):
            raise InputError(f"got costs={costs!r}; expected {MEASURED!r}, StepCosts(...) or None: give one of them")
        if plan is not None and recompute is not None:
            raise InputError("got a plan and recompute; expected one of them: plan with Wishes(recompute=...)")
        self._measures = costs == MEASURED
        if self.comm.size == 1:
            return
        advice = ", as no rank has whole gradients: leave it out, or use ConsistentDecentralized"
        check_options(base_optimizer, "DividedNetwork", advice, modifier=False)
        if self.plan is not None and self.plan.ranks != self.comm.size:
            raise CommunicationError(
                f"got a plan for {self.plan.ranks} ranks on {self.comm.size}; expected the same number: start that "
                "many, or plan again"
            )
        self._serial = _hollow(self.network, set(self.parameter_names()))
        self.shardings: dict[str, Sharding] = {}
        self._mine: dict[str, Any] = {}
        self._holder: Any = None  # an executor of parts, as optimizers see them
        self._runs: dict[tuple[tuple[str, tuple[int, ...]], ...], tuple[RankRun, ParallelPlan]] = {}
        self._gradients: dict[str, Any] = {}
        self._updates: dict[str, str] = {}
        self._met = False  # whether all ranks have seen that they have one plan
        if self.plan is not None:
            self._settle(self.plan)
        self._begin()

    @classmethod
    def as_asked(cls, asked: Any) -> partial[DividedNetwork]:
        """The scheme as the key ``parallel`` of a recipe asks for it.

        Example:
            >>> DividedNetwork.as_asked("measured").keywords, DividedNetwork.as_asked(1000).keywords
            ({'costs': 'measured'}, {'memory': 1000})
        """
        if asked in (AUTO, MEASURED):
            return partial(cls, costs=MEASURED if asked == MEASURED else None)
        if isinstance(asked, Mapping | int):
            return partial(cls, pins=asked) if isinstance(asked, Mapping) else partial(cls, memory=asked)
        return partial(cls, plan=str(asked))

    def explain(self) -> list[PlanRow]:
        """Rows of the plan (:meth:`~deep500.transformations.parallel.plan_file.ParallelPlan.explain`), if any."""
        return [] if self.plan is None else self.plan.explain(self._serial)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of this rank's parts of parameters."""
        return {name: tuple(self.network.to_numpy(tensor).shape) for name, tensor in self._mine.items()}

    def take_plan(self, path: str) -> None:
        """Go on by the plan of a file, before the first step, if it is for as many ranks."""
        if self.comm.size > 1 and not self.shardings and (plan := load_parallel_plan(path)).ranks == self.comm.size:
            self._settle(plan)

    # -- plans --------------------------------------------------------------------------------------------------------
    def _settle(self, plan: ParallelPlan) -> None:
        """Take this rank's parts of parameters and running statistics, and let go of the rest."""
        self.plan = plan
        joint = joint_network(self._serial, plan.shapes, self.loss)
        moving = [*joint.gradients, *(name for name in self.network.parameters if name in joint.moving)]
        self.shardings = {name: Sharding.parse(plan.sources.get(name, "R")) for name in moving}
        whole = dict(zip(moving, self.arrays(self.network.fetch_tensors(moving)), strict=True))
        self._mine = {name: self._part(name, array) for name, array in whole.items()}
        self.absent = list(joint.gradients)
        parts = self._serial.bare()
        for name, p in ((name, self._serial.parameter(name)) for name in self.absent):
            empty = part(p.value, self.shardings[name], self.comm.size, self.comm.rank)
            parts.put_parameters({name: replace(p, value=empty)})
        self._holder = self.executor.like(parts)
        self.release(self.absent)
        for tensors in self.base_optimizer.state.values():  # type: ignore[attr-defined]  # loaded before the plan
            for name, tensor in tensors.items():
                if name in self._mine and tuple(tensor.shape) == whole[name].shape:
                    tensors[name] = self._part(name, self.network.to_numpy(tensor))

    def release(self, names: list[str]) -> None:
        """Let go of parameters' memory, where the backend can."""
        if type(self.network).release_tensor is not BoundNetwork.release_tensor:
            super().release(names)

    def _part(self, name: str, whole: np.ndarray) -> Any:
        mine = part(whole, self.shardings[name], self.comm.size, self.comm.rank)
        return self.network.to_tensor(np.array(mine, order="C"))

    def _run_of(self, inputs: Mapping[str, np.ndarray]) -> tuple[RankRun, ParallelPlan]:
        """This rank's network for a batch of these sizes."""
        key = tuple((name, inputs[name].shape) for name in sorted(inputs))
        if key not in self._runs:
            plan = self._plan_for({name: array.shape for name, array in inputs.items()})
            division = plan.division(self._serial)
            if self.comm.rank == 0:
                check_division(division, [division.network(rank) for rank in range(self.comm.size)])
            network, joint = division.network(self.comm.rank), division.graph.joint
            self._updates = dict(joint.updates)
            if plan.again:
                step = rank_step(network, joint, self.loss)
                network = recomputing(step, [set(region) for region in plan.again]).network
            late = {node.name for node in backward_nodes(network, joint)}  # so beside what backends fuse them with
            self._runs[key] = RankRun(network, self._mine, self.executor, self.comm, late), plan
        return self._runs[key]

    def _plan_for(self, shapes: Mapping[str, tuple[int, ...]]) -> ParallelPlan:
        """The plan for a batch of these sizes, in which parameters stay where they are."""
        plan = self.plan
        if plan is not None and all(tuple(plan.shapes[name]) == tuple(shape) for name, shape in shapes.items()):
            return plan
        again = plan.peaks[0] if plan is not None and plan.peaks else None
        pins = {name: str(sharding) for name, sharding in self.shardings.items()}
        wishes = replace(self.wishes, memory=None, pins=pins, recompute=again)
        first = self.comm.rank == 0  # which alone plans, for the solver has no seed
        planned = parallelize(self._serial, self.comm.size, shapes, self.loss, wishes).data() if first else None
        return parallel_plan_from(self.comm.gather_facts(planned)[0], "the plan of rank 0")

    def _meet_on_plan(self, batch: GatheredBatch) -> None:
        """See that all ranks, on a mesh also those on other axes, have one plan; without one, make it for the first
        batch. Where parameters lie is the same everywhere, so that gradients can be averaged around."""
        self._met, comms = True, [self.comm, *(scheme.comm for scheme in self._outside())]
        if self.plan is not None:
            for comm in comms:
                hashes = comm.gather_facts(self.plan.data()["hash"])
                if len(set(hashes)) > 1:
                    raise CommunicationError(
                        f"got different plans on the ranks ({', '.join(h[:8] for h in hashes)}); expected one: give "
                        "every rank the same plan file"
                    )
            return
        shapes = _first({n: a.shape for n, a in batch.arrays.items()} if batch.samples else None, comms)
        if self._measures:
            model, about = measured_costs(self.comm)
            self.wishes = replace(self.wishes, model=model, costs_from=about)
        planned = None
        if not any(comm.rank for comm in comms):
            sizes = {name: tuple(shape) for name, shape in shapes.items()}
            planned = parallelize(self._serial, self.comm.size, sizes, self.loss, self.wishes).data()
        self._settle(parallel_plan_from(_first(planned, comms), "the plan of the first rank"))

    def _outside(self) -> Iterator[DistributedOptimizer]:
        """The schemes around this one on a mesh, from the inside."""
        scheme: Any = self
        while scheme.exchange is not scheme and isinstance(scheme.exchange, DistributedOptimizer):
            yield (scheme := scheme.exchange)

    # -- a step -------------------------------------------------------------------------------------------------------
    def step(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """One step of all ranks on the samples of all of them; the outputs are those of this rank's samples."""
        return self.base_optimizer.step(inputs)

    def run_stages(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The step on the whole batch; this rank's gradients are left in ``_gradients``."""
        with self.communicating():
            batch = self._gathered_inputs(inputs)
            if not self._met:
                self._meet_on_plan(batch)
        to_tensor = self.network.to_tensor
        if not batch.samples:  # they are on other axes of a mesh
            to_numpy = self.network.to_numpy
            self._gradients = {name: to_tensor(np.zeros_like(to_numpy(self._mine[name]))) for name in self.absent}
            return {}
        run, plan = self._run_of(batch.arrays)
        feeds = {
            name: part(array, Sharding.parse(plan.sources.get(name, "R")), self.comm.size, self.comm.rank)
            for name, array in batch.arrays.items()
        }
        results = run({**feeds, **self._mine}, self._agreed_seed(run))
        results = {name: to_tensor(v) if isinstance(v, np.ndarray) else v for name, v in results.items()}
        for name, value in self._updates.items():
            self._mine[name] = results.pop(value)
        self._gradients = {name: results.pop(f"{name}.grad") for name in self.absent}
        return {name: batch.share(results[name]) for name in dict.fromkeys([*self.network.outputs, self.loss])}

    def _agreed_seed(self, run: RankRun) -> int:
        """Of this step's random numbers, rank 0's: a trainer seeds every rank otherwise, and what is whole on every
        rank must be the same."""
        if not any(phase.random for phase in run.phases):
            return 0
        with self.communicating():
            seed = self.comm.gather_facts(self.executor.seed)[0]
        return int(np.random.SeedSequence([seed, self.base_optimizer.backprops]).generate_state(1)[0] >> 8)

    def _gathered_inputs(self, inputs: Mapping[str, Any]) -> GatheredBatch:
        """The inputs of all ranks in their order, which travel as one message."""
        declared, batch, shares = self.network.inputs, GatheredBatch(), dict[str, np.ndarray]()
        for name in sorted(inputs):
            array = np.asarray(self.network.to_numpy(inputs[name]), order="C")
            same = array.ndim == 0 or tuple(declared[name].shape or ()) == array.shape  # it has no axis of samples
            (batch.arrays if same else shares)[name] = array
        if not shares:
            return batch
        lengths = np.array([len(share) for share in shares.values()])
        counts = self.comm.all_gather(lengths, control=lengths.nbytes)
        bytes_of_row = np.array([math.prod(share.shape[1:]) * share.itemsize for share in shares.values()])
        message = np.zeros(int((counts @ bytes_of_row).max()), np.uint8)
        mine = b"".join(share.tobytes() for share in shares.values())
        message[: len(mine)] = np.frombuffer(mine, np.uint8)
        messages, begins = self.comm.all_gather(message, control=message.nbytes - len(mine)), [0] * self.comm.size
        for (name, share), rows, width in zip(shares.items(), counts.T.tolist(), bytes_of_row.tolist(), strict=True):
            ends = [begin + width * count for begin, count in zip(begins, rows, strict=True)]
            pieces = [theirs[begin:end] for theirs, begin, end in zip(messages, begins, ends, strict=True)]
            batch.arrays[name] = np.concatenate(pieces).view(share.dtype).reshape(sum(rows), *share.shape[1:])
            batch.begin, batch.count, batch.samples = sum(rows[: self.comm.rank]), rows[self.comm.rank], sum(rows)
            begins = ends
        return batch

    def update_parts(self) -> None:
        """The base optimizer's rule on this rank's parts."""
        base: Any = self.base_optimizer
        names, gradients = list(self._gradients), list(self._gradients.values())
        if self.exchange is not self:  # parts of the same place on other axes of a mesh
            gradients = list(self.agreed_outside(names, gradients))
        factor = self._clip_factor(dict(zip(names, gradients, strict=True)))
        if factor is not None:
            gradients = self.network.weighted_sum([gradients], [factor])
        parts, view = self._holder.network, copy.copy(base)
        for name, now in zip(names, parts.fetch_tensors(names), strict=True):
            if now is not self._mine[name]:  # it was loaded
                parts.assign_tensor(name, self._mine[name])
        vars(view).update(executor=self._holder, parts=base.parts)  # as if the network were parts
        if not base.updates.apply(view, names, gradients):
            for name, gradient in zip(names, gradients, strict=True):
                parts.assign_tensor(name, base.update_rule(gradient, self._mine[name], name))
        self._mine.update(zip(names, parts.fetch_tensors(names), strict=True))
        self._gradients = {}

    def _clip_factor(self, gradients: Mapping[str, Any]) -> float | None:
        """Of clipping by the norm of all gradients; pieces are summed over ranks, whole ones counted once."""
        clip: Any = self.base_optimizer.gradient_transform
        if clip is None:
            return None
        squares = np.zeros(2)
        for name, gradient in gradients.items():
            array = self.network.to_numpy(gradient)
            squares[int(self.shardings[name] == R)] += float(np.vdot(array, array))
        pieces = squares[:1].copy()
        with self.communicating():
            self.comm.all_reduce(pieces, control=pieces.nbytes)
        return float(clip.factor(float(pieces[0] + squares[1]) ** 0.5))

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Within it every rank holds the whole network; statistics that a scheme around averages stay so."""
        with super().evaluation():
            yield
            for name in self._mine.keys() - set(self.absent) if self.comm.size > 1 else ():
                (tensor,) = self.network.fetch_tensors([name])
                self._mine[name] = self._part(name, np.asarray(self.network.to_numpy(tensor)))

    # -- states -------------------------------------------------------------------------------------------------------
    def _whole(self, name: str, array: np.ndarray) -> np.ndarray:
        """An array of which each rank has its part of a parameter's shape."""
        sharding = self.shardings[name]
        if sharding == R:
            return np.array(array)
        shape = self._serial.parameter(name).value.shape
        attributes = collective_attributes(sharding, R, shape, self.comm.size, self.comm.rank)
        return run_collective("AllGather", array, attributes, self.comm)

    def gathered(self) -> Iterator[tuple[str, np.ndarray]]:
        """All parameters and running statistics."""
        for name, tensor in self._mine.items():
            yield name, self._whole(name, self.network.to_numpy(tensor))

    def load_whole_state(self, state: Mapping[str, Any]) -> None:
        """``network.load_state()``, of which each rank keeps its part."""
        super().load_whole_state(state)
        for name in self._mine:
            self._mine[name] = self._part(name, np.asarray(state[name]))

    def state_dict(self) -> dict[str, np.ndarray]:
        """The state of the whole, on every rank: all ranks must call it."""
        state = super().state_dict()
        if self.comm.size == 1:
            return state
        names, shapes = {key: key.partition("/")[2] for key in state}, self.shapes()
        return {k: self._whole(names[k], v) if np.shape(v) == shapes.get(names[k]) else v for k, v in state.items()}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a :meth:`state_dict` of any number of ranks and any plan."""
        if self.comm.size > 1:
            state = {key: self._divided(key, array) for key, array in state.items()}
        super().load_state_dict(state)

    def _divided(self, key: str, array: np.ndarray) -> np.ndarray:
        name = key.partition("/")[2]
        if name not in self._mine or np.shape(array) != self._serial.parameter(name).value.shape:
            return array
        return np.array(part(np.asarray(array), self.shardings[name], self.comm.size, self.comm.rank), order="C")


def _first(fact: Any, comms: Sequence[Communicator]) -> Any:
    """The first fact that a rank has which is not None, for all ranks of a grid; ``comms`` are its axes."""
    for comm in comms:
        fact = next((theirs for theirs in comm.gather_facts(fact) if theirs is not None), None)
    return fact


def _hollow(network: Network, trained: set[str]) -> Network:
    """The network for plans: parameters that train have shapes and no memory."""
    plain = network.copy(arrays=False)
    for name, p in ((name, plain.parameter(name)) for name in trained):
        plain.put_parameters({name: replace(p, value=np.broadcast_to(np.zeros((), p.value.dtype), p.value.shape))})
    return plain
