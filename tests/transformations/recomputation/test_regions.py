"""Regions of real networks: what they hold, how they nest, and what is said of those that may not run again."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.errors import PlanError
from deep500.networks import Network, add_loss, create
from deep500.transformations.recomputation.region_tree import locations, simulate
from deep500.transformations.recomputation.regions import NetworkRegions, find_regions
from deep500.transformations.recomputation.training_step import live_bytes, value_bytes, with_batch


@pytest.fixture(scope="module")
def resnet() -> NetworkRegions:
    return find_regions(add_loss(create("resnet", depth=20)), batch=8)


def dropout_network() -> Network:
    """Three blocks, each with a Dropout in its middle."""
    net = Network("drops")
    net.add_input("x", ("N", 6))
    value = "x"
    for i in range(3):
        net.add_parameter(f"w{i}", np.full((6, 6), 0.1, "float32"))
        net.add_node("MatMul", [value, f"w{i}"], [f"b{i}/product"])
        net.add_node("Tanh", [f"b{i}/product"], [f"b{i}/tanh"])
        net.add_node("Dropout", [f"b{i}/tanh"], [f"b{i}/dropped"], name=f"b{i}/dropout")
        net.add_node("Exp", [f"b{i}/dropped"], [f"b{i}/out"])
        value = f"b{i}/out"
    net.add_node("ReduceMean", [value], ["loss"], keepdims=0)
    net.add_output("loss")
    return net


@pytest.mark.parametrize(
    ("name", "options"), [("resnet", {"depth": 20}), ("transformer", {}), ("lenet", {}), ("mlp", {}), ("lstm", {})]
)
@pytest.mark.parametrize("crossing", [1, 2])
def test_leaves_hold_every_forward_node_once(name: str, options: dict[str, int], crossing: int) -> None:
    net = add_loss(create(name, **options))
    regions = find_regions(net, batch=2, crossing=crossing)
    leaves = [region for region in regions.root.walk() if not region.children]
    assert [n.name for leaf in leaves for n in regions.nodes[leaf.name]] == [n.name for n in regions.step.forward]
    assert len(leaves) > 1
    for region in regions.root.walk():
        if region.children:
            assert region.full_tape == sum(child.full_tape for child in region.children)
    locations(regions.root)  # names are unique


def test_nesting_and_sharing(resnet: NetworkRegions) -> None:
    assert [r.name for r in resnet.root.children] == ["conv1:relu1", "layer1", "layer2", "layer3", "avgpool:loss"]
    assert [len(r.children) for r in resnet.root.children] == [0, 3, 3, 3, 0]
    shared = {place: len(regions) for place, regions in locations(resnet.root).items() if len(regions) > 1}
    assert shared == {
        "layer1.0.conv1:layer1.0.relu2": 3,
        "layer2.1.conv1:layer2.1.relu2": 2,
        "layer3.1.conv1:layer3.1.relu2": 2,
    }


def test_bytes_by_hand(resnet: NetworkRegions) -> None:
    """A basic block at 8x16x32x32 keeps what its two convolutions, its first and its last ReLU give."""
    block = resnet.root.children[1].children[0]
    activation = 8 * 16 * 32 * 32 * 4
    assert (block.full_tape, block.snapshot) == (4 * activation, activation)
    text = str(resnet)
    assert f"{4 * activation:,}" in text and "(shared by 3)" in text and "run [FLOP]" in text


def test_bytes_agree_with_the_whole_step(resnet: NetworkRegions) -> None:
    """The model of regions, with the gradients as overheads, is near what is held node by node."""
    step = resnet.step
    exact = max(live_bytes(step.network.nodes, step.sizes, lasting=step.network.outputs))
    assert exact <= simulate(resnet.root, ()).peak <= 1.1 * exact


def test_random_numbers_are_kept() -> None:
    regions = find_regions(dropout_network(), batch=2)
    assert list(regions.pinned.values()) == ["random numbers"] * 3
    assert "kept, never run again: Dropout_train/Dropout:0 (random numbers)" in str(regions)
    activation = 2 * 6 * 4
    block = regions.root.children[0]
    written = {v for n in regions.nodes[block.name] if n.op_type == "Dropout" for v in n.writes}
    assert written & {"b0/dropped"}
    assert block.snapshot >= 2 * activation, "what the Dropout gave is held beside the region's output"


def test_one_operator() -> None:
    net = Network("one")
    net.add_input("x", ("N", 4))
    net.add_parameter("w", np.ones((4,), "float32"))
    net.add_node("MatMul", ["x", "w"], ["y"])
    net.add_node("ReduceMean", ["y"], ["loss"], keepdims=0)
    regions = find_regions(net, batch=2)
    assert len(list(regions.root.walk())) == 2


def test_what_cannot_be_sized() -> None:
    net = Network("unknown")
    net.add_input("x", ("N", 4))
    net.add_node("NonZero", ["x"], ["where"])
    net.add_node("Cast", ["where"], ["real"], to=1)
    with pytest.raises(PlanError, match="of unknown size: 'where'"):
        value_bytes(with_batch(net, 2))
    for batch in (0, -1, True, 2.0):
        with pytest.raises(PlanError, match="whole number above 0"):
            with_batch(net, batch)  # type: ignore[arg-type]


def test_times_must_be_complete(resnet: NetworkRegions) -> None:
    net = add_loss(create("mlp"))
    with pytest.raises(PlanError, match="got no time of"):
        find_regions(net, batch=2, times={})
    step = find_regions(net, batch=2).step
    times = {node.writes[0]: 2.0 for node in (*step.forward, *step.backward)}
    regions = find_regions(net, batch=2, times=times)
    assert (regions.time_unit, regions.root.step_time) == ("s", 2.0 * len(times))


def test_scopes_and_outputs_by_hand() -> None:
    """A scope that everything shares is no level; what a region hands on is in its tape though no gradient reads it."""
    net = Network("scopes")
    net.add_input("x", ("N", 6))
    net.add_parameter("w", np.ones(6, "float32"))
    value = "x"
    for part in ("net.a.0", "net.a.1", "net.b.0", "net.b.1"):
        net.add_node("Sub", [value, "w"], [f"{part}.difference"])  # its gradient reads nothing, nor does that of Neg
        net.add_node("Tanh", [f"{part}.difference"], [f"{part}.tanh"])
        net.add_node("Neg", [f"{part}.tanh"], [f"{part}.out"])
        value = f"{part}.out"
    net.add_node("Neg", [value], ["net.b.1.end"])
    net.add_node("ReduceMean", ["net.b.1.end"], ["net.b.1.loss"], keepdims=0)
    regions = find_regions(net, batch=2, loss="net.b.1.loss")
    assert [region.name for region in regions.root.children] == ["net.a", "net.b"]
    assert [len(region.children) for region in regions.root.children] == [2, 2]
    first = regions.root.children[0].children[0]
    assert (first.full_tape, first.snapshot) == (2 * 2 * 6 * 4, 2 * 6 * 4)
