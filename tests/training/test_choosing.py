"""Parameter groups against torch.optim's, on every optimizer of every backend; freezing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deep500.distributed import Serial
from deep500.distributed.schemes import ConsistentDecentralized
from deep500.errors import InputError
from deep500.networks import add_loss, create
from deep500.networks.network import Network
from deep500.training import optimizers as d5
from deep500.training.choosing import NORMS_AND_BIASES, freeze, norms_and_biases
from deep500.training.run import Run
from deep500.training.schedules import StepSchedule
from tests.conftest import load_backend
from tests.tolerances import as_numpy, assert_close
from tests.training.linear import FakeExecutor, linear_network, regression_batches
from tests.training.test_optimizers import EXECUTORS, NATIVE, OPTIMIZERS, make_executor, make_optimizer, parameters

torch = pytest.importorskip("torch")

ROWS = [  # ours, keywords, torch's, of "w", of "b"
    ("GradientDescent", {"lr": 0.1, "weight_decay": 0.05}, "SGD", {}, {"lr": 0.03, "weight_decay": 0.0}),
    ("MomentumOptimizer", {"lr": 0.05, "weight_decay": 0.1}, "SGD", {"momentum": 0.5}, {"momentum": 0.0}),
    ("AdamOptimizer", {"lr": 0.05}, "Adam", {"betas": (0.8, 0.9)}, {"weight_decay": 0.2}),
    ("AdamWOptimizer", {"lr": 0.05, "weight_decay": 0.3}, "AdamW", {}, {"weight_decay": 0.0, "lr": 0.01}),
    ("AdaGradOptimizer", {"lr": 0.1}, "Adagrad", {"lr": 0.2}, {"weight_decay": 0.1}),
    ("RMSPropOptimizer", {"lr": 0.02}, "RMSprop", {"alpha": 0.9}, {"momentum": 0.5, "lr": 0.01}),
]


def torch_answer(kind: str, keywords: dict[str, Any], of: dict[str, dict[str, Any]], batches: Any) -> dict[str, Any]:
    """PyTorch alone, its rates halved after 10 steps."""
    start = {name: torch.tensor(p.value, requires_grad=True) for name, p in linear_network().parameters.items()}
    groups = [{"params": [start[name]], **own} for name, own in of.items()]
    optimizer = getattr(torch.optim, kind)(groups, **{**({"momentum": 0.9} if kind == "SGD" else {}), **keywords})
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.5)
    for batch in batches:
        x, label = torch.from_numpy(batch["input"]), torch.from_numpy(batch["label"])
        optimizer.zero_grad()
        ((x @ start["w"] + start["b"] - label) ** 2).mean().backward()
        optimizer.step()
        schedule.step()
    return {name: tensor.detach().numpy() for name, tensor in start.items()}


@pytest.mark.parametrize("source", [*EXECUTORS, *NATIVE])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_groups_are_torchs_param_groups(source: str, row: Any) -> None:
    name, keywords, kind, of_w, of_b = row
    batches = regression_batches(25)
    executor = make_executor(source)
    groups = [{"parameters": p, **own} for p, own in (("w", of_w), ("b", of_b)) if own]
    optimizer = make_optimizer(source, name, executor, **keywords, groups=groups)
    schedule = StepSchedule(10, 0.5, unit="step")
    run = Run(executor, optimizer)
    for run.step, batch in enumerate(batches):
        schedule.apply(run)
        optimizer.step(batch)
    torch_keywords = {**keywords, "momentum": 0.0} if name == "GradientDescent" else keywords
    for parameter, want in torch_answer(kind, torch_keywords, {"w": of_w, "b": of_b}, batches).items():
        assert_close(parameters(executor)[parameter], want, "training", f"{name} on {source}: {parameter}")
    assert optimizer.lr == pytest.approx(keywords["lr"] / 4)  # what holds for a group does not stay


def test_every_optimizer_has_a_row() -> None:
    assert {row[0] for row in ROWS} == {row[0] for row in OPTIMIZERS}


def test_a_scheme_that_takes_the_steps_apart_has_the_groups_too() -> None:
    batch = regression_batches(1)[0]
    plain, apart = FakeExecutor(linear_network()), FakeExecutor(linear_network())
    groups = [{"parameters": "b", "lr": 0.0}]
    d5.GradientDescent(plain, groups=groups).step(batch)
    optimizer = ConsistentDecentralized(d5.GradientDescent(apart, groups=groups), Serial())
    apart.inference_and_backprop(batch)
    w, b, gw, gb = apart.network.fetch_tensors(["w", "b", "w.grad", "b.grad"])
    assert_close(optimizer.base_optimizer.update_rule(gw, w, "w"), parameters(plain)["w"])
    np.testing.assert_array_equal(optimizer.base_optimizer.update_rule(gb, b, "b"), b)
    assert not np.array_equal(parameters(plain)["w"], w) and np.array_equal(parameters(plain)["b"], b)


def test_no_decay_is_a_group_and_groups_add_up() -> None:
    executor = FakeExecutor(linear_network())
    optimizer = d5.AdamWOptimizer(executor, no_decay=NORMS_AND_BIASES, groups=[{"parameters": "*", "lr": 0.5}])
    assert [(part.values, part.names) for part in optimizer.parts()] == [
        ({"lr": 0.5}, ("w",)),
        ({"lr": 0.5, "weight_decay": 0.0}, ("b",)),
    ]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"groups": [{"parameters": "bb", "lr": 0.1}]}, r"'bb'.*did you mean 'b'"),
        ({"groups": [{"parameters": "b", "lrr": 0.1}]}, r"'lrr'.*did you mean 'lr'"),
        ({"groups": [{"parameters": "b", "lr": -1}]}, r"lr=-1"),
        ({"groups": [{"parameters": "b"}]}, "says nothing"),
        ({"groups": [{"lr": 0.1}]}, "'parameters'"),
        ({"groups": [{"parameters": "b", "lr": 0.1}, {"parameters": "*", "lr": 0.2}]}, "two groups"),
        ({"lr": 0, "groups": [{"parameters": "b", "lr": 0.1}]}, "lr=0"),
    ],
)
def test_what_does_not_fit_is_an_error(options: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        d5.GradientDescent(FakeExecutor(linear_network()), **options)


def test_norms_and_biases_of_a_residual_network_and_of_norms_taken_apart() -> None:
    network = create("resnet", depth=8)
    chosen = set(norms_and_biases(network))
    assert {name for name in network.trainable() if network.parameters[name].value.ndim == 1} == chosen
    apart = Network()
    apart.add_input("x", ("N", 4, 2, 2))
    for name, shape in (("scale", (1, 4, 1, 1)), ("shift", (4, 1, 1)), ("w", (1, 2))):
        apart.add_parameter(name, np.ones(shape, np.float32))
    apart.add_node("Mul", ["x", "scale"], ["a"])
    apart.add_node("Add", ["a", "shift"], ["b"])
    apart.add_node("Gemm", ["b", "w"], ["c"])
    assert norms_and_biases(apart) == ["scale", "shift"]


def test_frozen_parameters_have_no_gradient_no_state_and_do_not_move(backend_name: str) -> None:
    network = add_loss(create("lenet", shape=(1, 28, 28), classes=4, seed=1))
    frozen = freeze(network, ["conv*"])
    assert len(frozen) == 4
    module = load_backend(backend_name)
    executor = module.from_model(network, "cpu")
    optimizer = module.AdamOptimizer(executor, lr=0.1)
    before = {name: np.array(value) for name, value in executor.network.state().items()}
    rng = np.random.default_rng(0)
    batch = {"input": rng.normal(size=(4, 1, 28, 28)).astype("float32"), "label": np.arange(4)}
    optimizer.step(batch)
    optimizer.step(batch)
    after = executor.network.state()
    moved = {name for name, value in after.items() if not np.array_equal(as_numpy(value), before[name])}
    assert moved == set(before) - set(frozen)
    assert not set(frozen) & set(optimizer.parameter_names())
    assert not {name.partition("/")[2] for name in optimizer.state_dict()} & set(frozen)


def test_freezing_everything_or_nothing_is_an_error() -> None:
    network = create("mlp", shape=(4,), hidden=(3,), classes=2)
    with pytest.raises(InputError, match="did you mean 'fc1"):
        freeze(network, ["fc1.weigth"])
    with pytest.raises(InputError, match="something left"):
        freeze(network, "*")
