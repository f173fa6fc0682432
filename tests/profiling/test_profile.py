"""Profiles of steps in every backend: the network's own names, what adds up to the step, and who computed what."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from deep500.errors import InputError, UnsupportedOperator
from deep500.networks import Network, add_loss, create
from deep500.networks.execution.capabilities import step_profiler
from deep500.networks.execution.inputs import make_inputs
from deep500.networks.execution.step_profile import Kernel, KernelPlace, Places, ProfiledStep, held_by
from deep500.networks.node import Node
from deep500.profiling import FrameworkProfile, Profile, profile_network
from deep500.profiling.profile import covered, in_rows
from deep500.profiling.work import Work, node_work
from tests.tolerances import as_numpy

CHOICES = {"onnxruntime": {"optimization": "disabled"}, "pytorch": {"recognise": False}}
BATCH = 4


def network() -> Network:
    """Convolution, normalization, activation, residual sum, pooling, a dense layer and a loss."""
    return add_loss(create("resnet", depth=8))


def profile(backend: ModuleType, net: Network, loss: str | None = "loss", **choices: Any) -> Profile:
    make = {backend.__name__.rpartition(".")[2]: lambda network: backend.from_model(network, **choices)}
    return profile_network(net, make_inputs(net, BATCH), make, loss=loss, steps=1)


@pytest.mark.parametrize("loss", ["loss", None])
def test_every_node_has_a_row_and_all_rows_make_the_step(
    backend: ModuleType, backend_name: str, loss: str | None
) -> None:
    net = network()
    result = profile(backend, net, loss, **CHOICES.get(backend_name, {}))
    (found,) = result.frameworks
    assert [row.name for row in result.rows] == [node.name for node in net.nodes]
    forward = {place.node for place in found.cells if place.phase == "forward"}
    assert forward | set(found.fused) == {node.name for node in net.nodes}
    passed = {node.name for node in net.nodes} - {"loss"} if loss else set()
    passed -= {name for name in passed if name.endswith(("add", "flatten"))}  # whose gradient is that of its result
    backward = {place.node for place in found.cells if place.phase == "backward"}
    backward |= {name for k in found.step.kernels if k.place and k.place.phase == "backward" for name in k.holds}
    assert backward >= passed
    nodes = covered(kernel for kernel in found.step.kernels if kernel.place)
    assert nodes + sum(found.outside.values()) == pytest.approx(found.step.seconds, rel=1e-6)
    assert all(seconds >= 0 for seconds in found.outside.values()) and found.plain > 0
    assert found.explained == nodes / found.step.seconds


def test_kernels_of_one_thread_do_not_overlap_and_lie_in_the_step(backend: ModuleType, backend_name: str) -> None:
    step = profile(backend, network()).frameworks[0].step
    for lane in {kernel.lane for kernel in step.kernels}:
        spans = [(k.start, k.start + k.seconds) for k in step.kernels if k.lane == lane]
        assert spans == sorted(spans) and spans[0][0] >= 0 and spans[-1][1] <= step.seconds * 1.001
        assert all(after[0] >= before[1] - 2e-6 for before, after in pairwise(spans))  # rounded


@pytest.mark.parametrize("loss", ["loss", None])
def test_operations_are_those_of_the_network(loss: str | None) -> None:
    for net in (network(), create("lstm") if loss is None else add_loss(create("unet"))):
        work, outside = node_work(net, make_inputs(net, BATCH), loss)
        counts = [part.flops for part in work.values()]
        expected = net.flops(BATCH, loss).total
        assert expected is not None and sum(count or 0 for count in counts) + (outside or 0) == expected


def test_bytes_of_a_node() -> None:
    net = Network("n")
    net.add_input("x", ("N", 3))
    net.add_parameter("w", np.ones((3, 5), "float32"))
    net.add_node("MatMul", ["x", "w"], ["y"], name="product")
    net.add_node("ReduceSum", ["y"], ["loss"], name="loss", keepdims=0)
    net.add_output("loss")
    work, _ = node_work(net, {"x": np.ones((8, 3), "float32")}, "loss")
    moved = 4 * (8 * 3 + 3 * 5 + 8 * 5)
    assert work["product", "forward"] == Work(2 * 8 * 3 * 5, moved)
    assert work["product", "backward"].bytes == moved + 4 * (8 * 3 + 3 * 5)


def test_a_profiled_step_is_a_step(backend: ModuleType, backend_name: str) -> None:
    net = network()
    inputs = make_inputs(net, BATCH)
    plain, watched = backend.from_model(net), backend.from_model(net)
    profiler = step_profiler(watched, "loss")
    assert profiler is not None
    plain.inference_and_backprop(inputs)
    for _ in range({"pytorch": 2, "tensorflow": 1}.get(backend_name, 0)):  # more steps that the first call runs
        plain.inference_and_backprop(inputs)
    profiler.step(inputs)
    names = [name for pair in net.gradient("loss") for name in pair] + ["bn1.running_mean"]
    got, want = (executor.network.fetch_tensors(names) for executor in (watched, plain))
    for name, value, expected in zip(names, got, want, strict=True):
        np.testing.assert_allclose(as_numpy(value), as_numpy(expected), 1e-4, 1e-5, err_msg=name)
    assert len(profiler.finish()) == 1
    watched.inference_and_backprop(inputs)  # and it still runs as before


ORACLE = {  # backend: what its framework calls a node's kernels, by operator: forward, backward
    "reference": ({op: {op} for op in ("Conv", "Relu", "Gemm")}, {}),
    "onnxruntime": ({op: {op} for op in ("Conv", "Relu", "Gemm")}, {}),
    "tensorflow": (
        {"Conv": {"Conv2D"}, "Relu": {"Relu"}, "Gemm": {"MatMul"}},
        {"Conv": {"Conv2DBackpropFilter"}, "Relu": {"ReluGrad"}, "BatchNormalization": {"BatchNormGradV3"}},
    ),
    "jax": ({}, {}),  # XLA's instructions: below
    "pytorch": ({}, {"Conv": {"ConvolutionBackward0"}, "Relu": {"ReluBackward0"}, "Gemm": {"AddmmBackward0"}}),
}


@pytest.mark.slow
def test_kernels_are_those_of_their_nodes(backend: ModuleType, backend_name: str) -> None:
    net = network()
    operators = {node.name: node.op_type for node in net.nodes}
    seen: dict[tuple[str, str], set[str]] = {}
    for kernel in profile(backend, net, **CHOICES.get(backend_name, {})).frameworks[0].step.kernels:
        if kernel.place is None:
            assert backend_name in ("tensorflow", "jax"), kernel
            continue
        seen.setdefault((operators[kernel.place.node], kernel.place.phase), set()).add(
            re.sub("^_?(Mkl)?(Native)?(Fused)?", "", kernel.name.split()[0])  # as a CPU has kernels
        )
    for phase, names in zip(("forward", "backward"), ORACLE[backend_name], strict=True):
        for operator, expected in names.items():
            assert seen[operator, phase] >= expected
            others = {name for kinds in names.values() for name in kinds} - expected
            assert not seen[operator, phase] & others


COUNTS = ("reference", "pytorch", "onnxruntime")


def test_results_take_the_memory_that_they_have(backend: ModuleType, backend_name: str) -> None:
    net = network()
    cells = profile(backend, net, None, **CHOICES.get(backend_name, {})).frameworks[0].cells
    size = 4 * BATCH * 16 * 32 * 32
    memory = cells[KernelPlace("conv1", "forward")].memory
    if backend_name not in COUNTS:
        assert memory is None
        return
    assert memory is not None and size <= memory < 1.1 * size + 4096


@pytest.mark.backend("onnxruntime")
def test_a_fused_kernel_stands_with_the_node_that_has_most_operations() -> None:
    from deep500.frameworks import onnxruntime

    net = create("squeezenet")
    found = profile(onnxruntime, net, None).frameworks[0]
    operators = {node.name: node.op_type for node in net.nodes}
    holders = Counter((operators[node], operators[holder]) for node, holder in found.fused.items())
    assert holders["Relu", "Conv"] > 20, holders  # ONNX Runtime runs an activation inside of its convolution
    assert not any(KernelPlace(node, "forward") in found.cells for node in found.fused)


NODES = [
    Node("Conv", ("x", "w"), ("c",), "conv"),
    Node("Relu", ("c",), ("r",), "relu"),
    Node("Exp", ("r",), ("e",), "exp"),
    Node("Neg", ("r",), ("unread",), "neg"),
]


def test_what_no_kernel_computes_is_held_by_its_first_reader_or_as_the_framework_says() -> None:
    kernels = [Kernel("k", 0.0, 1.0, KernelPlace("exp", "forward"))]
    assert held_by(NODES, kernels) == {"conv": "exp", "relu": "exp"}
    stated = [Kernel("k", 0.0, 1.0, KernelPlace("exp", "forward"), ("neg",))]
    assert held_by(NODES, stated) == {"conv": "exp", "relu": "exp", "neg": "exp"}
    work = {(node.name, "forward"): Work(7 if node.name == "conv" else 1, 1) for node in NODES}
    step, fused = in_rows(ProfiledStep(1.0, None, tuple(kernels)), NODES, work)
    assert step.kernels[0].place == KernelPlace("conv", "forward") and fused == {"exp": "conv", "relu": "conv"}


def test_places_by_values_names_and_what_is_read() -> None:
    places = Places(NODES)
    assert places.find("x", ["nothing"], ["r"]) == KernelPlace("relu", "forward")
    assert places.find("x", ["nothing"], ["grad/relu/Mul"]) == KernelPlace("relu", "backward")
    assert places.find("x", ["nothing"], ["grad/r/Sum"]) == KernelPlace("relu", "backward")  # a sum of gradients of r
    assert places.find("x", ["nothing"], ["exp/inner/Mul"]) == KernelPlace("exp", "forward")
    assert places.find("x", ["nothing", "e"], ["other"]) == KernelPlace("exp", "forward")
    assert places.find("x", ["nothing"], ["other"]) is None
    first, second = places.learn([("turn", ["x"], ["turned"]), ("fused", ["turned"], ["r"])])
    assert first == second == KernelPlace("relu", "forward")


def test_time_is_counted_once() -> None:
    kernels = (
        Kernel("a", 0.1, 0.4, KernelPlace("conv", "forward")),
        Kernel("b", 0.3, 0.4, KernelPlace("relu", "forward"), lane=1),
        Kernel("c", 0.8, 0.1),
    )
    found = FrameworkProfile("f", "1", 1.0, None, ProfiledStep(1.0, 0.95, kernels))  # type: ignore[arg-type]
    assert found.explained == pytest.approx(0.6)
    expected = {"(kernels of no node)": 0.1, "(between kernels)": 0.25, "(Deep500)": 0.05}
    assert found.outside == pytest.approx(expected)


def test_bad_input(backend: ModuleType, backend_name: str) -> None:
    net = network()
    with pytest.raises(InputError, match="at least one"):
        profile_network(net, make_inputs(net, 1), {"x": backend.from_model}, steps=0)
    choice = {"pytorch": "compile", "tensorflow": "jit_compile"}.get(backend_name)
    if choice is not None:
        with pytest.raises(UnsupportedOperator, match=f"{choice}=True"):
            step_profiler(backend.from_model(net, **{choice: True}), "loss")


MODULE = """
HloModule jit_goal

%fused (p.0: f32[2]) -> f32[2] {
  %p.0 = f32[2]{0} parameter(0)
  %mul.1 = f32[2]{0} multiply(%p.0, %p.0), metadata={op_name="jit(goal)/jvp(node:a%2Fb)/mul"}
  ROOT %exp.1 = f32[2]{0} exponential(%mul.1), metadata={op_name="jit(goal)/jvp(node:exp)/exp"}
}

ENTRY %main.1 (x: f32[2]) -> f32[2] {
  %x = f32[2]{0} parameter(0)
  %copy.0 = f32[2]{0} copy(%x)
  %fusion.1 = f32[2]{0} fusion(%copy.0), kind=kLoop, calls=%fused
  %neg.1 = f32[2]{0} negate(%fusion.1), metadata={op_name="jit(goal)/transpose(jvp(node:a%2Fb))/neg"}
  ROOT %copy.2 = f32[2]{0} copy(%neg.1)
}
"""


@pytest.mark.backend("jax")
def test_instructions_belong_to_the_nodes_whose_scopes_they_have() -> None:
    from deep500.frameworks.jax.profiling import Module

    places = Places([Node("Mul", ("x", "x"), ("m",), "a/b"), Node("Exp", ("m",), ("y",), "exp")])
    module = Module(MODULE, places).instructions
    assert {name: instruction.place for name, instruction in module.items()} == {
        "p.0": KernelPlace("a/b", "forward"),
        "mul.1": KernelPlace("a/b", "forward"),
        "exp.1": KernelPlace("exp", "forward"),
        "x": KernelPlace("a/b", "forward"),
        "copy.0": KernelPlace("a/b", "forward"),  # of what reads it, inside of the fusion
        "fusion.1": KernelPlace("exp", "forward"),  # of its root
        "neg.1": KernelPlace("a/b", "backward"),
        "copy.2": KernelPlace("a/b", "backward"),
    }
    assert module["fusion.1"].holds == ("a/b",)


@pytest.mark.backend("jax")
def test_each_convolution_of_a_step_is_its_node_s() -> None:
    """XLA replaces convolutions of gradients and drops their scopes: still, each node has one forward, two backward."""
    from deep500.frameworks import jax
    from deep500.frameworks.jax.profiling import StepProfiler

    net = network()
    profiler = StepProfiler(jax.from_model(net), "loss")
    profiler.step(make_inputs(net, BATCH))
    convolutions: Counter[KernelPlace | None] = Counter()
    text = profiler.text.partition("\nENTRY ")
    inner = dict(re.findall(r"^%(\S+) \([^\n]*\{\n(.*?)^}", text[0], re.M | re.S))
    for line in text[2].splitlines():
        calls = re.search(r"calls=%([\w.-]+)", line)
        name = re.match(r"\s*(?:ROOT )?%([\w.-]+) =", line)
        if name and (" convolution(" in line or (calls and " convolution(" in inner[calls[1]])):
            convolutions[profiler.instructions[name[1]].place] += 1
    nodes = [node.name for node in net.nodes if node.op_type == "Conv"]
    forward = {KernelPlace(name, "forward"): 1 for name in nodes}
    assert convolutions == {**forward, **{KernelPlace(n, "backward"): 1 if n == "conv1" else 2 for n in nodes}}


@pytest.mark.backend("tensorflow")
def test_names_that_tensorflow_writes_alike_stay_apart() -> None:
    from deep500.frameworks import tensorflow

    net = Network("alike")
    net.add_input("x", ("N", 8))
    for name, read in (("a:b", "x"), ("a_b", "a:b"), ("A_b", "a_b")):
        net.add_parameter(f"{name}.w", np.ones((8, 8), "float32"))
        net.add_node("MatMul", [read, f"{name}.w"], [name], name=name)
    net.add_node("ReduceSum", ["A_b"], ["loss"], name="loss", keepdims=0)
    net.add_output("loss")
    found = profile(tensorflow, net).frameworks[0]
    assert {place.node for place in found.cells if place.phase == "forward"} >= {"a:b", "a_b", "A_b"}
