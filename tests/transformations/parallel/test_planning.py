"""Plans: as good as any by enumeration, those that are known to be right, limits, pins, files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deep500.errors import BudgetError, PlanError
from deep500.networks import Network, add_loss, create
from deep500.reading import with_hash
from deep500.transformations.parallel.blocks import alike
from deep500.transformations.parallel.costs import StepCosts, node_seconds
from deep500.transformations.parallel.dividing import Division, StepGraph
from deep500.transformations.parallel.joint import joint_network
from deep500.transformations.parallel.plan_file import as_table, load_parallel_plan
from deep500.transformations.parallel.planning import Wishes, parallelize, plan_seconds
from deep500.transformations.parallel.shardings import R, Sharding

QUICK = StepCosts(latency=1e-7, byte_time=1e-5, operation_time=1e-4, memory_time=1e-6, start=1e-6)
"""A machine on which small networks are worth dividing."""


def random_network(rng: np.random.Generator) -> Network:
    """Products, sums, functions and reductions of four to eight nodes, with values that are read several times."""
    network, values = Network("random"), ["x"]
    network.add_input("x", (4, 4), "float64")
    for number in range(rng.integers(3, 7)):
        a, b = (str(rng.choice(values[-3:])) for _ in range(2))
        kind, name = int(rng.integers(5)), f"v{number}"
        if kind == 0:
            network.add_parameter(f"w{number}", np.ones((4, 4)))
            network.add_node("MatMul", [a, f"w{number}"], [name], name)
        elif kind == 1:
            network.add_node("Relu", [a], [name], name)
        elif kind == 2:
            network.add_node("Softmax", [a], [name], name, axis=int(rng.integers(2)))
        else:
            network.add_node("Add" if kind == 3 else "Mul", [a, b], [name], name)
        values.append(name)
    network.add_node("ReduceSum", [values[-1]], ["total"], "total", keepdims=0)
    network.add_output("total")
    return network


class Enumeration:
    """The least seconds of all plans: every choice in turn, given up where the part so far takes as long already."""

    def __init__(self, graph: StepGraph, model: StepCosts, most: float) -> None:
        self.graph, self.model, self.best = graph, model, most
        self.seconds = node_seconds(graph, model)
        self.fixed = model.start * len(graph.nodes)
        self.tried = 0

    def least(self) -> float:
        self._source(0, {}, self.fixed)
        return self.best

    def _source(self, number: int, shardings: dict[str, Sharding], so_far: float) -> None:
        if number == len(self.graph.sources):
            self._node(0, shardings, frozenset(), so_far)
            return
        name = self.graph.sources[number]
        for sharding in self.graph.source_shardings(name):
            self._source(number + 1, {**shardings, name: sharding}, so_far)

    def _crossed(
        self, wanted: Mapping[str, set[Sharding]], shardings: Mapping[str, Sharding], done: frozenset[Any]
    ) -> tuple[float, frozenset[Any]] | None:
        total = 0.0
        for value, ways in wanted.items():
            for after in ways:
                if after == shardings[value] or (value, after) in done:
                    continue
                change = self.graph.conversion(value, shardings[value], after)
                if change is None:
                    return None
                total, done = total + self.model.collective(change), done | {(value, after)}
        return total, done

    def _node(self, number: int, shardings: dict[str, Sharding], done: frozenset[Any], so_far: float) -> None:
        if so_far >= self.best:
            return
        self.tried += 1
        if number == len(self.graph.nodes):
            crossed = self._crossed({name: {R} for name in self.graph.network.outputs}, shardings, done)
            if crossed is not None and so_far + crossed[0] < self.best:
                self.best = so_far + crossed[0]
            return
        node = self.graph.nodes[number]
        for strategy in self.graph.strategies[node.name]:
            wanted: dict[str, set[Sharding]] = {}
            for value, sharding in zip(node.inputs, strategy.inputs, strict=True):
                wanted.setdefault(value, set()).add(sharding)
            crossed = self._crossed(wanted, shardings, done)
            if crossed is None:
                continue
            work = self.seconds[node.name] / (self.graph.ranks if strategy.work else 1)
            after = {**shardings, **dict(zip(node.outputs, strategy.outputs, strict=True))}
            self._node(number + 1, after, crossed[1], so_far + crossed[0] + work)


def compare(seed: int) -> tuple[float, float, int]:
    rng = np.random.default_rng(seed)
    network, ranks = random_network(rng), int(rng.integers(2, 4))
    model = StepCosts(*(float(10.0 ** rng.uniform(-6, -3)) for _ in range(5)))
    plan = parallelize(network, ranks, {}, None, Wishes(model=model))
    graph = StepGraph(joint_network(network, {}, None), ranks)
    search = Enumeration(graph, model, plan.seconds * (1 + 1e-9))
    return plan.seconds, search.least(), search.tried


@pytest.mark.parametrize("seed", range(25))
def test_no_plan_is_quicker_by_enumeration(seed: int) -> None:
    planned, least, tried = compare(seed)
    assert tried > 0
    assert planned <= least + 2e-8  # the solver prefers fewer changes by a nanosecond each


@pytest.mark.long
def test_no_plan_is_quicker_by_enumeration_of_two_hundred() -> None:
    for seed in range(25, 225):
        planned, least, _ = compare(seed)
        assert planned <= least + 2e-8, seed


def transformer(layers: int, **sizes: int) -> tuple[Network, dict[str, tuple[int, ...]]]:
    options: dict[str, Any] = {"classes": 32, "width": 32, "heads": 4, **sizes}
    network = add_loss(create("causal_transformer", shape=(8,), layers=layers, **options))
    return network, {"input": (4, 8), "label": (4, 8)}


def test_megatron_s_plan_follows_from_the_memory_of_a_half() -> None:
    """Queries, keys, values and the first layer of a block by columns, projection and second layer by rows."""
    network, shapes = transformer(4)
    whole = parallelize(network, 2, shapes, wishes=Wishes(model=StepCosts(latency=1.0)))
    assert not whole.sources and not whole.nbytes  # no message is worth a second
    model = StepCosts(latency=2e-5, byte_time=1e-9, operation_time=1e-9)
    half = parallelize(network, 2, shapes, wishes=Wishes(memory=int(0.55 * whole.memory), model=model))
    assert half.memory <= 0.55 * whole.memory
    for layer in range(4):
        name = f"layers.{layer}."
        columns = [f"{name}attention.{part}.weight" for part in ("query", "key", "value")]
        assert {half.sources[n] for n in columns} == {"S1"}, half.sources
        assert half.sources[f"{name}attention.output.weight"] == "S0"
        assert half.sources[f"{name}mlp.wide.weight"] == "S1"
        assert half.sources[f"{name}mlp.narrow.weight"] == "S0"
    crossings = half.division(network).crossings
    rows = 4 * 8 * 32 * 4  # items, places, width, bytes
    reduced = [c.resharding.nbytes for c in crossings if c.resharding.collective == "AllReduce"]
    assert reduced == [rows] * (4 * 4)  # two forward, two backward a layer


def test_constants_of_gradients_are_no_parameters() -> None:
    """The gradient of a Slice by steps brings zeros of its input's size, which grow with the batch."""
    network = Network("cut")
    network.add_input("x", ("N", 8))
    network.add_parameter("w", np.ones((8, 8), np.float32))
    for name, value in {"starts": [0], "ends": [8], "axes": [1], "steps": [2]}.items():
        network.add_parameter(name, np.array(value), trainable=False)
    network.add_node("MatMul", ["x", "w"], ["h"])
    network.add_node("Slice", ["h", "starts", "ends", "axes", "steps"], ["y"])
    network.add_node("ReduceMean", ["y"], ["loss"], keepdims=0)
    network.add_output("loss")
    trained, fixed = 4 * 8 * 8 * 4, 3 * 8  # Adam's four arrays, and three numbers that the file has
    for batch in (6, 60):
        assert (
            parallelize(network, 2, {"x": (batch, 8)}, wishes=Wishes(memory=trained + fixed)).memory <= trained + fixed
        )


def test_a_batch_is_divided_where_activations_are_large() -> None:
    network = add_loss(create("lenet", shape=(1, 28, 28)))
    shapes = {"input": (256, 1, 28, 28), "label": (256,)}
    plan = parallelize(network, 2, shapes, wishes=Wishes(model=StepCosts(byte_time=1e-8)))
    assert not plan.sources.keys() & network.parameters.keys()
    assert plan.strategies["conv1"] == plan.strategies["conv2"] == "n"
    assert [plan.strategies[f"fc{layer}"] for layer in (1, 2, 3)] == ["m"] * 3
    scores = 256 // 2 * 10 * 4  # gathered; so the last bias has its whole gradient on every rank
    sizes = {name: p.value.nbytes for name, p in network.parameters.items() if name != "fc3.bias"}
    assert plan.nbytes == sum(sizes.values()) + scores


def test_equal_layers_are_one_variable() -> None:
    few, many = (StepGraph(joint_network(*transformer(n)), 2) for n in (6, 12))
    assert len(set(alike(few, 3).values())) == len(set(alike(many, 3).values()))
    network, shapes = transformer(12)
    plan = parallelize(network, 2, shapes, wishes=Wishes(model=QUICK))
    strategies = [plan.strategies.get(f"layers.{layer}.mlp.wide.matmul") for layer in range(4, 8)]
    assert len(set(strategies)) == 1


def test_pins_hold_and_those_that_cannot_are_refused() -> None:
    network = add_loss(create("mlp", shape=(4,), hidden=(8,), classes=3))
    shapes = {"input": (6, 4), "label": (6,)}
    plan = parallelize(network, 2, shapes, wishes=Wishes(pins={"fc1": "n", "fc2.weight": "S1"}))
    assert plan.strategies["fc1"] == "n"
    assert plan.sources["fc2.weight"] == "S1"
    with pytest.raises(PlanError, match=r"got a pin of 'fc2' to 'n' on 4 ranks; expected one of replicate, m, k"):
        parallelize(network, 4, shapes, wishes=Wishes(pins={"fc2": "n"}))  # three classes
    with pytest.raises(PlanError, match=r"got a pin of 'fc9'; expected a node, an input or a parameter"):
        parallelize(network, 2, shapes, wishes=Wishes(pins={"fc9": "n"}))
    with pytest.raises(PlanError, match=r"got 0 ranks; expected at least 1"):
        parallelize(network, 0, shapes)
    with pytest.raises(PlanError, match=r"got shape \(6, 5\) for input 'input'; expected float32\[Nx4\]"):
        parallelize(network, 2, {"input": (6, 5), "label": (6,)})


def test_memory_that_no_plan_keeps_within_says_the_least() -> None:
    network = add_loss(create("mlp", shape=(4,), hidden=(8,), classes=3))
    shapes = {"input": (6, 4), "label": (6,)}
    with pytest.raises(BudgetError, match=r"got memory=10 bytes a rank; expected at least") as caught:
        parallelize(network, 2, shapes, wishes=Wishes(memory=10))
    smallest = caught.value.smallest
    assert smallest is not None
    assert parallelize(network, 2, shapes, wishes=Wishes(memory=smallest)).memory <= smallest
    with pytest.raises(BudgetError):
        parallelize(network, 2, shapes, wishes=Wishes(memory=smallest - 1))
    alone = parallelize(network, 1, shapes).memory
    assert parallelize(network, 1, shapes, wishes=Wishes(memory=alone)).memory == alone > smallest
    with pytest.raises(BudgetError, match=f"expected at least {alone}, the least .* on 1 ranks"):
        parallelize(network, 1, shapes, wishes=Wishes(memory=alone - 1))


def test_files_hold_the_plan_and_refuse_another_network(tmp_path: Path) -> None:
    network = add_loss(create("mlp", shape=(4,), hidden=(8,), classes=3))
    shapes = {"input": (6, 4), "label": (6,)}
    plan = parallelize(network, 2, shapes, wishes=Wishes(pins={"fc1": "n", "fc2": "k"}))
    path = plan.save(tmp_path / "plan.json")
    again = load_parallel_plan(path)
    assert again == plan
    assert [str(n) for n in again.networks(network)[0].nodes] == [str(n) for n in plan.networks(network)[0].nodes]
    with pytest.raises(PlanError, match="plan again for this network"):
        again.networks(add_loss(create("mlp", shape=(4,), hidden=(9,), classes=3)))
    data = json.loads(path.read_text())
    older = {key: value for key, value in data.items() if key not in ("costs", "costs_from", "hash")}
    path.write_text(json.dumps(with_hash(older)))
    assert "from unknown costs" in load_parallel_plan(path).about()
    path.write_text(json.dumps(with_hash({**older, "costs": {"speed": 1.0}})))
    with pytest.raises(PlanError, match=r"got costs \['speed'\]; expected those of StepCosts"):
        load_parallel_plan(path)
    data["strategies"]["fc1"] = "m"
    path.write_text(json.dumps(data))
    with pytest.raises(PlanError, match="the file was changed"):
        load_parallel_plan(path)
    path.write_text("{}")
    with pytest.raises(PlanError):
        load_parallel_plan(path)


def test_a_plan_says_every_collective_with_its_reason_and_bytes() -> None:
    network = add_loss(create("mlp", shape=(4,), hidden=(8,), classes=3))
    shapes = {"input": (6, 4), "label": (6,)}
    plan = parallelize(network, 2, shapes, wishes=Wishes(pins={"fc1": "n", "fc2": "k"}))
    rows = {row.node: row for row in plan.explain(network)}
    assert rows["fc1"].strategy == "n" and rows["fc1"].shardings == "S1"
    told = " ".join(row.collectives for row in rows.values())
    assert "output: AllReduce P -> R, 72 bytes" in told
    assert "fc2 (k) leaves it as P" in " ".join(row.why for row in rows.values())
    division = plan.division(network)
    assert told.count("bytes") == len(division.crossings)
    assert plan.nbytes == sum(c.resharding.nbytes for c in division.crossings)
    assert as_table(list(rows.values())).count("\n") == len(rows)
    serial = Division(division.graph, {}, {})
    assert plan_seconds(serial, StepCosts()) > 0 and serial.crossings == []


def test_what_no_rule_divides_is_named() -> None:
    network = Network("identity")
    network.add_input("x", (4, 6))
    network.add_node("Relu", ["x"], ["y"], "act")
    network.add_node("Shrink", ["y"], ["z"], "shrink")
    network.add_node("EyeLike", ["z"], ["e"], "eye")
    network.add_output("e")
    graph = StepGraph(joint_network(network, {}, None), 2)
    assert graph.without_rule() == ["eye (EyeLike)"]
