"""Plans chosen by hand or by a rule: counted as the solver's are, and covering what they say."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.errors import PlanError
from deep500.networks import add_loss, create
from deep500.networks.execution.inputs import make_inputs
from deep500.registry import load_backend
from deep500.transformations.recomputation import find_regions, plan_network
from deep500.transformations.recomputation.counting import peak_bytes
from deep500.transformations.workshop.recomputation.chosen_plans import equal_segments, plan_of, regions_named

NETWORK = add_loss(create("mixed_resnet", width=4, blocks=(2, 2, 2, 2), shape=(3, 16, 16)))
FOUND = find_regions(NETWORK, batch=16)


def test_the_solvers_choice_counts_the_same() -> None:
    plan = plan_network(NETWORK, 0.5, 16, regions=FOUND)
    again = plan_of(NETWORK, 16, FOUND, regions_named(FOUND, [region.name for region in plan.regions]), "by name")
    assert (again.predicted_peak, again.predicted_time) == (plan.predicted_peak, plan.predicted_time)
    assert {r.name: r.values for r in again.regions} == {r.name: r.values for r in plan.regions}


@pytest.mark.parametrize(("count", "sizes"), [(None, [3, 3, 4]), (1, [10]), (4, [2, 3, 2, 3]), (10, [1] * 10)])
def test_segments_are_about_equal_and_the_last_is_kept(count: int | None, sizes: list[int]) -> None:
    parts, segments = FOUND.innermost(), equal_segments(FOUND, count)
    assert len(parts) == 10 and len(segments) == len(sizes) - 1
    written = [[value for node in FOUND.nodes[part.name] for value in node.writes] for part in parts]
    for end, size, segment in zip(np.cumsum(sizes), sizes, segments, strict=False):
        assert list(segment.values) == [value for part in written[end - size : end] for value in part]


def test_segments_save_memory_and_keep_every_bit() -> None:
    plan = plan_of(NETWORK, 16, FOUND, equal_segments(FOUND), "sqrt(n)")
    assert plan.predicted_peak < peak_bytes(FOUND.step.network)
    inputs, answers = make_inputs(NETWORK, 16), []
    for way in (None, plan):
        executor = load_backend("reference").from_model(NETWORK)
        executor.set_checkpointing(way)
        executor.inference_and_backprop(inputs)
        names = [gradient for _, gradient in executor.network.gradient()]
        answers.append(executor.network.fetch_tensors(names))
    for got, want in zip(*answers, strict=True):
        np.testing.assert_array_equal(got, want)


def test_mistakes() -> None:
    for count in (0, 11):
        with pytest.raises(PlanError, match=f"got {count} segments; expected 1 to 10"):
            equal_segments(FOUND, count)
    with pytest.raises(PlanError, match=r"got regions \['layer9'\]"):
        regions_named(FOUND, ["layer1", "layer9"])
    with pytest.raises(PlanError, match="regions that overlap"):
        plan_of(NETWORK, 16, FOUND, [*regions_named(FOUND, ["layer1"]), *equal_segments(FOUND, 4)], "both")
