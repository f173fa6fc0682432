"""`ShardedParameters`: every rank keeps a part of parameters, gradients and optimizer state, and no more of a network
than a layer while it computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from deep500.distributed.flat import FlatGroup
from deep500.distributed.optimizer import DistributedOptimizer
from deep500.distributed.stage_runs import StageRun, clip_factor
from deep500.distributed.staged import Staged, check_elementwise, check_options
from deep500.distributed.transports.communicator import Communicator
from deep500.errors import InputError
from deep500.training.accumulation import outputs_together, pieces
from deep500.training.optimizers.base import Optimizer, UpdateRuleOptimizer
from deep500.transformations.stages import stages


class ShardedParameters(Staged):
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

    With ``accumulate`` as much for each piece.

    Args:
        base_optimizer: with an update rule that is elementwise; see
            :attr:`~deep500.training.optimizers.base.ThreeStepOptimizer.elementwise`.
        comm: see :class:`~deep500.distributed.optimizer.DistributedOptimizer`.
        crossing: how many activations may cross between stages at least; more make smaller stages.

    Attributes:
        stages: what is gathered together, in order; empty on one rank.

    Raises:
        InputError: what does not go with parts of parameters: another optimizer, a gradient modifier, a gradient
            transform but :class:`~deep500.training.clipping.ClipGradientNorm`, a checkpointing plan, float16,
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

    changes_parameters = joins_parts = True
    stands_inside = True

    def __init__(self, base_optimizer: Optimizer, comm: Communicator | None = None, crossing: int = 1) -> None:
        check_elementwise(base_optimizer, "ShardedParameters", UpdateRuleOptimizer)
        super().__init__(base_optimizer, comm)
        self.stages, self.absent = [], []
        self._groups: list[FlatGroup] = []
        if self.comm.size == 1:
            return
        advice = (
            ", as no rank has whole gradients: leave it out, or use FSDP, or ShardedOptimizer, whose ranks have those "
            "of some parameters"
        )
        check_options(base_optimizer, "ShardedParameters", advice, modifier=False, pieces=True)
        network, executor = self.network, self.executor
        self.stages = stages(network, self.loss, crossing=crossing)
        self._runs = [StageRun(stage, executor) for stage in self.stages]
        self._groups, self._of_stage = self._grouped()
        arrays = dict(zip(self.parameter_names(), self.arrays(self.parameters()), strict=True))
        self._mine = [group.part(arrays) for group in self._groups]
        self._sums: list[np.ndarray | None] = [None] * len(self._groups)
        self._largest = 0
        described = network.descriptors()[self.loss]
        self._one = np.ones([1] * len(described.shape or ()), described.dtype or "float32")
        self.absent = list(arrays)
        del arrays
        self._begin()

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
        with super().evaluation(), DistributedOptimizer.evaluation(self):
            yield

    # -- a step -------------------------------------------------------------------------------------------------------
    def run_stages(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Forward and backward, stage by stage, in as many pieces on every rank; this rank's parts of the summed
        gradients are left in ``_sums``."""
        if self.accumulate == 1:
            outputs = self._run_piece(inputs, self.samples)
        else:
            rows = sum(size for size, _ in pieces(self.network, inputs, 1))
            parts = list(pieces(self.network, inputs, min([self.accumulate, *self.comm.gather_facts(rows)])))
            weights = [self.batch_weights(part) if self.samples else 0 for _, part in parts]
            results = [self._run_piece(parts[k][1], weight, k) for k, weight in enumerate(weights)]
            sizes = [size for size, _ in parts]
            outputs = outputs_together(self.network, results, sizes, {self.loss: weights if any(weights) else sizes})
        self._mean()
        return outputs

    def _run_piece(self, inputs: Mapping[str, Any], weight: float, place: int = 0) -> dict[str, Any]:
        """A batch or a piece of it, whose gradients count by a weight."""
        values, last, piece = dict(inputs), len(self._runs) - 1, [place] if place else []
        for number, run in enumerate(self._runs[:-1]):
            seed = self.drawn(run.stage, number, *piece)
            values.update(run.forward({**values, **self._parameters_of(number)}, seed))
        gradients: dict[str, Any] = {self.loss: self._one}
        for number in range(last, -1, -1):
            run = self._runs[number]
            feeds = {**values, **self._parameters_of(number)}
            seed = self.drawn(run.stage, number, *piece)
            results, outputs = run.backward(feeds, gradients, seed, first=number == last)
            del feeds
            values.update(outputs)
            for name in run.stage.receives:
                if name in results:
                    gradients[name] = gradients[name] + results[name] if name in gradients else results[name]
            self._scatter(number, results, weight)
            for name in run.stage.hands_on:  # of no use from here on
                gradients.pop(name, None)
                if name not in self.network.outputs:
                    del values[name]
        return {name: values[name] for name in dict.fromkeys([*self.network.outputs, self.loss])}

    def _parameters_of(self, number: int) -> dict[str, np.ndarray]:
        """The parameters of a stage, whole; they are gone when the caller lets go of them."""
        groups = [self._groups[index] for index in self._of_stage[number]]
        self._largest = max(self._largest, sum(group.nbytes for group in groups))
        with self.communicating():
            parts = [
                group.gather(self._mine[index]) for index, group in zip(self._of_stage[number], groups, strict=True)
            ]
        return {name: array for part in parts for name, array in part.items()}

    def _scatter(self, number: int, gradients: Mapping[str, Any], weight: float) -> None:
        """Reduce and scatter the gradients of a stage, which count by a weight."""
        to_numpy = self.network.to_numpy
        with self.communicating():
            for index in self._of_stage[number]:
                group, before = self._groups[index], self._sums[index]
                arrays = {name: to_numpy(gradients[name]) for name in group.shapes if name in gradients}
                part = group.reduce([arrays], [weight])
                self._sums[index] = part if before is None else before + part

    def _mean(self) -> None:
        with self.communicating():
            total = np.array([float(self.samples)])
            total = self.comm.all_reduce(total, control=total.nbytes)
        self._sums = [None if part is None else part / part.dtype.type(total[0] or 1) for part in self._sums]

    def update_parts(self) -> None:
        """The base optimizer's rule on this rank's part."""
        base, network = self.base_optimizer, self.network
        parts = [part for part in self._sums if part is not None]
        if self.exchange is not self:  # parts of the same place on the other axis of a mesh
            names, tensors = [f"part {number}" for number in range(len(parts))], self.tensors(parts)
            parts = [np.array(array) for array in self.arrays(self.agreed_outside(names, tensors))]
        with self.communicating():
            factor = clip_factor(self.comm, base.gradient_transform, parts)
        for group, mine, gradients in zip(self._groups, self._mine, parts, strict=True):
            for name, place in group.slices.items():
                gradient = gradients[place] if factor is None else gradients[place] * gradients.dtype.type(factor)
                new = base.update_rule(network.to_tensor(gradient), network.to_tensor(mine[place]), name)
                mine[place] = network.to_numpy(new)
        self._sums = [None] * len(self._groups)

    # -- parts ----------------------------------------------------------------------------------------------------
    def _grouped(self) -> tuple[list[FlatGroup], list[list[int]]]:
        """Groups gathered together: parameters of one dtype that the same stages read; and those that a stage needs."""
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

    def gathered(self) -> Iterator[tuple[str, np.ndarray]]:
        """All parameters that are shared out."""
        for group, part in zip(self._groups, self._mine, strict=True):
            yield from group.gather(part).items()

    # -- averages of weights ------------------------------------------------------------------------------------------
    def judged_tensors(self, names: Sequence[str]) -> list[Any]:
        """This rank's elements of those that are shared out, in a row; others whole."""
        shared = self._shared()
        return [
            self.network.to_tensor(self._mine[shared[name]][self._groups[shared[name]].slices.get(name, slice(0, 0))])
            if name in shared
            else super(ShardedParameters, self).judged_tensors([name])[0]
            for name in names
        ]

    def joined(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """Wholes of this rank's elements; all ranks must call it."""
        to_numpy, to_tensor, wholes = self.network.to_numpy, self.network.to_tensor, dict(tensors)
        for group in self._groups if tensors else ():
            part = np.zeros(group.count, group.dtype)
            for name, place in group.slices.items():
                part[place] = to_numpy(tensors[name])
            wholes.update({name: to_tensor(array) for name, array in group.gather(part).items()})
        return wholes

    def divided(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """This rank's elements of wholes."""
        shared, to_numpy, to_tensor = self._shared(), self.network.to_numpy, self.network.to_tensor
        return {
            name: to_tensor(self._groups[shared[name]].elements(name, to_numpy(whole))) if name in shared else whole
            for name, whole in tensors.items()
        }

    def _shared(self) -> dict[str, int]:
        """The number of the group that each parameter is in; empty on one rank."""
        return {name: number for number, group in enumerate(self._groups) for name in group.shapes}

    def load_whole_state(self, state: Mapping[str, Any]) -> None:
        """``network.load_state()``, of which each rank keeps its part."""
        super().load_whole_state(state)
        self._mine = [group.part({n: np.asarray(state[n]) for n in group.shapes}) for group in self._groups]

    def state_dict(self) -> dict[str, np.ndarray]:
        """The state of the whole, on every rank: all ranks must call it."""
        if self.comm.size == 1:
            return super().state_dict()
        base, to_numpy = self.base_optimizer, self.network.to_numpy
        slots: dict[str, dict[str, Any]] = base.state  # type: ignore[attr-defined]
        mine = [[slot, name] for slot, tensors in slots.items() for name in tensors]
        slots_of_all = {(slot, name) for facts in self.comm.gather_facts(mine) for slot, name in facts}
        state = {"step": np.asarray(base.steps, np.int64)}
        for slot in sorted({slot for slot, _ in slots_of_all}):
            for group in self._groups:
                part = np.zeros(group.count, group.dtype)
                for name, place in group.slices.items():
                    if name in slots.get(slot, {}):
                        part[place] = to_numpy(slots[slot][name])
                whole = group.gather(part)
                state.update({f"{slot}/{name}": array for name, array in whole.items() if (slot, name) in slots_of_all})
        numbers = base.number_arrays()  # type: ignore[attr-defined]
        return {**state, **numbers, "scheme.steps": np.asarray(self.steps, np.int64)}

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
        base.load_numbers(whole)  # type: ignore[attr-defined]
        self.steps = int(state.get("scheme.steps", base.steps))
