"""Budgets are shares of the measured peak, on networks that PyTorch exported; and what a rehearsal is used for."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import deep500 as d5
import deep500.frameworks.reference as d5ref
from deep500.devices import to_device
from deep500.errors import BudgetError, OutOfMemory
from deep500.networks import Network, add_loss, create
from deep500.networks.losses import gradient_name
from deep500.transformations.memory_planning import plan_memory
from deep500.transformations.recomputation import (
    CheckpointingPlan,
    checkpointing_front,
    find_regions,
    plan_checkpointing,
    planning,
    rehearsing,
)
from deep500.transformations.recomputation.rehearsing import Planner, Rehearsals
from tests.conftest import load_backend
from tests.transformations.recomputation.test_rewriting import inputs_of

pytestmark = pytest.mark.slow

SHARES = {"resnet": 0.6, "unet": 0.8, "transformer": 0.6}


def exported(name: str) -> tuple[Network, dict[str, np.ndarray]]:
    """A network as PyTorch's exporter writes it for training, with a loss and a batch."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    nn, size = torch.nn, (4, 3, 16, 16)

    def conv(inputs: int, outputs: int) -> Any:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs))

    class ResNet(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.out = conv(3, 8), nn.Linear(8, 10)
            self.first = nn.ModuleList(conv(8, 8) for _ in range(3))
            self.second = nn.ModuleList(conv(8, 8) for _ in range(3))

        def forward(self, x: Any) -> Any:
            x = torch.relu(self.stem(x))
            for first, second in zip(self.first, self.second, strict=True):
                x = torch.relu(x + second(torch.relu(first(x))))
            return self.out(x.mean((2, 3)))

    class UNet(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.ModuleList([conv(3, 8), conv(8, 16), conv(16, 32)])
            self.wider = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)])
            self.up = nn.ModuleList([conv(32, 16), conv(16, 8)])
            self.out = nn.Linear(8, 10)

        def forward(self, x: Any) -> Any:
            skips = []
            for layer in self.down[:2]:
                skips.append(torch.relu(layer(x)))
                x = nn.functional.max_pool2d(skips[-1], 2)
            x = torch.relu(self.down[2](x))
            for wider, layer in zip(self.wider, self.up, strict=True):
                x = torch.relu(layer(torch.cat([wider(x), skips.pop()], 1)))
            return self.out(x.mean((2, 3)))

    model: Any = {"resnet": ResNet, "unet": UNet}.get(name, lambda: None)()
    if model is None:
        size = (4, 16, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, "gelu", batch_first=True)
        model = nn.Sequential(
            nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), nn.Flatten(), nn.Linear(512, 10)
        )
    file, x = io.BytesIO(), torch.randn(size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mode = torch.onnx.TrainingMode.TRAINING
        names = {"input_names": ["input"], "output_names": ["output"]}
        torch.onnx.export(model, (x,), file, dynamo=False, training=mode, do_constant_folding=False, **names)
    import onnx

    network = add_loss(Network.from_onnx(onnx.load_model_from_string(file.getvalue())))
    return network, {"input": x.numpy(), "label": np.arange(4) % 10}


@pytest.mark.parametrize(
    ("backend", "options"), [("reference", {}), ("pytorch", {}), ("pytorch", {"recompute": "explicit"})]
)
@pytest.mark.parametrize("name", SHARES)
def test_an_imported_network_holds_the_share_that_was_asked(name: str, backend: str, options: dict[str, Any]) -> None:
    """Gate: no more than asked of the measured peak, and within 2 % of what the plan says; the same bits."""
    network, inputs = exported(name)
    executor = load_backend(backend).from_model(network, **options)
    full, share = executor.step_memory(inputs), SHARES[name]
    before, want = step_of(executor, inputs), executor.network.state()
    plan = d5.plan_checkpointing(executor, share, inputs)
    assert plan.regions and plan.measured and plan.peak_without == full
    executor.set_checkpointing(plan)
    held = executor.step_memory(inputs)
    assert held <= plan.budget == int(share * full)
    assert held == pytest.approx(plan.predicted_peak, rel=0.02)
    after = step_of(executor, inputs)
    assert [name for name in before if not np.array_equal(before[name], after[name])] == []
    assert want.keys() == executor.network.state().keys()


def step_of(executor: Any, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    executor.reseed(0)
    executor.inference_and_backprop(inputs)
    names = [gradient_name(name) for name, _ in executor.network.gradient()]
    tensors = executor.network.fetch_tensors(names)
    return {name: np.array(executor.network.to_numpy(t)) for name, t in zip(names, tensors, strict=True)}


class Off:
    """A planner whose model is off by a number of bytes, and steps that hold what is said."""

    def __init__(self, off: int, full: int | None = 1000) -> None:
        self.off, self.full, self.asked = off, full, list[int]()
        self.planner = Planner(1000 + off, self.within)

    def within(self, limit: int) -> CheckpointingPlan:
        self.asked.append(limit)
        if limit < 300 + self.off:
            raise BudgetError("too small", 300 + self.off)
        peak = min(limit, 1000 + self.off)
        return CheckpointingPlan("", 1, "loss", "none", (), limit, peak, 1.0, 1000 - (peak - self.off), "s", "optimal")

    def rehearsals(self) -> Any:
        made = object.__new__(Rehearsals)
        made.full = self.full
        made.measured_peak = lambda plan: plan.predicted_peak - self.off  # type: ignore[method-assign, assignment]
        return made


@pytest.mark.parametrize("off", [0, 200, -200])
def test_what_a_model_is_off_by_is_asked_less_or_more(off: int) -> None:
    made = Off(off)
    plan = made.rehearsals().within(made.planner, 500)
    assert (plan.predicted_peak, plan.budget, plan.peak_without, plan.measured) == (500, 500, 1000, True)
    assert made.asked == [500 + off]
    assert made.rehearsals().within(made.planner, 1200).predicted_extra == 0
    with pytest.raises(BudgetError, match=r"expected at least 300 \(0.300 of the 1000 bytes") as caught:
        made.rehearsals().within(made.planner, 200)
    assert made.rehearsals().within(made.planner, caught.value.smallest).predicted_peak == 300


class Clocked:
    """An executor whose steps take a known time by a clock of the test's: more under a plan, and more in every step."""

    device = to_device("cpu")

    def __init__(self, clock: list[float]) -> None:
        self.clock, self.plan, self.steps = clock, None, 0

    @contextmanager
    def rehearsal(self) -> Iterator[Clocked]:
        yield Clocked(self.clock)

    def set_checkpointing(self, plan: Any) -> None:
        self.plan = plan

    def synchronize(self) -> None: ...

    def inference_and_backprop(self, inputs: Any, loss: str) -> None:
        self.clock[0] += (3.0 if self.plan else 2.0) + 0.001 * self.steps
        self.steps += 1


def test_a_plan_says_what_its_steps_take_beside_steps_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    for name in ("perf_counter", "process_time"):
        monkeypatch.setattr(rehearsing, name, lambda: clock[0])
    made, executor = Off(0).rehearsals(), Clocked(clock)
    made.twin, made.inputs, made.loss = Clocked(clock), {}, "loss"
    counted = replace(Off(0).planner.within(500), time_unit="FLOP")
    plan = made.timed(counted, executor)
    assert plan.time_unit == "s" and replace(plan, time_unit="FLOP", predicted_time=1, predicted_extra=500) == replace(
        counted, predicted_time=1, predicted_extra=500
    )
    assert plan.predicted_time == pytest.approx(3.003) and plan.predicted_extra == pytest.approx(1.0)
    assert executor.steps == 0, "what is given is not touched"


def test_where_nothing_is_measured_the_plan_says_so() -> None:
    made = Off(100, None)
    plan = made.rehearsals().within(made.planner, 500)
    assert (plan.predicted_peak, plan.measured, plan.peak_without) == (500, False, 0)


@pytest.mark.parametrize("backend", [None, "reference"])
def test_cuts_that_several_activations_cross_are_tried_where_those_of_one_cannot(
    backend: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = add_loss(create("unet", width=4, levels=2, shape=(3, 16, 16)))
    target = network if backend is None else load_backend(backend).from_model(network)
    given: dict[str, Any] = {"batch": 4} if backend is None else {"inputs": inputs_of(network, 4)}
    with monkeypatch.context() as patched, pytest.raises(BudgetError) as caught:
        patched.setattr(planning, "CROSSINGS", (1,))
        patched.setattr(planning.PlanningSubject, "_of_blocks", lambda self, regions: [])  # the network's own
        d5.plan_checkpointing(target, 1, **given)
    least = caught.value.smallest
    assert least is not None
    plan = d5.plan_checkpointing(target, least - 1, **given)
    assert plan.predicted_peak <= plan.budget == least - 1
    front = checkpointing_front(target, points=3, **given)
    assert front[0].predicted_peak < least and front[-1].predicted_extra == 0


def test_finer_cuts_are_taken_where_they_are_quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a plan of cuts that one activation crosses fits: in a U-Net it may run most of the network again."""
    network = add_loss(create("unet", width=4, levels=2, shape=(3, 16, 16)))
    plans = [d5.plan_checkpointing(network, share, batch=4) for share in (0.9, 0.8, 0.7)]
    extra = [plan.predicted_extra for plan in plans]
    assert extra == sorted(extra)
    monkeypatch.setattr(planning, "CROSSINGS", (1,))
    monkeypatch.setattr(planning.PlanningSubject, "_of_blocks", lambda self, regions: [])  # the network's own
    coarse = d5.plan_checkpointing(network, 0.8, batch=4)
    assert coarse.predicted_peak <= coarse.budget and extra[1] < 0.6 * coarse.predicted_extra


def test_a_scope_that_comes_again_is_another_region() -> None:
    """Cuts that several activations cross leave a scope in its midst; names of regions stay unique."""
    network = Network("twice")
    network.add_input("x", (8, 4))
    last = "x"
    for i, scope in enumerate(("a.b", "a.c", "d", "e", "a.b", "a.c", "f")):
        network.add_parameter(f"w{i}", np.eye(4, dtype="float32"))
        for kind in ("MatMul", "Tanh", "Exp"):
            name = f"{scope}.{kind}{i}"
            network.add_node(kind, [last, f"w{i}"] if kind == "MatMul" else [last], [name])
            last = name
    network.add_node("ReduceMean", [last], ["loss"], keepdims=0)
    network.add_output("loss")
    names = [region.name for region in find_regions(network, 8).root.walk()]
    assert len(set(names)) == len(names) and "a" in names and "a (2)" in names


def test_an_activation_ends_the_region_before_it_whatever_its_scope() -> None:
    """Else the sum before it would be kept by one region and read by the next."""
    network = Network("cut")
    network.add_input("x", (8, 4))
    last = "x"
    for i in range(4):
        network.add_parameter(f"w{i}", np.eye(4, dtype="float32"))
        network.add_node("MatMul", [last, f"w{i}"], [f"layer{i}/product"])
        network.add_node("Exp", [f"layer{i}/product"], [f"layer{i}/exp"])
        network.add_node("Relu", [f"layer{i}/exp"], [f"Relu_{i}"])
        last = f"Relu_{i}"
    network.add_node("ReduceMean", [last], ["loss"], keepdims=0)
    network.add_output("loss")
    found = find_regions(network, 8)
    ends = [found.nodes[region.name][-1].op_type for region in found.innermost()[:-1]]
    assert ends and set(ends) == {"Relu"}


@pytest.mark.slow
@pytest.mark.parametrize("refuses", [True, False], ids=["not begun", "tried"])
def test_where_memory_is_short_nothing_whole_is_run(monkeypatch, refuses):
    """Either what is free says so, or the step is begun and cannot be held; the plan's own steps are measured."""
    network = add_loss(create("resnet", depth=8))
    executor = d5ref.from_model(network)
    batch = {"input": np.ones((4, 3, 32, 32), "float32"), "label": np.zeros(4, "int64")}
    whole, runs, saved = executor.step_memory(batch), [], []
    run = type(executor).inference_and_backprop

    def holds(self, *args, **kwargs):
        runs.append(self.checkpointing)
        divided = len(self.network.nodes) != len(network.nodes)
        if self.checkpointing is None and not divided and not refuses:
            raise OutOfMemory("no more")
        return run(self, *args, **kwargs)

    monkeypatch.setattr(type(executor), "inference_and_backprop", holds)
    monkeypatch.setattr(rehearsing, "save_memory", lambda: saved.append(True))
    monkeypatch.setattr(rehearsing, "free_memory", lambda: whole if refuses else None)
    plans = [plan_checkpointing(executor, 0.7, batch), plan_memory(executor, 0.7, batch)]
    assert all(plan.peak_without == pytest.approx(whole, rel=0.1) for plan in plans) and bool(saved) == refuses
    assert plans[0].regions and plans[0].measured and plans[0].time_unit == "FLOP"
    assert all(plan.budget == int(0.7 * plan.peak_without) for plan in plans) and all(
        "short" in p.method for p in plans
    )
    assert plans[0].predicted_peak <= plans[0].budget and plans[1].peak <= plans[1].budget
    assert [plan for plan in runs if plan is not None] and (not refuses or None not in runs)
