"""Checkpointing plans in PyTorch: the same bits in less memory, by both ways, and stages measured for them."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import deep500 as d5  # noqa: E402
import deep500.frameworks.pytorch as d5fw  # noqa: E402
from deep500.errors import InputError, NetworkError, PlanError, UnsupportedOperator  # noqa: E402
from deep500.frameworks.pytorch.memory import footprint  # noqa: E402
from deep500.networks import Network, add_loss, create  # noqa: E402
from deep500.networks.hashing import structure_hash  # noqa: E402
from deep500.training.optimizers import MomentumOptimizer  # noqa: E402
from deep500.transformations.recomputation import CheckpointingPlan, find_regions  # noqa: E402
from deep500.transformations.recomputation.chain import as_plan, innermost_regions, keep_all, plan_chain, simulate_chain  # noqa: E402
from deep500.transformations.recomputation.plan_file import PlannedRegion  # noqa: E402
from deep500.transformations.workshop.recomputation.baselines import every_stage, segmented  # noqa: E402
from tests.tolerances import assert_close  # noqa: E402
from tests.transformations.recomputation.test_execution import everything_again  # noqa: E402
from tests.transformations.recomputation.test_rewriting import NETWORKS, inputs_of  # noqa: E402

pytestmark = pytest.mark.backend("pytorch")
WAYS = ("checkpoint", "explicit")
CASES = {
    **NETWORKS,
    "mixed_resnet": (lambda: add_loss(create("mixed_resnet", width=4, blocks=(1, 2, 1, 1), shape=(3, 16, 16))), 4),
    "wide_resnet": (lambda: add_loss(create("wide_resnet", depth=10, widen_factor=1, shape=(3, 16, 16))), 2),
}


def plan_of(net: Network, batch: int, *regions: tuple[str, ...], loss: str = "loss") -> CheckpointingPlan:
    named = tuple(PlannedRegion(f"region {i}", f"region {i}", values) for i, values in enumerate(regions))
    return CheckpointingPlan(structure_hash(net), batch, loss, "none", named, 0, 0, 0.0, 0.0, "FLOP", "by hand")


class Operations(TorchDispatchMode):
    """Counts the operators that run; to detach a tensor is none."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func not in (torch.ops.aten.detach.default, torch.ops.aten.alias.default)
        return func(*args, **(kwargs or {}))


def train(executor: Any, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All outputs of three steps, the last gradients, and the parameters and statistics in the end."""
    executor.reseed(7)
    optimizer = MomentumOptimizer(executor, "loss", 0.1, 0.9)
    network, trace = executor.network, {}
    for step in range(3):
        trace.update({f"{name} of step {step}": network.to_numpy(v) for name, v in optimizer.step(inputs).items()})
    names = [f"{name}.grad" for name in network.get_params()]
    trace.update(zip(names, map(network.to_numpy, network.fetch_tensors(names)), strict=True))
    return {**trace, **network.state()}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_training_under_a_plan_is_the_same_to_the_bit(name: str, way: str) -> None:
    """With Dropout, and batch normalization whose statistics are updated once; so is training after the plan's end."""
    make, batch = CASES[name]
    net = make()
    inputs = inputs_of(net, batch)
    planned = d5fw.from_model(net, recompute=way)
    planned.set_checkpointing(everything_again(net, batch))
    with Operations() as more:
        got = train(planned, inputs)
    with Operations() as plain:
        want = train(d5fw.from_model(net), inputs)
    assert more.count > plain.count, "something ran again"
    assert want.keys() == got.keys()
    for value in want:
        assert_close(got[value], want[value], "exact", f"{value} of {name}")
    planned.set_checkpointing(None)
    before = planned.network.state()
    free = d5fw.from_model(net)
    free.network.load_state(before)
    for executor in (planned, free):
        executor.reseed(3)
        executor.inference_and_backprop(inputs)
    for value, after in free.network.state().items():
        assert_close(planned.network.state()[value], after, "exact", value)


@pytest.fixture(scope="module")
def measured() -> tuple[Network, dict[str, np.ndarray], Any, Any]:
    """A chain of 20 blocks, a step's inputs, its regions and its stages."""
    net = add_loss(create("mixed_resnet", width=8, shape=(3, 32, 32)))
    inputs, regions = inputs_of(net, 8), find_regions(net, 8)
    executor = d5fw.from_model(net)
    before, generator = executor.network.state(), torch.get_rng_state()
    chain = executor.measure_stages([region.values for region in innermost_regions(regions)], inputs, passes=1)
    for name, value in executor.network.state().items():
        assert_close(value, before[name], "exact", f"{name} after measuring")
    assert torch.equal(generator, torch.get_rng_state())
    assert all(tensor.grad is None for tensor in executor.module.parameters())
    return net, inputs, regions, chain


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("share", [0.9, 0.7, 0.5, 0.4])
def test_the_allocator_finds_the_predicted_peak_and_it_is_within_the_budget(
    share: float, way: str, measured: tuple[Network, dict[str, np.ndarray], Any, Any]
) -> None:
    net, inputs, regions, chain = measured
    plan = plan_chain(net, 8, regions, chain, share, "pytorch")
    executor = d5fw.from_model(net, recompute=way)
    full = executor.step_memory(inputs)
    assert full == pytest.approx(simulate_chain(chain, keep_all(chain)).peak, rel=0.005)
    executor.set_checkpointing(plan)
    peak = executor.step_memory(inputs)
    assert peak == pytest.approx(plan.predicted_peak, rel=0.01 if way == "explicit" else 0.05)
    assert peak <= plan.budget <= share * full * 1.005
    assert (plan.backend, plan.time_unit, plan.batch) == ("pytorch", "s", 8)


@pytest.mark.parametrize("placement", [segmented, every_stage])
def test_other_placements_are_predicted_as_well(
    placement: Any, measured: tuple[Network, dict[str, np.ndarray], Any, Any]
) -> None:
    net, inputs, regions, chain = measured
    plan = as_plan(net, 8, regions, placement(chain), 10**9, "pytorch")
    executor = d5fw.from_model(net, recompute="explicit")
    executor.set_checkpointing(plan)
    assert executor.step_memory(inputs) == pytest.approx(plan.predicted_peak, rel=0.01)
    with pytest.raises(PlanError, match="expected the last of 20 stages"):
        as_plan(net, 8, regions, placement(chain[:-1]), 10**9, "pytorch")


@pytest.mark.parametrize("way", WAYS)
def test_every_gradient_is_reported_once_and_complete(way: str) -> None:
    """Also that of a parameter which two regions share."""
    net = Network("shared")
    net.add_input("x", ("N", 4))
    net.add_parameter("w", np.random.default_rng(0).standard_normal((4, 4)).astype("float32") / 2)
    net.add_parameter("v", np.ones((4, 4), "float32"))
    for i, (source, weight) in enumerate([("x", "w"), ("t0", "v"), ("t1", "w"), ("t2", "w")]):
        net.add_node("MatMul", [source, weight], [f"p{i}"])
        net.add_node("Tanh", [f"p{i}"], [f"t{i}"])
    net.add_node("ReduceMean", ["t3"], ["loss"], keepdims=0)
    net.add_output("loss")
    inputs = {"x": np.random.default_rng(1).standard_normal((2, 4)).astype("float32")}
    seen: dict[str, list[np.ndarray]] = {}
    for executor in (d5fw.from_model(net), d5fw.from_model(net, recompute=way)):
        if seen:
            executor.set_checkpointing(plan_of(net, 2, ("p0", "t0", "p1", "t1"), ("p2", "t2"), ("p1", "t1")))
        executor.watch_gradients(lambda name, gradient: seen.setdefault(name, []).append(gradient.numpy().copy()))
        executor.inference_and_backprop(inputs)
        for name, gradient in zip("wv", executor.network.fetch_tensors(["w.grad", "v.grad"]), strict=True):
            assert_close(seen[name][-1], gradient.numpy(), "exact")
    for name, gradients in seen.items():
        assert len(gradients) == 2, f"{name}: once without and once with the plan"
        assert_close(gradients[1], gradients[0], "exact", name)


@d5.register_op("TestCountedCalls")
class CountedCalls(d5.CustomPythonOp):
    """Twice its input; counts its calls, as an operator with state does."""

    calls = 0

    def forward(self, inputs: Any) -> Any:
        type(self).calls += 1
        return 2 * inputs[0]

    def backward(self, grads: Any, fwd_inputs: Any, fwd_outputs: Any) -> Any:
        return 2 * grads[0]


@pytest.mark.parametrize("way", WAYS)
def test_custom_operators_never_run_again(way: str) -> None:
    net = Network("counted")
    net.add_input("x", ("N", 3))
    net.add_parameter("w", np.full(3, 0.5, "float32"))
    net.add_node("Mul", ["x", "w"], ["a"])
    net.add_node("Exp", ["a"], ["b"])
    net.add_node("TestCountedCalls", ["b"], ["c"], domain="deep500")
    net.add_node("Tanh", ["c"], ["d"])
    net.add_node("Exp", ["d"], ["e"])
    net.add_node("ReduceSum", ["e"], ["loss"], keepdims=0)
    net.add_output("loss")
    inputs = {"x": np.ones((2, 3), "float32")}
    free, planned = d5fw.from_model(net), d5fw.from_model(net, recompute=way)
    planned.set_checkpointing(plan_of(net, 2, ("a", "b", "c", "d", "e")))
    free.inference_and_backprop(inputs)
    CountedCalls.calls = 0
    planned.inference_and_backprop(inputs)
    assert CountedCalls.calls == 1
    (want,), (got,) = (e.network.fetch_tensors(["w.grad"]) for e in (free, planned))
    assert_close(got.numpy(), want.numpy(), "exact")


@pytest.mark.parametrize("way", WAYS)
def test_errors_in_a_region_name_the_node(way: str) -> None:
    net = Network("broken")
    net.add_input("x", ("N", 3))
    net.add_input("z", ("M", 3))
    net.add_parameter("w", np.ones(3, "float32"))
    net.add_node("Mul", ["x", "w"], ["a"])
    net.add_node("Add", ["a", "z"], ["b"], name="culprit")
    net.add_node("ReduceSum", ["b"], ["loss"], keepdims=0)
    net.add_output("loss")
    executor = d5fw.from_model(net, recompute=way)
    executor.set_checkpointing(plan_of(net, 4, ("a", "b")))
    torch_check = executor._check_planned
    executor._check_planned = lambda inputs, loss: None  # the batch would be refused before
    with pytest.raises(NetworkError, match=r"^node 'culprit' \(Add\): got The size of tensor a"):
        executor.inference_and_backprop({"x": np.ones((4, 3), "f4"), "z": np.ones((2, 3), "f4")})
    with pytest.raises(PlanError, match="expected 4, the batch size"):
        torch_check({"x": np.ones((4, 3), "f4"), "z": np.ones((2, 3), "f4")}, "loss")


def test_what_cannot_follow_a_plan_says_so() -> None:
    net = add_loss(create("resnet", depth=8))
    plan = everything_again(net, 2)
    with pytest.raises(InputError, match=r"got recompute='tape'; expected one of .*'explicit'"):
        d5fw.from_model(net, recompute="tape")
    with pytest.raises(PlanError, match="plan again for this network"):
        d5fw.from_model(add_loss(create("resnet", depth=14))).set_checkpointing(plan)
    with pytest.raises(UnsupportedOperator, match="expected compile=False"):
        d5fw.from_model(net, compile=True).set_checkpointing(plan)
    native = d5fw.from_native(torch.nn.Linear(4, 3), torch.zeros(1, 4))
    with pytest.raises((PlanError, UnsupportedOperator)):
        native.set_checkpointing(plan)
    executor = d5fw.from_model(net)
    executor.set_checkpointing(plan)
    executor.network.add_node("Relu", ["output"], ["more"])
    with pytest.raises(PlanError, match="plan again for this network"):
        executor.inference_and_backprop(inputs_of(net, 2))


def test_the_allocator_is_counted_to_the_byte() -> None:
    kept: list[Any] = []

    def run() -> None:
        first = torch.empty(1000)
        second = torch.empty(500)
        del first
        kept.append((second, torch.empty(200)))

    assert footprint(run) == (6000, 2800)


def test_garbage_of_earlier_measurements_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    net = add_loss(create("mlp", shape=(4,), classes=3))
    inputs = {"input": np.ones((4, 4), "float32"), "label": np.arange(4) % 3}
    executor = d5fw.from_model(net)
    alone = executor.step_memory(inputs)

    def drop() -> None:
        cycle: list[Any] = []
        footprint(lambda: cycle.extend([torch.empty(100_000), cycle]))

    drop()
    step = executor.inference_and_backprop
    monkeypatch.setattr(executor, "inference_and_backprop", lambda *args: (gc.collect() and None) or step(*args))
    assert executor.step_memory(inputs) == alone
