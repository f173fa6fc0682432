"""A plan held to what it promises: one step with it and one without, their bytes and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from deep500.errors import Deep500Error, PlanError
from deep500.networks.dtype import to_dtype
from deep500.networks.execution.capabilities import step_memory
from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.graph import Graph
from deep500.networks.hashing import structure_hash
from deep500.networks.losses import gradient_name
from deep500.progress import progress, stage
from deep500.transformations.recomputation.plan_file import CheckpointingPlan

TOLERANCE = 1e-4
"""Largest difference, relative to the largest element, that is taken for rounding: a kernel on a GPU may add up in any
order, another draw of random numbers differs by far more."""


@dataclass(frozen=True)
class Verification:
    """Measurements of a step with a plan, beside what was predicted.

    Attributes:
        predicted: peak in bytes.
        measured: peak in bytes; None: not measured, as the backend has no counter of memory there.
        without: peak of the step without the plan; None likewise.
        difference: largest of gradients, outputs and running statistics, relative to the largest element of each; 0
            means the same bits.
        double: the same in double precision, where a difference beyond :data:`TOLERANCE` was found to be rounding; None
            where it was not needed.
    """

    predicted: int
    measured: int | None
    without: int | None
    difference: float
    double: float | None = None

    def __str__(self) -> str:
        measured = "not measured (no counter of memory on this backend and device)"
        if self.measured is not None and self.without is not None:
            share = f", {self.measured / self.without:.3f} of {self.without:,} B without it" if self.without else ""
            measured = f"{self.measured:,} B{share}"
        same = "the same to the bit" if not self.difference else f"within {self.difference:.1e}"
        if self.double is not None:
            same += f" by rounding, as it is {self.double:.1e} in double precision"
        return f"predicted peak {self.predicted:,} B, measured {measured}; gradients and statistics {same}"


def verify_plan(executor: GraphExecutor, plan: CheckpointingPlan, inputs: Mapping[str, Any]) -> Verification:
    """Run one step with a plan and one without, on copies: the executor stays as it is.

    Where results differ by more than :data:`TOLERANCE`, both run once more in double precision: rounding alone, which
    decides at the kinks of ReLU or MaxPool which way a gradient goes, then leaves no more than the tolerance.

    Args:
        executor: whose network, backend and device count.
        plan: for its network.
        inputs: a batch of the plan's size.

    Raises:
        PlanError: a result differs by more than :data:`TOLERANCE`; names the regions that give something else when
            they run again.

    Example:
        >>> import deep500.frameworks.reference as d5ref
        >>> from deep500.networks import add_loss, create
        >>> from deep500.transformations.recomputation.planning import plan_checkpointing
        >>> executor = d5ref.from_model(add_loss(create("resnet", depth=8)))
        >>> batch = {"input": np.ones((4, 3, 32, 32), "float32"), "label": np.zeros(4, "int64")}
        >>> checked = verify_plan(executor, plan_checkpointing(executor, 0.9, batch), batch)
        >>> checked.measured < checked.without, checked.difference
        (True, 0.0)
    """
    with progress("a dry run of the plan"), executor.rehearsal() as twin:
        return _verified(_SingleSteps(twin, twin.network, inputs, plan.loss), plan)


def _verified(steps: _SingleSteps, plan: CheckpointingPlan) -> Verification:
    stage("steps without it")
    want, without = steps.run(None)
    stage("steps with it")
    got, measured = steps.run(plan)
    difference, name = _difference(got, want)
    double = steps.doubled(plan) if difference > TOLERANCE else None
    if difference > TOLERANCE and (double is None or double > TOLERANCE):
        alone = {region.name: steps.run(replace(plan, regions=(region,)))[0] for region in plan.regions}
        guilty = [region for region, results in alone.items() if _difference(results, want)[0] > TOLERANCE]
        raise PlanError(
            f"got {name!r} that differs by {difference:.1e} when regions {guilty or list(alone)} run again; expected "
            "the same result: leave them out of the plan, they are not deterministic"
        )
    return Verification(plan.predicted_peak, measured, without, difference, double)


class _SingleSteps:
    """Single training steps on executors of their own, from the same seed."""

    def __init__(self, maker: GraphExecutor, network: Graph, inputs: Mapping[str, Any], loss: str) -> None:
        self.maker, self.network, self.inputs, self.loss = maker, network, inputs, loss

    def run(self, plan: CheckpointingPlan | None) -> tuple[dict[str, np.ndarray], int | None]:
        """Gradients, outputs and state after a step, and its peak if it can be measured."""
        executor = self.maker.like(self.network)
        executor.set_checkpointing(plan)
        executor.reseed(0)
        executor.inference_and_backprop(self.inputs, self.loss)  # compiles, and draws once
        peak = step_memory(executor, self.inputs, self.loss)
        if peak is None:
            executor.inference_and_backprop(self.inputs, self.loss)
        network = executor.network
        names = [*network.outputs, *(gradient_name(name) for name, _ in network.gradient(self.loss))]
        tensors = zip(names, network.fetch_tensors(names), strict=True)
        return {name: network.to_numpy(tensor) for name, tensor in tensors} | network.state(), peak

    def doubled(self, plan: CheckpointingPlan) -> float | None:
        """The largest difference in double precision; None where that is what there was, or cannot run."""
        twin = self.network
        for single in ("float32", "float16", "bfloat16"):
            twin = to_dtype(twin, "float64", single)
        if structure_hash(twin) == structure_hash(self.network):
            return None
        inputs = {name: np.asarray(value).astype(twin.inputs[name].dtype) for name, value in self.inputs.items()}
        steps = _SingleSteps(self.maker, twin, inputs, self.loss)
        try:
            want, _ = steps.run(None)
            got, _ = steps.run(replace(plan, network=structure_hash(twin)))
        except Deep500Error:
            return None
        return _difference(got, want)[0]


def _difference(got: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray]) -> tuple[float, str]:
    """The largest, relative to the largest element of what was wanted, and where it is."""
    largest = (0.0, "")
    for name, array in want.items():
        if np.array_equal(got[name], array, equal_nan=array.dtype.kind == "f"):
            continue
        scale = float(np.max(np.abs(array), initial=0.0)) or 1.0
        worst = float(np.max(np.abs(got[name].astype(np.float64) - array.astype(np.float64)))) / scale
        largest = max(largest, (worst if np.isfinite(worst) else np.inf, name))
    return largest
