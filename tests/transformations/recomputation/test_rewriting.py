"""Steps in which regions run again: the same bits on the reference backend, and the bytes that were predicted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deep500.errors import BudgetError, Deep500Error, PlanError
from deep500.frameworks.reference import Executor
from deep500.frameworks.reference.compiler import KernelProgram
from deep500.frameworks.reference.operators.table import Random
from deep500.networks import Network, add_loss, create
from deep500.transformations.recomputation.counting import peak_bytes
from deep500.transformations.recomputation.plan_file import load_plan
from deep500.transformations.recomputation.planning import plan_network
from deep500.transformations.recomputation.regions import find_regions
from deep500.transformations.recomputation.rewriting import planned_step, recomputing
from deep500.transformations.recomputation.training_step import training_step
from tests.tolerances import assert_close
from tests.transformations.recomputation.test_regions import dropout_network


def unet() -> Network:
    """Two scales with a skip connection over the lower one, each block a convolution, a normalisation and a ReLU."""
    net = Network("unet")
    net.add_input("x", ("N", 2, 8, 8))
    rng = np.random.default_rng(0)

    def block(name: str, source: str, width: int, to: int) -> str:
        net.add_parameter(f"{name}.weight", rng.standard_normal((to, width, 3, 3)).astype("float32") / 4)
        net.add_node("Conv", [source, f"{name}.weight"], [f"{name}.conv"], pads=[1, 1, 1, 1])
        for part, start in (("scale", 1.0), ("bias", 0.0), ("mean", 0.0), ("var", 1.0)):
            trainable = part in ("scale", "bias")
            value = start + len(net.parameters) / 100  # ONNX Runtime merges equal initializers, then writes into one
            net.add_parameter(f"{name}.{part}", np.full(to, value, "float32"), trainable=trainable)
        statistics = [f"{name}.{part}" for part in ("scale", "bias", "mean", "var")]
        net.add_node("BatchNormalization", [f"{name}.conv", *statistics], [f"{name}.norm"])
        net.add_node("Relu", [f"{name}.norm"], [f"{name}.relu"])
        return f"{name}.relu"

    top = block("down.1", block("down.0", "x", 2, 4), 4, 4)
    net.add_node("MaxPool", [top], ["pool"], kernel_shape=[2, 2], strides=[2, 2])
    low = block("low.1", block("low.0", "pool", 4, 8), 8, 4)
    net.add_parameter("scales", np.array([1, 1, 2, 2], "float32"), trainable=False)
    net.add_node("Resize", [low, "", "scales"], ["grown"], mode="nearest")
    net.add_node("Concat", ["grown", top], ["joined"], axis=1)
    last = block("up.1", block("up.0", "joined", 8, 4), 4, 2)
    net.add_node("ReduceMean", [last], ["loss"], keepdims=0)
    net.add_output("loss")
    return net


NETWORKS = {
    "resnet": (lambda: add_loss(create("resnet", depth=8)), 4),
    "transformer": (lambda: add_loss(create("transformer")), 2),
    "dropout": (dropout_network, 4),
    "unet": (unet, 2),
}


def inputs_of(net: Network, batch: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    inputs = {}
    for name, described in net.inputs.items():
        shape = (batch, *(described.shape or ())[1:])
        is_real = described.dtype == "float32"
        inputs[name] = rng.standard_normal(shape).astype("float32") if is_real else rng.integers(0, 10, shape)
    return inputs


def run(net: Network, inputs: dict[str, np.ndarray], seed: int = 3) -> tuple[dict[str, Any], int]:
    """All outputs, and the most bytes of arrays that were held at once; views of one array never count beyond it."""
    plan = KernelProgram(net, net.outputs, Random(seed))
    given = {id(p.value) for p in plan.parameters.values()} | {id(v) for v in inputs.values()}
    values: list[Any] = [None] * len(plan.slots)
    for name, value in {**inputs, **{n: p.value for n, p in plan.parameters.items()}}.items():
        if name in plan.slots:
            values[plan.slots[name]] = value
    most = 0
    for step in plan.steps:
        results = step.kernel(*[values[slot] for slot in step.reads])
        for slot, result in zip(step.writes, results if isinstance(results, tuple) else (results,), strict=False):
            values[slot] = np.asarray(result)
        values[0] = None
        shown: dict[int, tuple[int, int]] = {}
        for array in {id(v): v for v in values if v is not None}.values():
            if id(base := _base(array)) not in given:
                shown[id(base)] = (base.nbytes, shown.get(id(base), (0, 0))[1] + array.nbytes)
        most = max(most, sum(min(sizes) for sizes in shown.values()))
        for slot in step.done:
            values[slot] = None
    return {name: values[plan.slots[name]] for name in net.outputs}, most


def _base(array: np.ndarray) -> np.ndarray:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


@pytest.mark.parametrize("name", NETWORKS)
def test_random_plans_give_the_same_bits(name: str) -> None:
    """Any choice of nested regions: outputs, gradients and running statistics, with the same random numbers."""
    make, batch = NETWORKS[name]
    net = make()
    candidates = find_regions(net, batch, crossing=2 if name == "unet" else 1)
    inputs = inputs_of(net, batch)
    want, before = run(candidates.step.network, inputs)
    rng = np.random.default_rng(0)
    repeated = 0
    for _ in range(6):
        chosen = [region for region in candidates.nodes if rng.random() < 0.6]
        regions = [{v for node in candidates.nodes[region] for v in node.writes} for region in chosen]
        again = recomputing(candidates.step, regions)
        got, after = run(again.network, inputs)
        for output in want:
            assert_close(got[output], want[output], "exact", f"{output} of {name} with {chosen}")
        assert after <= peak_bytes(again.network)
        repeated += len(again.repeated)
    assert before <= peak_bytes(candidates.step.network)
    assert repeated > 10


def test_the_step_is_the_executors() -> None:
    """The gradients that are compared above are those with which the reference backend trains."""
    net = add_loss(create("resnet", depth=8))
    inputs = inputs_of(net, 4)
    executor = Executor(net)
    step = training_step(net, 4)
    got, _ = run(step.network, inputs)
    executor.inference_and_backprop(inputs)
    names = [f"{name}.grad" for name in executor.network.get_params()]
    for name, want in zip(names, executor.network.fetch_tensors(names), strict=True):
        assert_close(got[name], want, "gradient", name)
        assert np.any(want)


@pytest.mark.parametrize(
    ("name", "shares"), [("resnet", (0.9, 0.8)), ("transformer", (0.9, 0.8, 0.7)), ("unet", (0.9,))]
)
def test_plans_keep_their_budget(name: str, shares: tuple[float, ...], tmp_path: Path) -> None:
    make, batch = NETWORKS[name]
    batch *= 4
    net = make()
    inputs = inputs_of(net, batch)
    want, full = run(training_step(net, batch).network, inputs)
    for share in shares:
        plan = plan_network(net, share, batch)
        step, again = planned_step(net, load_plan(plan.save(tmp_path / "plan.json")))
        got, measured = run(again.network, inputs)
        assert measured <= plan.predicted_peak <= plan.budget <= share * peak_bytes(step.network)
        assert measured < full
        assert plan.predicted_extra > 0
        for output in want:
            assert_close(got[output], want[output], "exact", f"{output} of {name} at {share}")
    with pytest.raises(BudgetError, match="expected at least") as caught:
        plan_network(net, 0.05, batch)
    assert plan_network(net, caught.value.smallest, batch).predicted_peak <= caught.value.smallest


def test_nested_regions_run_once_more_for_each_level() -> None:
    """A chain whose every value is kept, three levels deep: the innermost values are computed three times again."""
    net = Network("chain")
    net.add_input("x", (4,))
    net.add_parameter("w", np.full(4, 0.5, "float32"))
    net.add_node("Mul", ["x", "w"], ["v0"])
    for i in range(1, 12):
        net.add_node("Exp" if i % 2 else "Tanh", [f"v{i - 1}"], [f"v{i}"])
    net.add_node("ReduceSum", ["v11"], ["loss"], keepdims=0)
    step = training_step(net, 1)
    regions = [{f"v{i}" for i in range(0, 10)}, {f"v{i}" for i in range(2, 9)}, {f"v{i}" for i in range(3, 7)}]
    again = recomputing(step, regions)
    counts = Counter(node.writes[0] for node in again.repeated)
    assert counts == {
        **dict.fromkeys(["v0", "v1", "v8"], 1),
        **dict.fromkeys(["v2", "v6", "v7"], 2),
        **dict.fromkeys(["v3", "v4", "v5"], 3),
    }
    want, _ = run(step.network, {"x": np.ones(4, "float32")})
    got, _ = run(again.network, {"x": np.ones(4, "float32")})
    assert_close(got["w.grad"], want["w.grad"], "exact")
    assert peak_bytes(again.network) < peak_bytes(step.network)


def test_what_is_refused() -> None:
    net = add_loss(create("resnet", depth=8))
    step = training_step(net, 2)
    with pytest.raises(PlanError, match="some that the forward pass writes"):
        recomputing(step, [{"nothing"}])
    with pytest.raises(PlanError, match="nested or disjoint"):
        recomputing(step, [{"conv1", "bn1"}, {"bn1", "relu1"}])
    plan = plan_network(net, 0.9, batch=2)
    with pytest.raises(Deep500Error, match="plan again"):
        planned_step(add_loss(create("resnet", depth=14)), plan)


def test_what_a_region_hands_on_is_held() -> None:
    """A value that is read inside of its region and behind it is kept, so it does not run again."""
    net = Network("skip")
    net.add_input("x", (4,))
    net.add_parameter("w", np.full(4, 0.5, "float32"))
    net.add_node("Mul", ["x", "w"], ["a"])
    net.add_node("Exp", ["a"], ["inner"])
    net.add_node("Tanh", ["inner"], ["b"])
    net.add_node("Mul", ["a", "b"], ["c"])
    net.add_node("ReduceSum", ["c"], ["loss"], keepdims=0)
    again = recomputing(training_step(net, 1), [{"a", "inner", "b"}])
    assert [node.writes[0] for node in again.repeated] == ["inner"]


def test_the_planner_asks_for_less_until_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the model to promise too much, what is counted decides."""
    from deep500.transformations.recomputation import counting

    def optimist(*args: Any, **options: Any) -> Any:
        return simulate(*args, **options)._replace(peak=10**8)

    net = add_loss(create("transformer"))
    honest = plan_network(net, 0.8, batch=8)
    simulate = counting.simulate
    monkeypatch.setattr(counting, "simulate", optimist)
    plan = plan_network(net, 0.8, batch=8)
    assert 0 < plan.predicted_peak <= plan.budget == honest.budget
    assert plan.method.startswith("optimal")


def test_every_backend_runs_the_rewritten_step(backend: Any, tmp_path: Path) -> None:
    """One plan file: its network gives what the step without a plan gives, statistics included, wherever it runs.

    Only results are compared: a framework that reorders or merges equal nodes need not save memory by it.
    """
    net, batch = unet(), 8
    path = plan_network(net, 0.9, batch).save(tmp_path / "plan.json")
    step, again = planned_step(net, load_plan(path))
    inputs = inputs_of(net, batch)
    want = backend.Executor(step.network).inference(inputs)
    got = backend.Executor(again.network).inference(inputs)
    assert len(again.repeated) > 0 and want.keys() == got.keys() and "down.0.mean.new" in want
    for name in want:
        assert_close(got[name], want[name], "gradient", f"{name} on {backend.__name__}")
    assert np.any(np.asarray(got["down.0.weight.grad"]))
