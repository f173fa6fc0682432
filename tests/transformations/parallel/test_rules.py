"""Every rule by exhaustion: each strategy of each case on 2, 3 and 4 ranks, against the serial operator.

Partial operands differ between ranks, in sign too, so that an operator which is not linear is seen to be none.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import Deep500Error
from deep500.networks import Network
from deep500.transformations.parallel.dividing import StepGraph
from deep500.transformations.parallel.joint import JointNetwork
from deep500.transformations.parallel.rules import SHARDING_RULES
from deep500.transformations.parallel.rules.registry import sharding_rule
from deep500.transformations.parallel.shardings import LOCAL, R, Sharding, piece, pieces
from deep500.transformations.parallel.strategies import Factors, Strategy, local_node
from tests.transformations.parallel.rule_cases import CASES, RuleCase

pytestmark = pytest.mark.backend("reference")
RANKS = (2, 3, 4)


def network_of(case: RuleCase) -> tuple[Network, dict[str, np.ndarray]]:
    """The node alone as a network, and its inputs."""
    network, feeds = Network(case.op_type), {}
    for i, value in enumerate(case.inputs):
        if value is None:
            continue
        if i in case.fixed:
            network.add_parameter(f"x{i}", value, trainable=False)
        else:
            network.add_input(f"x{i}", value.shape, str(value.dtype))
            feeds[f"x{i}"] = value
    names = ["" if value is None else f"x{i}" for i, value in enumerate(case.inputs)]
    network.add_node(case.op_type, names, [f"y{i}" for i in range(case.outputs)], "node", **case.attributes)
    for i in range(case.outputs):
        network.add_output(f"y{i}")
    if network.descriptors()["y0"].shape is None:  # ONNX's inference leaves it open
        network.declare({"y0": network.descriptors()["x0"]})
    return network, feeds


def graph_of(network: Network, ranks: int) -> StepGraph:
    return StepGraph(JointNetwork(network, tuple(network.outputs), {}, {}), ranks)


def run(network: Network, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    executor = d5.load_backend("reference").from_model(network)
    needed = {name: feeds[name] for name in executor.network.inputs}
    return {name: np.asarray(value) for name, value in executor.inference(needed).items()}


@cache
def serial(number: int) -> dict[str, np.ndarray]:
    return run(*network_of(CASES[number]))


def part_of(value: np.ndarray, sharding: Sharding, ranks: int, rank: int, seed: int) -> np.ndarray:
    if sharding.kind == "P":
        terms = np.random.default_rng(seed).normal(scale=3, size=(ranks, *value.shape))
        terms[-1] = value - terms[:-1].sum(0)
        return terms[rank].astype(value.dtype)
    if sharding.kind in "SL":
        index = [slice(None)] * value.ndim
        index[sharding.axis] = piece(value.shape[sharding.axis], ranks, rank)
        value = value[tuple(index)]
    return np.ascontiguousarray(value) if value.ndim else value


def local_results(case: RuleCase, graph: StepGraph, strategy: Strategy, rank: int) -> list[np.ndarray]:
    """A rank's outputs, its node run on its parts of the inputs."""
    local, constants, weight = local_node(graph.views["node"], strategy, graph.ranks, rank)
    twin = Network("local")
    feeds = {}
    for i, (value, sharding) in enumerate(zip(case.inputs, strategy.inputs, strict=True)):
        if value is None:
            continue
        mine = part_of(value, sharding, graph.ranks, rank, i)
        if i in case.fixed:
            twin.add_parameter(f"x{i}", constants.get(i, mine), trainable=False)
        else:
            twin.add_input(f"x{i}", mine.shape, str(mine.dtype))
            feeds[f"x{i}"] = mine
    twin.insert(local)
    for name in local.outputs:
        twin.add_output(name)
    results = [run(twin, feeds)[name] for name in local.outputs]
    return results if weight is None else [results[0] * weight, *results[1:]]


def combined(parts: list[np.ndarray], sharding: Sharding, rows: int) -> np.ndarray:
    """The value that the ranks' parts stand for."""
    if sharding == R:
        for other in parts[1:]:
            np.testing.assert_array_equal(other, parts[0])
        return parts[0]
    if sharding.kind == "P":
        return {"sum": np.sum, "max": np.max, "min": np.min}[sharding.reduction](parts, axis=0)
    if sharding == LOCAL:  # positions count from each rank's own piece
        starts = np.cumsum([0, *pieces(rows, len(parts))[:-1]]) * (CASE_ROW if rows else 1)
        parts = [part + start for part, start in zip(parts, starts, strict=True)]
    return np.concatenate(parts, sharding.axis)


CASE_ROW = 2 * 4 * 4
"""Elements of a sample of the case with positions."""


def wrong(case: RuleCase, graph: StepGraph, strategy: Strategy, expected: dict[str, np.ndarray]) -> str | None:
    """How the ranks' results differ from the serial ones under a strategy; None if they do not."""
    parts = [local_results(case, graph, strategy, rank) for rank in range(graph.ranks)]
    for i, sharding in enumerate(strategy.outputs):
        rows = case.inputs[0].shape[0] if case.inputs[0] is not None and case.inputs[0].ndim else 0
        got = combined([results[i] for results in parts], sharding, rows)
        want = expected[f"y{i}"]
        if got.shape != want.shape or got.dtype != want.dtype:
            return f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
        tolerance = 1e-5 if want.dtype == np.float32 else 1e-11
        if not np.allclose(got.astype(float), want.astype(float), rtol=tolerance, atol=tolerance):
            return f"{np.abs(got.astype(float) - want.astype(float)).max()} apart"
    return None


@pytest.mark.parametrize("op_type", sorted({case.op_type for case in CASES}))
def test_every_strategy_of_every_rule_gives_the_serial_result(op_type: str) -> None:
    tried = 0
    for number, case in enumerate(CASES):
        for ranks in RANKS if case.op_type == op_type else ():
            graph = graph_of(network_of(case)[0], ranks)
            for strategy in graph.strategies["node"]:
                if LOCAL not in strategy.inputs:  # else meaningless alone: LeNet's gradient has such nodes
                    assert wrong(case, graph, strategy, serial(number)) is None, (number, ranks, strategy)
                    tried += 1
    assert tried >= len(RANKS)


def test_sixty_operators_have_rules_that_divide_their_work() -> None:
    divided = set()
    for case in CASES:
        graph = graph_of(network_of(case)[0], 2)
        if any(strategy.work for strategy in graph.strategies["node"]):
            divided.add(case.op_type)
    assert len(divided) >= 100, sorted(divided)
    assert len(SHARDING_RULES) >= len(divided)


FALSE_RULES = {
    "Abs": Factors([["a", "b", "c"]], [["a", "b", "c"]], linear=[frozenset({0})]),
    "Softmax": Factors([["a", "b", "c"]], [["a", "b", "c"]]),
    "Gemm": Factors([["m", "k"], ["k", "n"], ["n"]], [["m", "n"]], {"k": "sum"}),
    "ReduceMean": Factors([["a", "b", "c"], [None, None]], [["a", None, None]], {"b": "sum", "c": "sum"}),
    "Mul": Factors([["a", "b", "c"], ["b", None]], [["a", "b", "c"]], linear=[frozenset({0, 1})]),
    "Split": Factors([["a", "b", "c"], [None]], [["a", "b", "c"]] * 2),
}


@pytest.mark.parametrize("op_type", FALSE_RULES)
def test_false_rules_are_refuted(op_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHARDING_RULES, op_type, lambda view: FALSE_RULES[op_type])
    number = next(i for i, case in enumerate(CASES) if case.op_type == op_type)
    refuted = 0
    for ranks in RANKS:
        graph = graph_of(network_of(CASES[number])[0], ranks)
        for strategy in graph.strategies["node"]:
            try:
                refuted += wrong(CASES[number], graph, strategy, serial(number)) is not None
            except Deep500Error:  # shapes that do not fit
                refuted += 1
    assert refuted


def test_an_operator_has_one_rule() -> None:
    with pytest.raises(ValueError, match="got a second rule of Relu"):
        sharding_rule("Relu")(lambda view: None)
