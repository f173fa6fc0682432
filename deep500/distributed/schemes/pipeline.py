"""`Pipeline`: every rank has a stage of the network, and micro-batches pass through all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deep500.distributed.parcels import Contents, swap
from deep500.distributed.stage_runs import StageRun, clip_factor
from deep500.distributed.staged import Staged, check_options
from deep500.distributed.transports.communicator import Communicator
from deep500.errors import InputError
from deep500.tensors import numpy_dtype
from deep500.training.accumulation import pieces
from deep500.training.data.samplers import checked_integer
from deep500.training.optimizers.base import Optimizer, ThreeStepOptimizer
from deep500.transformations.stages import TrainingStage, stages


def bubble(ranks: int, micro_batches: int) -> float:
    """The share of a step in which a rank of a pipeline waits, if all stages take equally long and messages no time:
    ``(P - 1) / (M + P - 1)`` (Huang et al. 2019, GPipe, arXiv 1811.06965, section 2.3; the same for one forward, one
    backward: Narayanan et al. 2021, arXiv 2104.04473, section 2.2.1, which relates it to the ideal time).

    Example:
        >>> bubble(4, 4), bubble(4, 12), bubble(1, 5)
        (0.42857142857142855, 0.2, 0.0)
    """
    return (ranks - 1) / (micro_batches + ranks - 1)


class Pipeline(Staged):
    """Pipeline parallel training by the schedule one forward, one backward (1F1B; PipeDream-Flush of Narayanan et al.
    2021, arXiv 2006.09503, section 2.2): the parameters stay the same within a step, so it is serial training.

    The network is cut in as many stages as there are ranks (:func:`deep500.transformations.stages.stages`), of about
    equal work. Rank 0 gets all samples, divides them in micro-batches and begins; activations go to the next rank,
    labels with them, gradients come back, and the outputs return to rank 0, where qualities are counted. Rank p has
    at most P - p micro-batches under way, of each what it received: its stage runs forward again before it runs
    backward. A step waits for a share of :func:`bubble` in the pipeline's ends.

    What a rank holds: parameters, gradients and optimizer state of its stage, and what micro-batches under way brought.
    In a validation, and when a state is asked for (all ranks together), all parameters, or all of the state; when it is
    made the whole network. Between steps the parameters of the other stages read as NaN. States load on another
    number of ranks. On one rank the base optimizer trains as it is.

    Batch normalization sees a micro-batch at a time, and running statistics move once for each: the run is that of
    ``accumulate=micro_batches`` in one process, not that of whole batches.

    Payload per step: what crosses, there and back, and outputs to rank 0; it depends on the network and the samples.

    Args:
        base_optimizer: a :class:`~deep500.training.optimizers.ThreeStepOptimizer`.
        comm: see :class:`~deep500.distributed.optimizer.DistributedOptimizer`.
        micro_batches: in how many a batch is divided (fewer where it has fewer samples); 4 P if None, whose bubble is
            about a fifth.

    Attributes:
        stages: of all ranks, in order; empty on one rank.
        most_under_way: how many micro-batches this rank had under way at once at most.

    Raises:
        InputError: a network that cannot be cut in so many stages, or whose stages share a parameter; another
            optimizer, ``accumulate``, a gradient transform but ``ClipGradientNorm``; samples elsewhere than on rank 0.
        UnsupportedOperator: a backend that does not let go of parameters.

    Example:
        >>> from deep500.distributed import Threads
        >>> from deep500.frameworks import reference
        >>> from deep500.networks import add_loss, create
        >>> from deep500.training.optimizers import AdamOptimizer
        >>> def train(comm):
        ...     executor = reference.from_model(add_loss(create("mlp", shape=(4,), hidden=(8,), classes=2)))
        ...     scheme = Pipeline(AdamOptimizer(executor), comm, micro_batches=3)
        ...     mine = slice(None) if comm.rank == 0 else slice(0, 0)
        ...     outputs = scheme.step({"input": np.ones((6, 4), "float32")[mine], "label": np.zeros(6, "int64")[mine]})
        ...     return sorted(outputs), scheme.stages[comm.rank].parameters, scheme.most_under_way
        >>> Threads(2).run(train)  # doctest: +NORMALIZE_WHITESPACE
        [(['loss', 'output'], ('fc1.weight', 'fc1.bias'), 2), ([], ('fc2.weight', 'fc2.bias'), 1)]
    """

    stands_inside = joins_parts = True

    def __init__(
        self, base_optimizer: Optimizer, comm: Communicator | None = None, micro_batches: int | None = None
    ) -> None:
        super().__init__(base_optimizer, comm)
        rank, size = self.comm.rank, self.comm.size
        self.micro_batches = 4 * size if micro_batches is None else checked_integer("micro_batches", micro_batches, 1)
        self.stages, self.absent = [], []
        self.most_under_way = 0
        if size == 1:
            return
        self._check()
        self._homes = self._divided()
        described = self.network.descriptors()
        self._results = [[(n, described[n].dtype or "float32") for n in names] for names in self._outputs_of_ranks()]
        self._gradients: dict[str, Any] = {}
        self.release([name for name, home in self._homes.items() if home != rank])  # statistics too, until a validation
        trained = set(self.base_optimizer.parameter_names())
        self._kept = [name for name, home in self._homes.items() if home == rank and name in trained]
        self.absent = [name for name, home in self._homes.items() if home != rank and name in trained]
        self.owned = frozenset(self._kept)
        self._begin()

    def _check(self) -> None:
        """Raise InputError for what does not go with stages."""
        _check(self.base_optimizer, self.comm, type(self).__name__)

    def _divided(self) -> dict[str, int]:
        """Cut the network; return the rank of each parameter and running statistic."""
        rank, size, network = self.comm.rank, self.comm.size, self.network
        self.stages = stages(network, self.loss, count=size)
        homes = _homes(self.stages)
        self._forward = [_passing(self.stages, network, r) for r in range(size)]  # what rank r hands to the next
        self._back = [_returning(self.stages, self._forward[r], r) for r in range(size)]
        self._shape_of_loss = tuple([1] * len(network.descriptors()[self.loss].shape or ()))
        self._run = StageRun(self.stages[rank], self.executor)
        return homes

    def _outputs_of_ranks(self) -> list[Sequence[str]]:
        """Names of the outputs that each rank computes."""
        return [stage.outputs for stage in self.stages]

    @classmethod
    def computing_ranks(cls, size: int) -> range:
        """Rank 0 reads the batches."""
        return range(1)

    def step(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """One step of all ranks; the outputs are rank 0's, the others return none."""
        if self.samples and self.comm.rank:
            raise InputError(
                f"got {self.samples} samples on rank {self.comm.rank} of a {type(self).__name__}; expected them on "
                "rank 0, which hands them on: give the others none"
            )
        return self.base_optimizer.step(inputs)

    # -- a step -------------------------------------------------------------------------------------------------------
    def run_stages(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """All micro-batches forward and backward; this rank's gradients are left in ``_gradients``."""
        parts = list(pieces(self.network, inputs, self.micro_batches))
        counts = [[size, self.batch_weights(piece)] for size, piece in parts]
        under_way = UnderWay(self.comm.gather_facts(counts)[0], [piece for _, piece in parts])
        self._schedule(under_way)
        self._gradients = under_way.sums
        return self._returned(under_way) if under_way.counts else {}

    def _schedule(self, state: UnderWay) -> None:
        """One forward, one backward, after as many forward as there are ranks behind this one."""
        count, last = len(state.counts), self.comm.size - 1
        ahead = min(last - self.comm.rank, count)
        for number in range(ahead):
            self._meet(state, receive=number)
            self._go_forward(state, number)
            self._meet_next(state, send=number)
        if ahead < count:
            self._meet(state, receive=ahead)
        for number in range(count - ahead):
            self._go_forward(state, number + ahead)
            self._meet_next(state, send=number + ahead, receive=number)
            self._go_back(state, number)
            more = number + ahead + 1
            self._meet(state, send=number, receive=more if more < count else None)
        for number in range(count - ahead, count):
            self._meet_next(state, receive=number)
            self._go_back(state, number)
            self._meet(state, send=number)

    def _go_forward(self, state: UnderWay, number: int) -> None:
        """This rank's stage on a micro-batch; the last stage runs when it goes back, once for both."""
        if self.comm.rank == self.comm.size - 1:
            state.seen(number, self)
            return
        values = state.values[number]
        results = self._run.forward({**values, **self._parameters()}, self._drawn(number))
        state.results.append({name: results[name] for name in self.stages[self.comm.rank].outputs})
        values.update({name: results[name] for name in self.stages[self.comm.rank].hands_on})
        state.seen(number, self)

    def _go_back(self, state: UnderWay, number: int) -> None:
        """The gradient of a micro-batch, which counts by its samples, and what goes back of it."""
        rank, last = self.comm.rank, self.comm.size - 1
        stage, values, gradients = self.stages[rank], state.values.pop(number), state.gradients.pop(number, {})
        if self.loss in stage.outputs:
            gradients[self.loss] = np.full(self._shape_of_loss, state.shares[number], self._dtype(self.loss))
        pulled, outputs = self._run.backward(
            {**values, **self._parameters()}, gradients, self._drawn(number), first=rank == last
        )
        if rank == last:
            state.results.append(outputs)
        if self.loss in stage.outputs and not state.shares[number]:  # a mean over nothing: 0 of it, whatever it is
            arrays = zip(pulled, self.arrays(list(pulled.values())), strict=True)
            pulled = {name: self.network.to_tensor(np.zeros_like(array)) for name, array in arrays}
        for name in stage.parameters:  # one by one: the sum needs no second copy of the stage
            if name in pulled:
                terms = [[tensor] for tensor in (state.sums.pop(name, None), pulled.pop(name)) if tensor is not None]
                state.sums[name] = self.network.weighted_sum(terms, [1.0] * len(terms))[0]
        back = {}
        for name, _ in self._back[rank - 1] if rank else ():
            parts = self.arrays([side[name] for side in (gradients, pulled) if name in side])
            back[name] = parts[0] if len(parts) == 1 else parts[0] + parts[1]
        state.back[number] = back

    def _parameters(self) -> dict[str, Any]:
        return dict(zip(self._kept, self.network.fetch_tensors(self._kept), strict=True))

    def update_parts(self) -> None:
        """The base optimizer's rule on the parameters of this stage."""
        base, network = self.base_optimizer, self.network
        old, gradients = self._parameters(), self._agreed(self._gradients)
        if base.gradient_modifier is not None:
            gradients = {name: base.gradient_modifier(name, old[name], g) for name, g in gradients.items()}
        with self.communicating():
            factor = clip_factor(self.comm, base.gradient_transform, map(network.to_numpy, gradients.values()))
        for name, gradient in gradients.items():
            clipped = gradient if factor is None else network.weighted_sum([[gradient]], [factor])[0]
            network.assign_tensor(name, base.update_rule(clipped, old[name], name))
        self._gradients = {}

    def _agreed(self, gradients: dict[str, Any]) -> dict[str, Any]:
        """Gradients of this stage with those of other pipelines, if there are; zeros where no sample came."""
        if self.exchange is self:
            return gradients
        names, values = self._kept, self.network.parameters
        absent = {n: np.zeros(values[n].value.shape, values[n].value.dtype) for n in names if n not in gradients}
        tensors = [gradients[n] if n in gradients else self.network.to_tensor(absent[n]) for n in names]
        return dict(zip(names, self.agreed_outside(names, tensors), strict=True))

    # -- messages -----------------------------------------------------------------------------------------------------
    def _meet(self, state: UnderWay, send: int | None = None, receive: int | None = None) -> None:
        """With the rank before: a gradient goes, activations come. Rank 0's come from its own samples."""
        rank = self.comm.rank
        if rank == 0:
            if receive is not None:
                state.values[receive] = dict(state.inputs[receive])
            return
        outgoing = {} if send is None else self._as_arrays(state.back.pop(send), self._back[rank - 1])
        got = self._swap(rank - 1, send, outgoing, receive, self._forward[rank - 1])
        if receive is not None:
            state.values[receive] = got

    def _meet_next(self, state: UnderWay, send: int | None = None, receive: int | None = None) -> None:
        """With the rank behind: activations go, a gradient comes. Behind the last rank is nothing."""
        rank = self.comm.rank
        if rank == self.comm.size - 1:
            return
        outgoing = {} if send is None else self._as_arrays(state.values[send], self._forward[rank])
        got = self._swap(rank + 1, send, outgoing, receive, self._back[rank])
        if receive is not None:
            state.gradients[receive] = got

    def _swap(
        self, peer: int, send: int | None, outgoing: dict[str, np.ndarray], receive: int | None, incoming: Contents
    ) -> dict[str, Any]:
        with self.communicating():
            return swap(
                self.comm,
                None if send is None else peer,
                outgoing,
                None if receive is None else peer,
                () if receive is None else incoming,
            )

    def _as_arrays(self, values: Mapping[str, Any], contents: Contents) -> dict[str, np.ndarray]:
        to_numpy = self.network.to_numpy
        return {n: np.asarray(to_numpy(values[n])).astype(numpy_dtype(dtype), copy=False) for n, dtype in contents}

    def _returned(self, state: UnderWay) -> dict[str, Any]:
        """The outputs of all micro-batches together, on rank 0."""
        rank, outputs = self.comm.rank, dict[str, Any]()
        arrays = {
            name: self._together([self.network.to_numpy(result[name]) for result in state.results], state)
            for name, _ in self._results[rank]
        }
        if rank == 0:
            outputs.update({name: self.network.to_tensor(array) for name, array in arrays.items()})
            for source in range(1, self.comm.size):
                if self._results[source]:
                    got = swap(self.comm, None, {}, source, self._results[source])
                    outputs.update({name: self.network.to_tensor(array) for name, array in got.items()})
        elif arrays:
            swap(self.comm, 0, arrays, None, ())
        return outputs

    def _together(self, arrays: list[np.ndarray], state: UnderWay) -> np.ndarray:
        """Rows of the batch from those of micro-batches; the mean of what has none."""
        if all(array.shape[:1] == (size,) for array, (size, _) in zip(arrays, state.counts, strict=True)):
            return np.concatenate(arrays)
        terms = [share * array for share, array in zip(state.shares, arrays, strict=True) if share]
        return np.asarray(sum(terms) if terms else arrays[0]).astype(arrays[0].dtype)

    def _dtype(self, name: str) -> Any:
        return next(dtype for results in self._results for known, dtype in results if known == name)

    def _drawn(self, number: int) -> int:
        """The seed of a micro-batch, another on every rank."""
        return self.drawn(self._run.stage, self.comm.rank, number)

    # -- averages of weights ------------------------------------------------------------------------------------------
    def names_here(self) -> list[str]:
        """Those of this rank's stages, and what no stage reads."""
        return [name for name in super().names_here() if self.comm.size == 1 or self.has(name)]

    def joined(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Those of all stages; all ranks must call it."""
        arrays = {name: self.network.to_numpy(tensor) for name, tensor in tensors.items()}
        known = dict.fromkeys(name for names in self.comm.gather_facts(list(tensors)) for name in names)
        return {name: self.network.to_tensor(self._from_home(name, arrays.get(name))) for name in known}

    def divided(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Those of this rank's stages."""
        mine = set(self.names_here())
        return {name: tensor for name, tensor in tensors.items() if name in mine}

    def _from_home(self, name: str, array: np.ndarray | None) -> np.ndarray:
        """A parameter or statistic, or what is like it, from the rank of its stage; this rank's own if it has none."""
        home, parameter = self._homes.get(name), self.network.parameters[name].value
        if array is None:
            array = np.empty(parameter.shape, parameter.dtype)
        return array if home is None else self.comm.broadcast(np.array(array, order="C"), home)

    # -- states -------------------------------------------------------------------------------------------------------
    def has(self, name: str) -> bool:
        return self._homes.get(name, self.comm.rank) == self.comm.rank

    def gathered(self) -> Iterator[tuple[str, np.ndarray]]:
        """Parameters and running statistics of the other stages."""
        here = self.comm.rank
        return ((name, array) for name, array in self.whole_state().items() if self._homes.get(name, here) != here)

    def whole_state(self) -> dict[str, np.ndarray]:
        """``network.state()``, of all ranks together: each parameter and statistic from its stage."""
        fetch, to_numpy = self.network.fetch_tensors, self.network.to_numpy
        return {
            name: self._from_home(name, np.array(to_numpy(fetch([name])[0]), order="C") if self.has(name) else None)
            for name in self.network.parameters
        }

    def state_dict(self) -> dict[str, np.ndarray]:
        """The state of the whole, on every rank: all ranks must call it."""
        if self.comm.size == 1:
            return super().state_dict()
        mine = self.base_optimizer.state_dict()
        facts = {key: [list(array.shape), array.dtype.name] for key, array in mine.items() if key != "step"}
        state = {"step": mine["step"]}
        for home, theirs in enumerate(self.comm.gather_facts(facts)):
            for key, (shape, dtype) in theirs.items():
                array = np.array(mine[key], order="C") if home == self.comm.rank else np.empty(shape, np.dtype(dtype))
                state[key] = self.comm.broadcast(array, home)
        return {**state, "scheme.steps": np.asarray(self.steps, np.int64)}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a :meth:`state_dict` of any number of ranks."""
        if self.comm.size > 1:
            mine = set(self._kept)
            state = {k: v for k, v in state.items() if "/" not in k or k.partition("/")[2] in mine}
        super().load_state_dict(state)


@dataclass
class UnderWay:
    """A step: samples of the micro-batches and what they count in the mean, (rank 0) their inputs, by number what each
    has come to, and the sums."""

    counts: list[list[float]]
    inputs: list[dict[str, Any]]
    values: dict[int, dict[str, Any]] = field(default_factory=dict)
    gradients: dict[int, dict[str, Any]] = field(default_factory=dict)
    back: dict[int, dict[str, Any]] = field(default_factory=dict)
    sums: dict[str, Any] = field(default_factory=dict)
    results: list[dict[str, Any]] = field(default_factory=list)

    @property
    def shares(self) -> list[float]:
        """Share of each micro-batch in the mean over the batch."""
        whole = sum(weight for _, weight in self.counts) or 1
        return [weight / whole for _, weight in self.counts]

    def seen(self, number: int, scheme: Pipeline) -> None:
        """Note how many are under way."""
        scheme.most_under_way = max(scheme.most_under_way, len(self.values))


def _homes(parts: list[TrainingStage]) -> dict[str, int]:
    """The rank of each parameter and running statistic.

    Raises:
        InputError: stages that share one.
    """
    homes: dict[str, int] = {}
    for rank, stage in enumerate(parts):
        for name in (*stage.parameters, *stage.statistics):
            if name in homes:
                raise InputError(
                    f"got parameter {name!r}, which stages {homes[name]} and {rank} of a Pipeline read; expected one "
                    "of them to: use fewer ranks, untie it, or use ShardedParameters"
                )
            homes[name] = rank
    return homes


def _passing(parts: list[TrainingStage], network: Any, rank: int) -> list[tuple[str, str]]:
    """Values that go from a rank to the next: those written up to here, and inputs, that later stages read."""
    later = parts[rank + 1 :]
    read = dict.fromkeys(name for stage in later for name in (*stage.receives, *stage.inputs))
    ahead = {name for stage in later for name in stage.hands_on}
    described = network.descriptors()
    return [(name, described[name].dtype or "float32") for name in read if name not in ahead]


def _returning(parts: list[TrainingStage], passed: list[tuple[str, str]], rank: int) -> list[tuple[str, str]]:
    """Gradients that come back: of those that have one in a later stage."""
    differentiated = {name for stage in parts[rank + 1 :] for name in stage.gradients}
    return [(name, dtype) for name, dtype in passed if name in differentiated]


def _check(base: Optimizer, comm: Communicator, scheme: str) -> None:
    kind = type(base)
    if not isinstance(base, ThreeStepOptimizer):
        raise InputError(
            f"got {kind.__module__}.{kind.__qualname__} for {scheme}, which updates all parameters at once; expected a "
            f"three-step optimizer: use deep500.training.optimizers.{kind.__name__}, which runs on every backend"
        )
    check_rule_and_ranks(base, comm, scheme)


def check_rule_and_ranks(base: Optimizer, comm: Communicator, scheme: str) -> None:
    """Raise InputError for rules, options and ranks that do not go with a pipeline.

    Args:
        base: the optimizer.
        comm: the ranks.
        scheme: its name.
    """
    if getattr(base, "needs_all", False):
        raise InputError(
            f"got {type(base).__name__} for {scheme}, no rank of which has the gradients of all parameters, over which "
            "it sums; expected a rule of one parameter: use another optimizer, or ConsistentDecentralized"
        )
    if comm.transport == "pretend":
        raise InputError(
            f"got imagined ranks for {scheme}; expected real ones, as 'deep500 simulate' predicts steps in which each "
            "rank has a share of the batch: measure it with --ranks"
        )
    advice = ": it divides batches itself (micro_batches), and no rank has all gradients; leave it out"
    check_options(base, scheme, advice, modifier=True)
