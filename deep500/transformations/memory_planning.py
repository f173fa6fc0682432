"""`plan_memory`: from a budget of memory to a network and a plan, of recomputation and pieces of the batch together.

The network's stages (between which one activation crosses) are each kept, computed again, or computed again piece by
piece, as :mod:`deep500.transformations.recomputation.joint` chooses. The memory of a step of that plan is measured, and
that of the best plan without pieces and of the whole network in pieces. Of those that fit, the one with the fewest
operations is taken: it is never worse than either means alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from deep500.errors import BudgetError, NetworkError, OutOfMemory, PlanError
from deep500.networks.execution.capabilities import CountsStepMemory
from deep500.networks.hashing import structure_hash
from deep500.networks.network import Network
from deep500.progress import progress, stage
from deep500.transformations.batch_axes import BatchAxes, find_batch_axes
from deep500.transformations.memory_plan import DividedPart, MemoryPlan, by_name
from deep500.transformations.microbatching import microbatch_parts
from deep500.transformations.recomputation.budgets import budget_bytes, check_budget
from deep500.transformations.recomputation.chain import counted_stages, innermost_regions, planned_regions
from deep500.transformations.recomputation.counting import peak_bytes
from deep500.transformations.recomputation.joint import ChainSection, JointChoice, choose_sections, sections_of
from deep500.transformations.recomputation.lower_bound import with_bound
from deep500.transformations.recomputation.plan_file import CheckpointingPlan, PlannedRegion
from deep500.transformations.recomputation.planning import PLANNING, PlanningSubject, Target, planned
from deep500.transformations.recomputation.regions import count_operations
from deep500.transformations.recomputation.rehearsing import SHORT, step_peak
from deep500.transformations.recomputation.rewriting import Recomputing, recomputing
from deep500.transformations.recomputation.training_step import TrainingStep, training_step

_PIECES = (2, 4, 8, 16, 32)
_PER_NODE = 200_000  # operations that take about as long as a framework takes to start a node, some 20 microseconds
_ROUNDS = 4  # choices that are tried for one budget


def plan_memory(
    target: Target | Any,
    budget: float | int = 0.5,
    inputs: Mapping[str, Any] | None = None,
    loss: str = "loss",
    batch: int | None = None,
    *,
    example: Any = None,
) -> MemoryPlan:
    """Choose what a training step works on piece by piece and what it computes again, to fit a budget of memory.

    The same network, budget and backend give the same plan: operations stand in for times, peaks alone are measured.

    Args:
        target: an executor, whose backend's steps are then measured if there are inputs; a network; or any model that
            :func:`deep500.networks.as_network` takes.
        budget: a share of the peak without a plan (float in (0, 1]), or bytes (int); see
            :func:`deep500.plan_checkpointing` for what counts.
        inputs: a batch for training.
        loss: the scalar that is differentiated.
        batch: number of samples, where there are no inputs.
        example: inputs to trace a model of a framework with.

    Raises:
        BudgetError: no plan that was tried fits; ``smallest`` says what the smallest of them holds, ``bound`` what no
            plan at all can go below; the message says both.
        PlanError, InputError: see :func:`deep500.plan_checkpointing`.

    Example:
        >>> import deep500.frameworks.reference as d5ref
        >>> from deep500.networks import add_loss, create
        >>> executor = d5ref.from_model(add_loss(create("causal_transformer")))
        >>> plan = plan_memory(executor, 0.3, batch=8)
        >>> plan.peak <= plan.budget, len(plan.parts) > 0
        (True, True)
        >>> trained = plan.executor(executor)
    """
    check_budget(budget)
    with progress(PLANNING):
        return _Planning(PlanningSubject(planned(target, example, loss), inputs, loss, batch)).plan(budget)


class _Planning:
    """Candidates for one network, with the peak of a step of each."""

    def __init__(self, subject: PlanningSubject) -> None:
        self.subject, self.network, self.batch, self.loss = subject, subject.network, subject.batch, subject.loss
        self.regions, self.parts = subject.counted, innermost_regions(subject.counted)
        nodes = _PER_NODE * len(self.regions.step.network.nodes)
        self.base = sum(count_operations(self.regions.step).values()) + nodes
        try:
            self.samples = find_batch_axes(self.network)
        except NetworkError:
            self.samples = BatchAxes()  # no batch to cut: recomputation alone
        self.pieces = {m: 1 + (m - 1) * nodes / self.base for m in _PIECES if m <= self.batch}
        self.peak, self.fits = 0, False
        self.smallest: int | None = None

    def plan(self, budget: float | int) -> MemoryPlan:
        """The candidate with the fewest operations of those that fit."""
        measured, whole = self._counts_bytes, ""
        try:
            full = self._peak(self.network, None)
        except OutOfMemory:
            full, whole = peak_bytes(self.regions.step.network), SHORT
        limit = budget_bytes(budget, full)
        about, method = structure_hash(self.network), f"no plan{whole}"
        empty = MemoryPlan(about, (), None, limit, full, full, 1.0, 1.0, 1.0, measured, method, self.loss)
        if full <= limit:
            return empty
        tried = list[MemoryPlan]()
        for candidate in self._candidates(empty):
            stage(f"a step of {candidate.method}")
            try:
                peak = self._peak(candidate.apply(self.network), candidate.checkpointing)
            except OutOfMemory:
                peak = max(full, candidate.peak)
            tried.append(replace(candidate, peak=peak, method=f"{candidate.method}{whole}"))
            self.peak, self.fits = peak, peak <= limit
        fitting = [candidate for candidate in tried if candidate.peak <= limit]
        if not fitting:
            smallest = min([full, *(candidate.peak for candidate in tried)])
            smallest = smallest if self.smallest is None else min(smallest, self.smallest)
            how = "measured" if measured else "counted"
            error = BudgetError(
                f"got a budget of {limit} bytes; expected at least {smallest} ({smallest / full:.3f} of {full} without "
                f"a plan), the smallest {how} of all that was tried: raise the budget to that",
                smallest,
            )
            raise with_bound(error, self.regions.step, max([1, *self.pieces]))
        return self._final(min(fitting, key=lambda candidate: candidate.operations))

    def _candidates(self, empty: MemoryPlan) -> Iterator[MemoryPlan]:
        """Plans with the peaks that their models say: both means together, then each alone."""
        if len(self.parts) > 1:
            yield from self._together(empty)
        with suppress(PlanError):
            yield from self._without_pieces(empty)
        end = max(len(self.parts) - 1, 0)
        for count in self.pieces if self._all_cuttable() else ():
            whole = ChainSection(0, end, count, (), 0.0, 0, 0, 0)
            yield self._divided([whole], empty, f"the whole network in {count} pieces")
            if self.fits:
                break  # more pieces take longer
        yield from self._at_once(empty)

    def _at_once(self, empty: MemoryPlan) -> Iterator[MemoryPlan]:
        """The whole step in pieces, each differentiated before the next: nothing runs twice, sums of gradients stay."""
        fewest = empty.peak_without / empty.budget  # with as many, nothing but activations would have to fit
        for count in self.pieces if self._all_cuttable() else ():
            if count < fewest:
                continue
            candidate = replace(empty, at_once=count, method=f"the step in {count} pieces, differentiated at once")
            try:
                step = training_step(candidate.apply(self.network), self.batch, self.loss)
            except NetworkError:
                return  # samples are mixed
            _, _, share = self._operations(step, recomputing(step, []))
            yield replace(candidate, peak=peak_bytes(step.network), operations=share)
            if self.fits:
                return

    def _together(self, empty: MemoryPlan) -> Iterator[MemoryPlan]:
        """Choices of sections: the quickest, then those for less by what the last one held too much; then the least."""
        sections = sections_of(counted_stages(self.regions), self._cuttable(), self.pieces, empty.budget)
        asked, ask = set[int](), empty.budget
        while not self.fits and not {ask, 1} <= asked:
            ask = 1 if ask in asked else ask
            asked.add(ask)
            try:
                choice = choose_sections(sections, ask)
            except BudgetError as error:
                choice = choose_sections(sections, (error.smallest or 0) + 1)
            yield self._divided(choice.sections, empty, "recomputation and pieces together", choice)
            off = math.ceil(self.peak - choice.peak)
            ask = max(empty.budget - off, 1) if len(asked) < _ROUNDS else 1

    def _without_pieces(self, empty: MemoryPlan) -> Iterator[MemoryPlan]:
        plan: CheckpointingPlan | None = None
        for profile in (self.regions, None) if self.subject.measures_stages else (self.regions,):
            try:
                plan = self.subject.plan(empty.budget, profile)
                break
            except BudgetError as error:
                self.smallest = min(filter(None, (self.smallest, error.smallest)), default=None)
        if plan is None:
            return
        again = recomputing(self.regions.step, [region.values for region in plan.regions])
        _, _, share = self._operations(self.regions.step, again)
        yield replace(
            empty, checkpointing=plan, peak=plan.predicted_peak, operations=share, method="recomputation alone"
        )

    def _cuttable(self) -> list[bool]:
        return [bool(self._nodes([part])) for part in self.parts]

    def _all_cuttable(self) -> bool:
        return bool(self._nodes(self.parts))

    def _nodes(self, parts: Sequence[PlannedRegion]) -> tuple[str, ...]:
        """The nodes of some stages that work on samples; none if one of them mixes samples."""
        values = {value for part in parts for value in part.values}
        nodes = [node for node in self.network.nodes if values.intersection(node.writes)]
        if any(node.name in self.samples.mixing or node.graphs for node in nodes):
            return ()
        return tuple(node.name for node in nodes if any(name in self.samples.axes for name in node.reads))

    def _divided(
        self, sections: Sequence[ChainSection], empty: MemoryPlan, method: str, choice: JointChoice | None = None
    ) -> MemoryPlan:
        """Sections as a plan, its operations and bytes counted in the network that it makes."""
        cut = [section for section in sections if section.pieces > 1]
        parts = tuple(
            DividedPart(f"part{i}", self._nodes(self.parts[section.first : section.last + 1]), section.pieces)
            for i, section in enumerate(cut)
        )
        network = microbatch_parts(self.network, by_name(parts)) if parts else self.network
        step = training_step(network, self.batch, self.loss)
        regions = [region for s in sections for region in planned_regions(s.plan, self.parts)]
        for part, section in zip(parts, cut, strict=True):
            ends = section.last == len(self.parts) - 1
            regions += _piece_regions(network, part, part.pieces - ends, {v for n in step.forward for v in n.writes})
        again = recomputing(step, [region.values for region in regions])
        total, extra, share = self._operations(step, again)
        peak = peak_bytes(again.network)
        plan = CheckpointingPlan(
            *(structure_hash(network), self.batch, self.loss, "none", tuple(regions), empty.budget),
            *(peak, total, extra, "FLOP", method, peak_bytes(step.network)),
        )
        divided = replace(empty, parts=parts, checkpointing=plan, peak=peak, method=method, operations=share)
        if choice is None:
            return divided
        return replace(divided, predicted=choice.time / self.base, bound=choice.bound / self.base)

    def _operations(self, step: TrainingStep, again: Recomputing) -> tuple[float, float, float]:
        """Operations of a step, those of them that run again, and the share of the undivided step's with its nodes."""
        times = count_operations(step)
        extra = sum(times[node.writes[0]] for node in again.repeated)
        total = sum(times.values()) + extra
        return total, extra, (total + _PER_NODE * len(again.network.nodes)) / self.base

    @property
    def _counts_bytes(self) -> bool:
        """Whether the backend counts what a step holds, and there is a batch for it; else it is counted here."""
        return self.subject.inputs is not None and isinstance(self.subject.executor, CountsStepMemory)

    def _peak(self, network: Network, plan: CheckpointingPlan | None) -> int:
        """Bytes that a step holds at most; raises OutOfMemory where they are measured and memory does not hold it."""
        executor, inputs = self.subject.executor, self.subject.inputs
        if executor is not None and inputs is not None:
            whole = peak_bytes(self.regions.step.network) if plan is None and network is self.network else 0
            peak = step_peak(executor.like(network.copy()), plan, inputs, self.loss, whole)
            if peak is not None:
                return peak
        step = training_step(network, self.batch, self.loss)
        if plan is None:
            return peak_bytes(step.network)
        return peak_bytes(recomputing(step, [region.values for region in plan.regions]).network)

    def _final(self, plan: MemoryPlan) -> MemoryPlan:
        inner = plan.checkpointing
        if inner is None or not plan.measured or self.subject.executor is None:
            return plan
        measured = replace(inner, predicted_peak=plan.peak, peak_without=plan.peak_without, measured=True)
        return replace(plan, checkpointing=replace(measured, backend=self.subject.backend))


def _piece_regions(network: Network, part: DividedPart, count: int, forward: set[str]) -> list[PlannedRegion]:
    """The first pieces of a part as regions."""
    regions = []
    for piece in range(count):
        name = f"{part.name}/piece{piece}"
        values = [v for node in network.nodes if node.name.startswith(f"{name}/") for v in node.writes if v in forward]
        regions.append(PlannedRegion(name, name, tuple(values)))
    return [region for region in regions if region.values]
