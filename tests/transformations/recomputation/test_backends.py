"""One plan file on every backend: the same gradients everywhere, and operators with state run once."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500.networks import Network, add_loss, create
from deep500.networks.dtype import to_dtype
from deep500.transformations.recomputation import load_plan, plan_network
from tests.conftest import load_backend
from tests.tolerances import as_numpy, assert_close
from tests.transformations.recomputation.test_execution import everything_again
from tests.transformations.recomputation.test_rewriting import NETWORKS, inputs_of

pytestmark = pytest.mark.slow

BACKENDS = ("reference", "pytorch", "tensorflow", "jax", "onnxruntime")


def step(executor: Any, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs, gradients, parameters and statistics of two steps, the second one's draws included."""
    executor.reseed(3)
    executor.inference_and_backprop(inputs)
    outputs = executor.inference_and_backprop(inputs)
    names = [f"{name}.grad" for name in executor.network.get_params()]
    tensors = zip(names, executor.network.fetch_tensors(names), strict=True)
    return {name: as_numpy(value) for name, value in (*outputs.items(), *tensors)} | executor.network.state()


SHARES = {"resnet": 0.8, "transformer": 0.7, "mlp": None}  # None: all that can run again, as a budget finds nothing


def doubled(kind: str, batch: int) -> tuple[Network, dict[str, np.ndarray]]:
    """A network in double precision, where rounding flips no ReLU, and its inputs."""
    single = add_loss(create("mlp")) if kind == "mlp" else NETWORKS[kind][0]()
    net = to_dtype(single, "float64")
    return net, {name: value.astype(net.inputs[name].dtype) for name, value in inputs_of(single, batch).items()}


@pytest.mark.parametrize("name", BACKENDS)
@pytest.mark.parametrize("kind", SHARES)
def test_the_same_plan_file_runs(kind: str, name: str, tmp_path: Path) -> None:
    """A plan that no backend had a part in: gradients are those of the reference without it."""
    batch = 8
    net, inputs = doubled(kind, batch)
    share = SHARES[kind]
    made = everything_again(net, batch) if share is None else plan_network(net, share, batch)
    plan = load_plan(made.save(tmp_path / "plan.json"))
    assert plan.regions and plan.backend == "none"
    gradients = []
    for executor in (load_backend("reference").Executor(net), load_backend(name).Executor(net)):
        executor.set_checkpointing(plan if gradients else None)
        executor.inference_and_backprop(inputs)
        names = [f"{parameter}.grad" for parameter in net.trainable()]
        gradients.append(np.concatenate([as_numpy(g).ravel() for g in executor.network.fetch_tensors(names)]))
    want, got = gradients
    assert np.linalg.norm(got - want) <= 1e-9 * np.linalg.norm(want)


_LONG = {("resnet", "jax")}  # 18 s, as XLA compiles all levels of regions; its U-Net has what it has


@pytest.mark.parametrize(("kind", "name"), [pair for pair in product(NETWORKS, BACKENDS) if pair not in _LONG])
def test_in_double_precision_rounding_is_all_that_differs(kind: str, name: str) -> None:
    """Everything runs again, at all levels: outputs, gradients and statistics are those without a plan to 1e-12."""
    if (kind, name) == ("unet", "onnxruntime"):
        pytest.skip("ONNX Runtime has no Resize of float64")
    batch = NETWORKS[kind][1]
    net, inputs = doubled(kind, batch)
    free, planned = (load_backend(name).Executor(net) for _ in range(2))
    planned.set_checkpointing(everything_again(net, batch))
    want, got = step(free, inputs), step(planned, inputs)
    assert got.keys() == want.keys()
    for value in want:
        assert np.abs(got[value] - want[value]).max() <= 1e-12 * max(float(np.abs(want[value]).max()), 1e-30), value


class Counted(d5.CustomPythonOp):
    """Squares, and counts its calls."""

    calls = 0

    def forward(self, inputs: list[np.ndarray]) -> np.ndarray:
        Counted.calls += 1
        return np.square(inputs[0])

    def backward(self, grads: Any, fwd_inputs: Any, fwd_outputs: Any) -> Any:
        return grads[0] * fwd_outputs[0] / fwd_inputs[0] * 2


KEEPING = ("jax", "tensorflow")  # which keep what any custom operator returned
d5.register_op("PlannedCountedSquare")(Counted)
d5.register_op("PlannedPureSquare", pure=True)(type("Pure", (Counted,), {"__module__": __name__}))


@pytest.mark.parametrize(("operator", "times"), [("PlannedCountedSquare", 1), ("PlannedPureSquare", 2)])
@pytest.mark.parametrize("name", BACKENDS)
def test_a_custom_operator_is_called_again_only_if_it_is_pure(name: str, operator: str, times: int) -> None:
    """It may hold state: what it returned is kept, and its gradient gets that."""
    net = Network("counted")
    net.add_input("x", ("N", 3))
    net.add_parameter("w", np.linspace(0.1, 0.9, 9, dtype="float32").reshape(3, 3))
    net.add_node("MatMul", ["x", "w"], ["a"])
    net.add_node("Tanh", ["a"], ["b"])
    net.add_node(operator, ["b"], ["c"], domain="deep500")
    net.add_node("Exp", ["c"], ["d"])
    net.add_node("Sin", ["d"], ["e"])
    net.add_node("ReduceMean", ["e"], ["loss"], keepdims=0)
    net.add_output("loss")
    inputs = {"x": np.linspace(0.5, 1, 12, dtype="float32").reshape(4, 3)}
    gradients, calls = [], []
    for plan in (None, everything_again(net, 4)):
        executor = load_backend(name).Executor(net)
        executor.set_checkpointing(plan)
        executor.inference_and_backprop(inputs)  # some backends call it once to learn about its outputs
        before = Counted.calls
        executor.inference_and_backprop(inputs)
        gradients.append(as_numpy(executor.network.fetch_tensors(["w.grad"])[0]))
        calls.append(Counted.calls - before)
    assert calls == [1, 1 if name in KEEPING else times]
    assert np.any(gradients[0])
    assert_close(gradients[1], gradients[0], "exact", f"w.grad on {name}")
