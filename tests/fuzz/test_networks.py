"""A commit's piece of a hundred generated networks, five thousand every night; and that faults would be found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from deep500.errors import NetworkError
from deep500.networks import Network
from tests.conftest import HANG
from tests.fuzz import network_worker, networks
from tests.fuzz.network_bare import Arrays, Outcome, bare
from tests.fuzz.network_judge import Finding, differs, judge_plain, judge_slopes, judge_trained
from tests.fuzz.network_reduce import describe, reduce
from tests.fuzz.operators import RULES, operator_case

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def fuzz(*words: str, timeout: float) -> None:
    command = [sys.executable, "-m", "tests.fuzz.networks", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=timeout, check=False)
    assert done.returncode == 0 and "findings: none" in done.stdout, done.stdout[-6000:] + done.stderr[-2000:]


@pytest.mark.backend("pytorch", "onnxruntime", "tensorflow", "jax")
def test_a_hundred_generated_networks(numbers: Callable[[int], range]) -> None:
    pytest.importorskip("nnsmith")
    some = numbers(100)
    fuzz("--count", str(len(some)), "--from", str(some.start), "--seed", "1", timeout=HANG)


@pytest.mark.backend("pytorch", "onnxruntime", "tensorflow", "jax")
def test_every_operator_as_its_schema_has_it(numbers: Callable[[int], range]) -> None:
    some = numbers(len(RULES))
    fuzz("--operators", "--count", str(len(some)), "--from", str(some.start), "--seed", "1", timeout=HANG)


@pytest.mark.long
@pytest.mark.backend("pytorch", "onnxruntime", "tensorflow", "jax")
def test_five_thousand_drawn_operators() -> None:
    fuzz("--operators", "--count", "5000", "--seed", "2", timeout=12 * 3600)


@pytest.mark.filterwarnings("ignore")
def test_the_reference_agrees_with_other_runtimes_on_every_operator() -> None:
    """Without the frameworks, in one process: all that is drawn, by kernels and by files of old opsets."""
    wrong = []
    for number in range(4 * len(RULES)):
        case = operator_case("", 4, number)
        answer = network_worker.plain("reference", case.model, case.feeds)
        found = judge_plain(
            bare(case.model, case.feeds),
            {"reference": answer},
            networks.coarsest(case.model, case.feeds),
            lambda noise, training, case=case: network_worker.trust(case.model, case.feeds, 0, noise, training),
            lambda case=case: network_worker.undefined(case.model, case.feeds),
        )
        wrong += [f"{number}: {finding} after{case.words}" for finding in found]
    assert not wrong, "\n".join(wrong)


@pytest.mark.filterwarnings("ignore")
def test_what_is_written_for_old_opsets_is_the_same_or_refused() -> None:
    """In ONNX Runtime, which runs both; and what is known of a result before it is there is true."""
    wrong, count = [], Counter[str]()
    for number in range(2 * len(RULES)):
        case = operator_case("", 6, number)
        session = bare(case.model, case.feeds)
        try:
            network = Network.from_onnx(case.model, trainable=())
            files = [network.to_onnx(opset=opset).SerializeToString() for opset in (13, 17)]
        except NetworkError:
            count["refused"] += 1
            continue
        described = network.descriptors()
        for name, value in session.outputs.items():
            if network_worker.undefined(case.model, case.feeds):
                continue
            sizes = zip(described[name].shape or value.shape, value.shape, strict=True)
            same = all(isinstance(known, str | None) or known == size for known, size in sizes)
            if described[name].dtype != value.dtype.name or not same:
                wrong.append(f"{number}: {described[name]} for {value.dtype}{value.shape} after{case.words}")
        for other in [bare(file, case.feeds) for file in files] if not session.text else []:
            if other.text:
                continue
            for name, value in session.outputs.items():
                slack = 1e-2 if value.dtype == np.float16 else 1e-4
                text = differs(other.outputs[name], value, None, slack)
                wrong += [f"{number}: {text} after{case.words}"] if text else []
                count["right"] += not text
    assert not wrong and count["right"] > 4 * count["refused"], "\n".join([*wrong, str(count)])


LEFT_OUT = {
    ("BatchNormalization", "spatial"),  # of opset 7, without a meaning that anybody built
    *((name, option) for name in ("Cast", "CastLike") for option in ("round_mode", "saturate")),  # of 8 bits
    *(("QuantizeLinear", option) for option in ("output_dtype", "precision", "saturate")),  # the same
    ("DequantizeLinear", "output_dtype"),
    *((f"{kind}Normalization", "stash_type") for kind in ("Group", "Layer", "RMS")),  # how 16 bits are added up
    ("Attention", "softmax_precision"),  # the same
}
"""Attributes of which nothing is drawn."""


def test_drawn_operators_use_all_that_their_schemas_have() -> None:
    """Attributes that no rule ever sets would be checked by nobody."""
    drawn, there = set[tuple[str, str]](), set[tuple[str, str]]()
    for number in range(20 * len(RULES)):
        proto = onnx.load_model_from_string(operator_case("", 3, number).model)
        node, opset = proto.graph.node[0], proto.opset_import[0].version
        there |= {(node.op_type, name) for name in onnx.defs.get_schema(node.op_type, opset, "").attributes}
        drawn |= {(node.op_type, attribute.name) for attribute in node.attribute}
    assert there - drawn == LEFT_OUT


@pytest.mark.long
@pytest.mark.backend("pytorch", "onnxruntime", "tensorflow", "jax")
def test_five_thousand_generated_networks() -> None:
    pytest.importorskip("nnsmith")
    fuzz("--count", "5000", "--seed", "2", timeout=12 * 3600)


def model() -> tuple[bytes, Arrays]:
    """Seven nodes, of which Floor is to be found."""
    rng = np.random.default_rng(0)
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3]) for name in "xy")
    nodes = [
        ("Sin", "x", "a"),
        ("Neg", "a", "b"),
        ("Floor", "b", "c"),
        ("Cos", "c", "d"),
        ("Abs", "d", "e"),
        ("Neg", "e", "y"),
    ]
    made = [helper.make_node(kind, [read], [written]) for kind, read, written in nodes]
    graph = helper.make_graph(made, "g", [x], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return proto.SerializeToString(), {"x": rng.normal(size=(2, 3)).astype(np.float32)}


class Planted:
    """In place of a bench: finds fault with every graph that has a Floor."""

    class helper:
        @staticmethod
        def ask(function: str, model: bytes, feeds: Arrays) -> Outcome:
            from tests.fuzz import network_worker

            return network_worker.FUNCTIONS[function](model, feeds)

    def findings(self, model: bytes, feeds: Arrays, seed: int, count: Any = None, only: str = "") -> list[Finding]:
        assert bare(model, feeds).how == "ran"
        graph = onnx.load_model_from_string(model).graph
        return [Finding("forward:x", "")] if any(node.op_type == "Floor" for node in graph.node) else []


def test_a_graph_is_reduced_to_the_node_that_is_wrong() -> None:
    bench: Any = Planted()
    small, feeds = reduce(bench, *model(), 0, "forward:x")
    assert [node.op_type for node in onnx.load_model_from_string(small).graph.node] == ["Floor"]
    assert "Floor" in describe(small, feeds) and len(feeds) == 1


def answer(**outputs: Any) -> Outcome:
    return Outcome("ran", "", {name: np.asarray(value, np.float32) for name, value in outputs.items()})


def test_differences_are_findings_where_nothing_moves() -> None:
    """The second output moves when it is disturbed, the third depends on what ONNX leaves open."""
    right, wrong = answer(a=[1, 2], b=[3, 4], c=[5]), answer(a=[1, 2.5], b=[3, 5], c=[7])
    known = Outcome("ran", "", {n: np.array([v, np.zeros_like(v)]) for n, v in right.outputs.items()})
    known.outputs["b"][1] = [0, 1]

    def found(outcome: Outcome) -> list[str]:
        answers = {"reference": right, "jax": outcome}
        return [f.kind for f in judge_plain(right, answers, "float32", lambda *_: known, lambda: {"c": "open"})]

    assert found(right) == [] and found(wrong) == ["forward:jax"]
    assert found(answer(a=[1, 2], b=[3, 5], c=[7])) == []
    assert found(Outcome("raw", "KeyError: 8")) == ["raw error:jax:KeyError"]
    assert found(answer(a=[[1, 2]], b=[3, 4], c=[5])) == ["forward:jax"]


def test_gradients_are_compared() -> None:
    base = Outcome("ran", "", {}, {"w": np.array([1.0, 2.0])})
    other = Outcome("ran", "", {}, {"w": np.array([1.0, 2.0 + 1e-6])})
    known = Outcome("ran", "", {}, {"w": np.array([[1.0, 2.0], [0, 0]])})
    kinds = [f.kind for f in judge_trained({"reference": base, "jax": other}, lambda *_: known, dict, lambda: True)]
    assert kinds == ["gradient:jax"]


def test_slopes_are_compared_except_at_kinks() -> None:
    errors, smooth, bent = [0, 1e-12, 1e-11, 1e-10, 1e-9], [0, 1e-4, 1e-5, 1e-6, 1e-7], [0, 2, 2, 2, 2]
    rows = {
        "right": ([2, 2, 2, 2, 2], smooth),
        "wrong": ([3, 2, 2, 2, 2], smooth),
        "kink beside": ([3, 2.4, 2.1, 2.6, 1.7], smooth),
        "kink": ([3, 2, 2, 2, 2], bent),
        "beyond both sides": ([3.2, 2, 2, 2, 2], bent),
    }
    found = judge_slopes(
        Outcome("ran", "", {n: np.array([row, errors, bends], float) for n, (row, bends) in rows.items()})
    )
    assert [finding.text.partition(":")[0] for finding in found] == ["wrong", "beyond both sides"]


@pytest.mark.parametrize(("value", "count"), [(-1.0, 0), (2.0, 1), (-0.0, 2)])
def test_kinks_that_meet_are_counted(value: float, count: int) -> None:
    """Min(x, Abs(x)) is x: at 0 both bend, and no difference shows it."""
    from tests.fuzz.network_worker import kinks

    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, [1]) for name in "xy")
    nodes = [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Min", ["x", "a"], ["y"])]
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=[helper.make_opsetid("", 18)])
    assert kinks(model.SerializeToString(), {"x": np.array([value])}, 0) == count


def test_a_number_is_always_the_same_model() -> None:
    pytest.importorskip("nnsmith")
    pytest.importorskip("torch")
    script = "from tests.fuzz.network_models import case; print([hash(case(3, number).model) for number in range(6)])"
    command = [sys.executable, "-W", "ignore", "-c", script]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    runs = [
        subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT, check=True).stdout
        for _ in range(2)
    ]
    assert runs[0] == runs[1] and "[" in runs[0]


def test_ties_that_rounding_makes_move_in_the_rounded_run() -> None:
    """In float16 60.01 is 60, whose floor is not smaller; disturbed values are never whole."""
    from tests.fuzz.network_judge import ROUNDING
    from tests.fuzz.network_worker import trust

    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT16, [2])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.BOOL, [2])
    nodes = [
        helper.make_node("Tan", ["x"], ["t"]),
        helper.make_node("Floor", ["t"], ["f"]),
        helper.make_node("Greater", ["t", "f"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "ties", [x], [y])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()
    feeds = {"x": next(a for a in np.linspace(1.5, 1.57, 999).astype("float16")[:, None] if _rounds_to_whole(a))}
    feeds = {"x": np.repeat(feeds["x"], 2)}
    known = trust(data, feeds, 0, ROUNDING["float16"], False)
    assert known.how == "ran", known.text
    base, moved = known.outputs["y"]
    assert base.all() and moved.all()


def _rounds_to_whole(x: np.ndarray) -> bool:
    t = np.tan(x.astype("float64"))
    return bool(t != np.floor(t) and t.astype("float16") == np.floor(t))


def test_every_tie_within_the_noise_is_met() -> None:
    from tests.fuzz.network_judge import ROUNDING
    from tests.fuzz.network_worker import trust

    noise = ROUNDING["float64"]
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, [999]) for name in "xy")
    nodes = [helper.make_node("Identity", ["x"], ["t"]), helper.make_node("Ceil", ["t"], ["y"])]
    graph = helper.make_graph(nodes, "ties", [x], [y])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()
    known = trust(data, {"x": np.full(999, 1 - noise / 2)}, 0, noise, True)
    assert known.how == "ran" and known.outputs["y"][1].all(), known.text


def test_slopes_at_nan_are_open() -> None:
    from tests.fuzz.network_worker import undefined

    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("PRelu", ["x", "x"], ["y"])], "open", [x], [y])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()
    assert undefined(data, {"x": np.array([np.nan], np.float32)}) == {"y": "slope at NaN"}
    assert undefined(data, {"x": np.array([1], np.float32)}) == {}


def test_a_process_that_dies_is_asked_again() -> None:
    from tests.fuzz.networks import Worker

    class Dying(Worker):
        """Dies at the first question."""

        def send(self, function: str, *arguments: Any) -> None:
            super().send(function, *arguments)
            if not self.deaths:
                self.process.kill()
                self.process.join()

    worker = Dying()
    try:
        assert worker.ask("case", 1, 0).model and worker.deaths == 1
    finally:
        worker.close()
