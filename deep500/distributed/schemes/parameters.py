"""`ShardedParameters`: every rank keeps a part of parameters, gradients and optimizer state, and no more of a network
than a layer while it computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from deep500.distributed.flat import FlatGroup
from deep500.distributed.optimizer import DistributedOptimizer
from deep500.distributed.stage_runs import StageRun, clip_factor, release
from deep500.distributed.transports.communicator import Communicator
from deep500.errors import InputError
from deep500.training.clipping import ClipGradientNorm
from deep500.training.optimizers.base import Optimizer, UpdateRuleOptimizer
from deep500.transformations.stages import stages


class ShardedParameters(DistributedOptimizer):
    """Synchronous SGD with sharded parameters, gradients and state: ZeRO stage 3 (Rajbhandari et al. 2020, arXiv
    1910.02054, section 5.3), in the form of PyTorch's FSDP (Zhao et al. 2023, arXiv 2304.11277, section 3.2).

    The network is cut in stages (:func:`deep500.transformations.stages.stages`): layers, or blocks where values skip
    layers. The parameters of a stage are one array in a row, of which each rank keeps an equal part. A stage's
    parameters are gathered before its forward run and let go after it; they are gathered again for its backward run,
    which runs the stage forward once more, and its gradients are reduced and scattered, so that each rank has the
    mean of its part. The base optimizer updates that part.

    What a rank holds:

    * always: 1/P of the parameters and of the optimizer's state, in host memory;
    * during a step, further: 1/P of the gradients; the values that cross between stages; of one stage at a time its
      parameters, its gradients twice (as they come and in a row) and its activations;
    * during a validation (:meth:`evaluation`) and when a state is asked for (``network.state()``, :meth:`state_dict`: a
      checkpoint): all parameters, or all of the state. All ranks must ask together;
    * when it is made: the whole network, which is let go of afterwards. Frozen parameters and running statistics stay
      whole on every rank.

    Between steps the executor's parameters read as NaN. On one rank nothing is sharded, and the base optimizer trains
    as it is. A state is that of the whole: it may be loaded on another number of ranks.

    Payload per step and rank (n: bytes of parameters, filled up to P equal parts): n of gradients, 2n/P of parameters
    less n/P of the last stage, which is gathered once.

    Args:
        base_optimizer: with an update rule that is elementwise; see
            :attr:`~deep500.training.optimizers.base.ThreeStepOptimizer.elementwise`.
        comm: see :class:`~deep500.distributed.optimizer.DistributedOptimizer`.
        crossing: how many activations may cross between stages at least; more make smaller stages.

    Attributes:
        stages: what is gathered together, in order; empty on one rank.

    Raises:
        InputError: what does not go with parts of parameters: another optimizer, a gradient modifier, a gradient
            transform but :class:`~deep500.training.clipping.ClipGradientNorm`, ``accumulate``, a checkpointing plan,
            parameters in other than float32 or float64.
        UnsupportedOperator: a backend that does not let go of parameters.

    Example:
        >>> from deep500.distributed import Threads
        >>> from deep500.frameworks import reference
        >>> from deep500.networks import add_loss, create
        >>> from deep500.training.optimizers import AdamOptimizer
        >>> def train(comm):
        ...     executor = reference.from_model(add_loss(create("mlp", shape=(4,), hidden=(8,), classes=2)))
        ...     scheme = ShardedParameters(AdamOptimizer(executor), comm)
        ...     scheme.step({"input": np.ones((2, 4), "float32"), "label": np.zeros(2, "int64")})
        ...     return scheme.held()
        >>> Threads(2).run(train)[0]            # 58 elements: 40 in the first stage, 18 in the second
        {'parameters': 116, 'gradients': 116, 'state': 232, 'largest stage': 160}
    """

    waits = "together"
    changes_parameters = True
    whole = False

    def __init__(self, base_optimizer: Optimizer, comm: Communicator | None = None, crossing: int = 1) -> None:
        _check_base(base_optimizer)
        super().__init__(base_optimizer, comm)
        self.stages = []
        if self.comm.size == 1:
            return
        _check_options(base_optimizer)
        network, executor = self.network, self.executor
        self.stages = stages(network, self.loss, crossing=crossing)
        self._runs = [StageRun(stage, executor) for stage in self.stages]
        self._groups, self._of_stage = self._grouped()
        arrays = dict(zip(self.parameter_names(), self.arrays(self.parameters()), strict=True))
        self._mine = [group.part(arrays) for group in self._groups]
        self._sums: list[np.ndarray | None] = [None] * len(self._groups)
        self._seed = self._largest = 0
        described = network.descriptors()[self.loss]
        self._one = np.ones([1] * len(described.shape or ()), described.dtype or "float32")
        release(network, arrays)
        network.state, network.load_state = self._state, self._load_state
        self._reseed, executor.reseed = executor.reseed, self._reseeded  # type: ignore[method-assign]
        base_optimizer.exchange = self._exchange  # a rank without samples takes part
        base_optimizer.backprop = self._backprop  # type: ignore[method-assign]
        base_optimizer.update = self._update  # type: ignore[method-assign]

    def held(self) -> dict[str, int]:
        """Bytes that this rank holds between steps: its parts of parameters, gradients (as during a step) and state;
        and of parameters that a step gathered at once at most."""
        to_numpy = self.network.to_numpy
        state = self.base_optimizer.state.values()  # type: ignore[attr-defined]
        return {
            "parameters": sum(part.nbytes for part in self._mine),
            "gradients": sum(part.nbytes for part in self._mine),
            "state": sum(to_numpy(tensor).nbytes for tensors in state for tensor in tensors.values()),
            "largest stage": self._largest,
        }

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Within it every rank holds all parameters."""
        if self.comm.size == 1:
            with super().evaluation():
                yield
            return
        names = list[str]()
        with self.communicating():
            for group, part in zip(self._groups, self._mine, strict=True):
                for name, array in group.gather(part).items():
                    self.network.assign_tensor(name, self.network.to_tensor(array))
                    names.append(name)
        try:
            with super().evaluation():
                yield
        finally:
            release(self.network, names)

    # -- a step -------------------------------------------------------------------------------------------------------
    def _backprop(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Forward and backward, stage by stage; this rank's parts of the summed gradients are left in ``_sums``."""
        if self.executor.checkpointing is not None:
            raise InputError(
                "got a checkpointing plan with ShardedParameters, which runs each stage again itself; expected one of "
                "them: leave checkpointing out"
            )
        self.base_optimizer.backprops += 1
        events = self.executor.events
        if events.before_forward_backward:
            events.emit(events.before_forward_backward, self.executor)
        values, last = dict(inputs), len(self._runs) - 1
        for number, run in enumerate(self._runs[:-1]):
            values.update(run.forward({**values, **self._gathered(number)}, self._drawn(number)))
        gradients: dict[str, Any] = {self.loss: self._one}
        for number in range(last, -1, -1):
            run = self._runs[number]
            given = {**values, **self._gathered(number)}
            found, outputs = run.backward(given, gradients, self._drawn(number), first=number == last)
            del given
            values.update(outputs)
            for name in run.stage.receives:
                if name in found:
                    gradients[name] = gradients[name] + found[name] if name in gradients else found[name]
            self._scatter(number, found)
            for name in run.stage.hands_on:  # of no use from here on
                gradients.pop(name, None)
                if name not in self.network.outputs:
                    del values[name]
        self._mean()
        if events.after_forward_backward:
            events.emit(events.after_forward_backward, self.executor)
        return {name: values[name] for name in dict.fromkeys([*self.network.outputs, self.loss])}

    def _gathered(self, number: int) -> dict[str, np.ndarray]:
        """The parameters of a stage, whole; they are gone when the caller lets go of them."""
        groups = [self._groups[index] for index in self._of_stage[number]]
        self._largest = max(self._largest, sum(group.nbytes for group in groups))
        with self.communicating():
            parts = [
                group.gather(self._mine[index]) for index, group in zip(self._of_stage[number], groups, strict=True)
            ]
        return {name: array for part in parts for name, array in part.items()}

    def _scatter(self, number: int, found: Mapping[str, Any]) -> None:
        """Reduce and scatter the gradients of a stage."""
        to_numpy = self.network.to_numpy
        with self.communicating():
            for index in self._of_stage[number]:
                group, before = self._groups[index], self._sums[index]
                arrays = {name: to_numpy(found[name]) for name in group.shapes if name in found}
                part = group.reduce([arrays], [self.samples])
                self._sums[index] = part if before is None else before + part

    def _mean(self) -> None:
        with self.communicating():
            total = np.array([float(self.samples)])
            total = self.comm.all_reduce(total, control=total.nbytes)
        self._sums = [None if part is None else part / part.dtype.type(total[0]) for part in self._sums]

    def _update(self) -> None:
        """The base optimizer's rule on this rank's part."""
        base, network = self.base_optimizer, self.network
        parts = [part for part in self._sums if part is not None]
        with self.communicating():
            factor = clip_factor(self.comm, base.gradient_transform, parts)
        for group, mine, gradients in zip(self._groups, self._mine, parts, strict=True):
            for name, place in group.slices.items():
                gradient = gradients[place] if factor is None else gradients[place] * gradients.dtype.type(factor)
                new = base.update_rule(network.to_tensor(gradient), network.to_tensor(mine[place]), name)
                mine[place] = network.to_numpy(new)
        self._sums = [None] * len(self._groups)

    def _reseeded(self, seed: int) -> None:
        self._seed = seed
        self._reseed(seed)

    def _drawn(self, number: int) -> int:
        """The seed of a stage in this step: the same forward and backward."""
        if not self.stages[number].random:
            return 0
        return int(np.random.SeedSequence([self._seed, self.base_optimizer.backprops, number]).generate_state(1)[0])

    # -- parts ----------------------------------------------------------------------------------------------------
    def _grouped(self) -> tuple[list[FlatGroup], list[list[int]]]:
        """What is gathered together: parameters of one dtype that the same stages read; and which a stage needs."""
        values = self.network.parameters
        members: dict[tuple[tuple[int, ...], np.dtype], dict[str, tuple[int, ...]]] = {}
        for name in self.parameter_names():
            dtype, shape = values[name].value.dtype, values[name].value.shape
            if dtype not in (np.float32, np.float64):
                raise InputError(
                    f"got parameter {name!r} in {dtype} for ShardedParameters; expected float32 or float64, in which "
                    "parts are summed: keep parameters in float32, and compute in 16 bits by precision='bf16'"
                )
            readers = tuple(i for i, stage in enumerate(self.stages) if name in stage.parameters)
            members.setdefault((readers, dtype), {})[name] = shape
        groups = [FlatGroup(shapes, dtype, self.comm) for (_, dtype), shapes in members.items()]
        return groups, [[i for i, (r, _) in enumerate(members) if k in r] for k in range(len(self.stages))]

    def _state(self) -> dict[str, np.ndarray]:
        """``network.state()``, of all ranks together."""
        whole = {n: a for g, part in zip(self._groups, self._mine, strict=True) for n, a in g.gather(part).items()}
        names = [name for name in self.network.parameters if name not in whole]
        whole.update(zip(names, map(np.array, self.arrays(self.network.fetch_tensors(names))), strict=True))
        return {name: whole[name] for name in self.network.parameters}

    def _load_state(self, state: Mapping[str, Any]) -> None:
        """``network.load_state()``, of which each rank keeps its part."""
        values = self.network.parameters
        odd = sorted(set(state) ^ set(values)) or [n for n in values if np.shape(state[n]) != values[n].value.shape]
        if odd:
            raise InputError(
                f"got a state that differs in {odd[:4]}; expected the network's parameters: use the same network"
            )
        sharded = {name for group in self._groups for name in group.shapes}
        self._mine = [group.part({n: np.asarray(state[n]) for n in group.shapes}) for group in self._groups]
        for name in values:
            if name not in sharded:
                self.network.feed_tensor(name, state[name])

    def state_dict(self) -> dict[str, np.ndarray]:
        """The state of the whole, on every rank: all ranks must call it."""
        if self.comm.size == 1:
            return super().state_dict()
        base, to_numpy = self.base_optimizer, self.network.to_numpy
        slots: dict[str, dict[str, Any]] = base.state  # type: ignore[attr-defined]
        mine = [[slot, name] for slot, tensors in slots.items() for name in tensors]
        kept = {(slot, name) for facts in self.comm.gather_facts(mine) for slot, name in facts}
        state = {"step": np.asarray(base.steps, np.int64)}
        for slot in sorted({slot for slot, _ in kept}):
            for group in self._groups:
                part = np.zeros(group.count, group.dtype)
                for name, place in group.slices.items():
                    if name in slots.get(slot, {}):
                        part[place] = to_numpy(slots[slot][name])
                whole = group.gather(part)
                state.update({f"{slot}/{name}": array for name, array in whole.items() if (slot, name) in kept})
        return {**state, "scheme.steps": np.asarray(self.steps, np.int64)}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from a :meth:`state_dict` of any number of ranks."""
        if self.comm.size == 1:
            super().load_state_dict(state)
            return
        base = self.base_optimizer
        homes = {name: group for group in self._groups for name in group.slices}
        slots: dict[str, dict[str, Any]] = {}
        whole = {name: array for name, array in state.items() if not name.startswith("scheme")}
        for slot, name, array in base.checked_slots(whole):
            if name in homes:
                group = homes[name]
                part = group.part({name: np.broadcast_to(array, group.shapes[name])})[group.slices[name]]
                slots.setdefault(slot, {})[name] = self.network.to_tensor(part)
        base.state = slots  # type: ignore[attr-defined]
        base.steps = int(state["step"])
        self.steps = int(state.get("scheme.steps", base.steps))


def _check_base(base: Any) -> None:
    if isinstance(base, Optimizer) and not (
        isinstance(base, UpdateRuleOptimizer) and vars(type(base)).get("elementwise")
    ):
        kind = type(base)
        raise InputError(
            f"got {kind.__module__}.{kind.__qualname__} for ShardedParameters, whose ranks update some elements of a "
            "parameter each; expected an update rule that says elementwise = True of itself: use one of "
            "deep500.training.optimizers (AdamOptimizer, AdamWOptimizer, MomentumOptimizer, ...), or ShardedOptimizer"
        )


def _check_options(base: Optimizer) -> None:
    odd = {
        "accumulate or loss scaling": base.in_pieces,
        "a gradient_modifier": base.gradient_modifier is not None,
        "a gradient_transform other than ClipGradientNorm": not isinstance(
            base.gradient_transform, ClipGradientNorm | None
        ),
    }
    for what, given in odd.items():
        if given:
            raise InputError(
                f"got {what} with ShardedParameters; expected none, as no rank has whole gradients: leave it out, or "
                "use ShardedOptimizer, whose ranks have those of some parameters"
            )
