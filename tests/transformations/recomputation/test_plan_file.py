"""Plan files: what comes back, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deep500.errors import PlanError
from deep500.networks import Network, add_loss, create
from deep500.networks.hashing import structure_hash
from deep500.transformations.recomputation.plan_file import CheckpointingPlan, PlannedRegion, load_plan
from deep500.transformations.recomputation.training_step import training_step


def network(classes: int = 3) -> Network:
    return add_loss(create("mlp", shape=(4,), classes=classes))


def plan(net: Network) -> CheckpointingPlan:
    regions = (PlannedRegion("fc1", "fc1", ("fc1", "relu1")),)
    return CheckpointingPlan(structure_hash(net), 8, "loss", "reference", regions, 100, 90, 1.5, 0.25, "s", "optimal")


def test_round_trip(tmp_path: Path) -> None:
    written = plan(network())
    read = load_plan(written.save(tmp_path / "plan.json"))
    assert read == written
    read.check(network(), 8, "reference")
    read.check(network(), 8)


@pytest.mark.parametrize(
    ("net", "batch", "backend", "message"),
    [
        (network(4), 8, None, "expected .*, for which the plan was made"),
        (network(), 9, None, "batch size 9; expected 8"),
        (network(), 8, "jax", "expected 'reference', whose profile"),
    ],
)
def test_made_for_something_else(net: Network, batch: int, backend: str | None, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan(network()).check(net, batch, backend)


@pytest.mark.parametrize("version", [0, 1, 2, 4, None, "3"])
def test_another_layout_is_refused_in_one_line(tmp_path: Path, version: Any) -> None:
    """Told apart by the fields format and version: a plan of another layout, and what is no plan."""
    path = plan(network()).save(tmp_path / "plan.json")
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "version": version}))
    with pytest.raises(PlanError, match=r"got (version|no version).*; expected .*plan again with plan_checkpointing$"):
        load_plan(path)
    path.write_text(json.dumps({**data, "format": "other"}))
    with pytest.raises(PlanError, match=r"got (no format|format: 'other'); expected "):
        load_plan(path)


def test_hash_is_of_the_structure() -> None:
    """Weights may differ, wiring and attributes may not."""
    net = network()
    trained = net.copy()
    for name in trained.trainable():
        trained.set_parameter(name, trained.parameters[name].value + 1)
    assert structure_hash(trained) == structure_hash(net)
    changed = net.copy()
    changed.replace(next(n.name for n in net.nodes if n.op_type == "Relu"), "Tanh")
    assert structure_hash(changed) != structure_hash(net)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "x"},
        {"version": 99},
        {"batch": "8"},
        {"batch": True},
        {"regions": [{"name": "a"}]},
        {"regions": [1]},
        {"predicted_time": None},
        {"predicted_time": float("nan")},
        {"budget": -1},
        {"batch": 0},
        {"regions": [{"name": 3, "location": "a", "values": ["fc1"]}]},
        {"regions": [{"name": "a", "location": "a", "values": "fc1"}]},
        {"regions": [{"name": "a", "location": "a", "values": [["fc1"]]}]},
        {"regions": [{"name": "a", "location": "a", "values": []}]},
    ],
)
def test_damaged_files(tmp_path: Path, change: dict[str, Any]) -> None:
    path = plan(network()).save(tmp_path / "plan.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(PlanError, match=r"plan\.json"):
        load_plan(path)


@pytest.mark.parametrize("change", [{"budget": 101}, {"regions": []}, {"predicted_time": 1.25}, {"note": "mine"}])
def test_changed_files(tmp_path: Path, change: dict[str, Any]) -> None:
    """Well-formed and changed: refused by the file's own hash, while order and white space may change."""
    path = plan(network()).save(tmp_path / "plan.json")
    data = json.loads(path.read_text())
    path.write_text(json.dumps(dict(reversed(data.items()))))
    assert load_plan(path) == plan(network())
    path.write_text(json.dumps({**data, **change}))
    with pytest.raises(PlanError, match=r"plan\.json: got content with hash .*the file was changed"):
        load_plan(path)


def test_unreadable_files(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    with pytest.raises(PlanError, match="no such file"):
        load_plan(path)
    for text, words in (("{", "no readable JSON"), ("[" * 100_000, "nested 100000 deep")):
        path.write_text(text)
        with pytest.raises(PlanError, match=words):
            load_plan(path)
    data = json.loads(plan(network()).save(path).read_text())
    del data["budget"]
    path.write_text(json.dumps(data))
    with pytest.raises(PlanError, match="got no budget"):
        load_plan(path)


def test_the_loss_and_what_it_does_not_read() -> None:
    net = network()
    net.add_node("Exp", ["output"], ["aside"])
    net.add_output("aside")
    made = replace(plan(net), regions=(PlannedRegion("r", "r", ("output", "aside")),))
    with pytest.raises(PlanError, match=r"values \['aside'\] in a region"):
        made.check(net, 8)
    with pytest.raises(PlanError, match="got a plan for loss 'nope'; expected a value of 'mlp"):
        replace(made, loss="nope").check(net, 8)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([("fc1", "relu1"), ("zzz", "zzz:1")], "values \\['zzz', 'zzz:1'\\] in a region"),
        ([("fc1.weight",)], "values \\['fc1.weight'\\] in a region"),
        ([("fc1", "relu1"), ("relu1", "output")], "overlap in \\['relu1'\\]"),
        ([("fc1", "relu1"), ("relu1", "fc1")], "overlap in"),
    ],
)
def test_regions_that_no_network_of_this_hash_has(values: list[tuple[str, ...]], message: str) -> None:
    """Refused when the plan is set, by all backends, and not passed over by those that cut code as it comes."""
    from deep500.frameworks.reference import Executor

    regions = tuple(PlannedRegion(f"r{i}", f"r{i}", v) for i, v in enumerate(values))
    broken = replace(plan(network()), regions=regions)
    with pytest.raises(PlanError, match=message):
        broken.check(network(), 8)
    executor = Executor(network())
    with pytest.raises(PlanError, match=message):
        executor.set_checkpointing(broken)
    assert executor.checkpointing is None


def test_a_region_may_hold_what_gradients_expand() -> None:
    """An LSTM is unrolled for its gradient: a plan names values that the network itself does not write."""
    net = add_loss(create("lstm", shape=(4, 3), classes=3, width=5))
    values = tuple(v for node in training_step(net, 8).forward for v in node.writes if v.startswith("lstm/"))
    assert values and not set(values) & set(net.values())
    made = replace(plan(net), network=structure_hash(net), regions=(PlannedRegion("lstm", "lstm", values),))
    made.check(net, 8)
    other = PlannedRegion("lstm", "lstm", (*values, "lstm/nowhere"))
    with pytest.raises(PlanError, match=r"got values \['lstm/nowhere'\] in a region"):
        replace(made, regions=(other,)).check(net, 8)
