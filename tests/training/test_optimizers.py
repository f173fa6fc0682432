"""Optimizers that backends have too, against torch.optim; all others are rows of optimizers/test_rules.py."""

from __future__ import annotations

import importlib
import inspect
import itertools
import pkgutil
from typing import Any

import numpy as np
import pytest

from deep500 import registry
from deep500.errors import InputError
from deep500.training import optimizers as d5
from deep500.training.clipping import ClipGradientNorm
from tests.conftest import load_backend
from tests.tolerances import as_numpy, assert_close
from tests.training.linear import FakeExecutor, linear_network, regression_batches
from tests.training.optimizers.test_rules import RULES

torch = pytest.importorskip("torch")

STEPS = 100
# fmt: off
OPTIMIZERS = [  # ours, keywords, torch's, torch's keywords where they differ
    ("GradientDescent", {"lr": 0.1}, "SGD", {}),
    ("GradientDescent", {"lr": 0.1, "weight_decay": 0.05}, "SGD", {}),
    ("MomentumOptimizer", {"lr": 0.05, "momentum": 0.9}, "SGD", {}),
    ("MomentumOptimizer", {"lr": 0.05, "momentum": 0.0}, "SGD", {}),
    ("MomentumOptimizer", {"lr": 0.05, "momentum": 0.8, "dampening": 0.3, "weight_decay": 0.02}, "SGD", {}),
    ("MomentumOptimizer", {"lr": 0.05, "momentum": 0.8, "weight_decay": 0.02, "nesterov": True}, "SGD", {}),
    ("AdamOptimizer", {}, "Adam", {}),
    ("AdamOptimizer", {"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.1}, "Adam", {}),
    ("AdamWOptimizer", {}, "AdamW", {}),
    ("AdamWOptimizer", {"lr": 0.02, "betas": (0.8, 0.95), "weight_decay": 0.3}, "AdamW", {}),
    ("AdaGradOptimizer", {}, "Adagrad", {}),
    ("AdaGradOptimizer", {"lr": 0.1, "lr_decay": 0.03, "weight_decay": 0.1, "initial_accumulator_value": 0.2,
                          "eps": 1e-4}, "Adagrad", {}),
    ("RMSPropOptimizer", {}, "RMSprop", {}),
    ("RMSPropOptimizer", {"lr": 0.02, "alpha": 0.9, "eps": 1e-4, "weight_decay": 0.1, "momentum": 0.5}, "RMSprop", {}),
    ("RMSPropOptimizer", {"lr": 0.02, "alpha": 0.9, "centered": True, "momentum": 0.5}, "RMSprop", {}),
]
# fmt: on
IDS = [f"{row[0]}-{'-'.join(row[1]) or 'defaults'}" for row in OPTIMIZERS]
NAMES = sorted({row[0] for row in OPTIMIZERS})
OPTIONS: dict[str, Any] = {
    "plain": {},
    "modifier": {"gradient_modifier": lambda name, param, grad: grad * (0.5 if name == "w" else 2.0) + 0.01 * param},
    "clipped": {"gradient_transform": ClipGradientNorm(0.5)},
}
EXECUTORS = ["fake", *registry.backend_names()]
NATIVE = [f"{name} native" for name in registry.backend_names() if name != "reference"]  # whose optimizers are ours


def make_executor(name: str, network: Any = None, **options: Any) -> Any:
    network = linear_network() if network is None else network
    if name == "fake":
        return FakeExecutor(network, **options)
    return load_backend(name.removesuffix(" native")).from_model(network, "cpu")


def make_optimizer(source: str, name: str, executor: Any, **keywords: Any) -> Any:
    """Ours, or on ``"pytorch native"`` the one that this backend exports under the same name."""
    module = load_backend(source.removesuffix(" native")) if source.endswith(" native") else d5
    return getattr(module, name)(executor, "loss", **keywords)


def parameters(executor: Any) -> dict[str, np.ndarray]:
    return {name: np.array(as_numpy(value)) for name, value in executor.network.state().items()}


def torch_answer(kind: str, keywords: dict[str, Any], batches: Any, option: str = "plain") -> dict[str, np.ndarray]:
    """The same training written with PyTorch alone."""
    start = {name: torch.tensor(p.value, requires_grad=True) for name, p in linear_network().parameters.items()}
    optimizer = getattr(torch.optim, kind)(list(start.values()), **keywords)
    for batch in batches:
        x, label = torch.from_numpy(batch["input"]), torch.from_numpy(batch["label"])
        optimizer.zero_grad()
        ((x @ start["w"] + start["b"] - label) ** 2).mean().backward()
        if option == "modifier":
            start["w"].grad = start["w"].grad * 0.5 + 0.01 * start["w"].detach()
            start["b"].grad = start["b"].grad * 2.0 + 0.01 * start["b"].detach()
        elif option == "clipped":
            torch.nn.utils.clip_grad_norm_(list(start.values()), 0.5)
        optimizer.step()
    return {name: value.detach().numpy() for name, value in start.items()}


def check(executor: Any, optimizer: Any, want: dict[str, np.ndarray], batches: Any) -> None:
    before = parameters(executor)
    for batch in batches:
        optimizer.step(batch)
    got = parameters(executor)
    assert optimizer.steps == len(batches)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-6, atol=1e-12, err_msg=name)
        assert not np.allclose(got[name], before[name]), f"{name} did not move"


@pytest.mark.parametrize("executor_name", EXECUTORS)
@pytest.mark.parametrize(("name", "keywords", "kind", "differing"), OPTIMIZERS, ids=IDS)
def test_reference_optimizer_equals_torch(name, keywords, kind, differing, executor_name):
    executor, batches = make_executor(executor_name), regression_batches(STEPS)
    optimizer = getattr(d5, name)(executor, "loss", **keywords)
    defaults = {} if keywords else {n: v for n, v in optimizer.get_parameters().items() if n == "lr"}
    want = torch_answer(kind, {**keywords, **differing, **defaults}, batches)
    check(executor, optimizer, want, batches)


@pytest.mark.parametrize(("name", "keywords", "kind", "differing"), OPTIMIZERS, ids=IDS)
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("source", NATIVE)
def test_native_optimizer_equals_torch(name, keywords, kind, differing, option, source):
    executor, batches = make_executor(source), regression_batches(STEPS, seed=1)
    optimizer = make_optimizer(source, name, executor, **keywords, **OPTIONS[option])
    check(executor, optimizer, torch_answer(kind, {**keywords, **differing}, batches, option), batches)


@pytest.mark.parametrize("option", ["modifier", "clipped"])
@pytest.mark.parametrize(("name", "keywords", "kind", "differing"), OPTIMIZERS, ids=IDS)
def test_modifier_and_clipping_come_before_weight_decay(name, keywords, kind, differing, option):
    executor, batches = make_executor("fake"), regression_batches(STEPS, seed=2)
    optimizer = getattr(d5, name)(executor, **keywords, **OPTIONS[option])
    check(executor, optimizer, torch_answer(kind, {**keywords, **differing}, batches, option), batches)


def test_every_reference_optimizer_is_exported_and_has_a_row():
    modules = [importlib.import_module(f"{d5.__name__}.{module.name}") for module in pkgutil.iter_modules(d5.__path__)]
    classes = {value for module in modules for value in vars(module).values() if inspect.isclass(value)}
    for optimizer in (c for c in classes if issubclass(c, d5.Optimizer) and not inspect.isabstract(c)):
        name = optimizer.__name__
        line = f"from {optimizer.__module__} import {name} as {name}"
        assert getattr(d5, name, None) is optimizer, f"deep500/training/optimizers/__init__.py lacks: {line}"
        rows = {*NAMES, "AcceleGradOptimizer", *(rule.name for rule in RULES)}
        assert name in rows, f"RULES of tests/training/optimizers/test_rules.py lacks a row: {name}"


@pytest.mark.parametrize("name", NAMES)
def test_keywords_are_torchs_in_its_order(name):
    kind = next(row[2] for row in OPTIMIZERS if row[0] == name)
    ours = [p for p in inspect.signature(getattr(d5, name)).parameters if p not in ("executor", "loss", "options")]
    theirs = [p for p in inspect.signature(getattr(torch.optim, kind)).parameters if p in ours]
    assert ours == theirs == list(getattr(d5, name).hyperparameters)


def accelegrad_by_the_paper(w: np.ndarray, gradient: Any, steps: int, diameter: float, bound: float) -> np.ndarray:
    y, z, total = w.copy(), w.copy(), 0.0
    for t in range(steps):
        alpha = 1.0 if t <= 2 else 0.25 * (t + 1)
        tau = 1 / alpha
        x = tau * z + (1 - tau) * y
        g = gradient(x, t)
        total += alpha**2 * np.linalg.norm(g) ** 2
        eta = 2 * diameter / np.sqrt(bound**2 + total)
        z, y = z - alpha * eta * g, x - eta * g
    return y


@pytest.mark.parametrize("executor_name", EXECUTORS)
def test_accelegrad_equals_the_papers_algorithm(executor_name):
    network = linear_network()
    network.replace("Add_y", "Identity", ["product"])  # one parameter tensor: its norm is the paper's norm
    network.remove_parameter("b")
    start = network.parameters["w"].value
    batches = regression_batches(40)

    def gradient(w: np.ndarray, t: int) -> np.ndarray:
        x, label = batches[t]["input"], batches[t]["label"]
        return x.T @ (2 * (x @ w - label) / label.size)

    want = accelegrad_by_the_paper(start, gradient, 40, diameter=0.7, bound=1.5)
    executor = make_executor(executor_name, linear_network() if executor_name == "fake" else network)
    if executor_name == "fake":
        executor.network.tensors["b"][:] = 0
    modifier = (lambda name, param, grad: grad * (name == "w")) if executor_name == "fake" else None
    optimizer = d5.AcceleGradOptimizer(executor, D=0.7, G=1.5, gradient_modifier=modifier)
    for batch in batches:
        optimizer.step(batch)
    assert_close(executor.network.state()["w"], want, "training")
    assert not np.allclose(want, start)


@pytest.mark.parametrize(
    ("name", "source"),
    [*itertools.product(NAMES, [*EXECUTORS, *NATIVE]), *itertools.product(["AcceleGradOptimizer"], EXECUTORS)],
)
def test_a_loaded_state_goes_on_bit_for_bit(name, source):
    batches = regression_batches(20)
    whole, first, second = (make_executor(source) for _ in range(3))
    straight = make_optimizer(source, name, whole, weight_decay=0.01)
    early = make_optimizer(source, name, first, weight_decay=0.01)
    for batch in batches:
        straight.step(batch)
    for batch in batches[:7]:
        early.step(batch)
    state = early.state_dict()
    assert all(isinstance(value, np.ndarray) for value in state.values()) and int(state["step"]) == 7
    second.network.load_state(first.network.state())
    late = make_optimizer(source, name, second, weight_decay=0.01)
    late.load_state_dict(state)
    for batch in batches[7:]:
        late.step(batch)
    for key, value in parameters(whole).items():
        assert_close(parameters(second)[key], value, "exact", err_msg=key)


@pytest.mark.parametrize("source", NATIVE)
@pytest.mark.parametrize("name", NAMES)
def test_native_and_reference_optimizers_take_over_from_each_other(name, source):
    """Their states have the same slots: what one began, the other ends."""
    batches, keywords = regression_batches(20), {"lr": 0.02, "weight_decay": 0.01}
    whole = make_executor("fake")
    straight = make_optimizer("fake", name, whole, **keywords)
    for batch in batches:
        straight.step(batch)
    executor = make_executor(source)
    optimizer = make_optimizer(source, name, executor, **keywords)
    for number, batch in enumerate(batches):
        if number in (7, 13):  # ours takes over, then the native one again
            follower = make_optimizer("fake" if number == 7 else source, name, executor, **keywords)
            follower.load_state_dict(optimizer.state_dict())
            optimizer = follower
        optimizer.step(batch)
    for key, value in parameters(whole).items():
        assert_close(parameters(executor)[key], value, "training", err_msg=key)


class TakingOver(FakeExecutor):
    """Takes over what it is given, and uses its gradient buffers and its parameters' memory again."""

    def __init__(self, network):
        super().__init__(network)
        self.network.assign_tensor = self.network.tensors.__setitem__

    def spoil(self):
        for name in ("w", "b"):
            self.network.tensors[f"{name}.grad"][:] = np.nan
            copy = self.network.tensors[name].copy()
            self.network.tensors[name][:] = np.nan
            self.network.tensors[name] = copy


@pytest.mark.parametrize("name", [*NAMES, "AcceleGradOptimizer"])
def test_no_tensor_is_kept_that_belongs_to_the_executor(name):
    plain, taking = make_executor("fake"), TakingOver(linear_network())
    first, second = getattr(d5, name)(plain), getattr(d5, name)(taking)
    for batch in regression_batches(6):
        first.step(batch)
        second.step(batch)
        taking.spoil()
    for key, value in parameters(plain).items():
        assert_close(parameters(taking)[key], value, "exact", err_msg=key)


def test_state_has_torchs_slot_names():
    optimizer = d5.AdamOptimizer(make_executor("fake"))
    optimizer.step(regression_batches(1)[0])
    assert sorted(optimizer.state_dict()) == ["exp_avg/b", "exp_avg/w", "exp_avg_sq/b", "exp_avg_sq/w", "step"]


@pytest.mark.parametrize(
    "state",
    [
        {"exp_avg/w": np.zeros((4, 3))},
        {"step": np.array(1), "exp_avg/v": np.zeros((4, 3))},
        {"step": np.array(1), "exp_avg/w": np.zeros((3, 4))},
    ],
)
def test_a_foreign_state_is_refused(state):
    with pytest.raises(InputError, match="expected"):
        d5.AdamOptimizer(make_executor("fake")).load_state_dict(state)


BAD = [
    ("MomentumOptimizer", {"momentm": 0.9}, "did you mean 'momentum'"),
    ("MomentumOptimizer", {"nesterov": 1}, "True or False"),
    ("MomentumOptimizer", {"nesterov": True, "dampening": 0.5}, "nesterov"),
    ("GradientDescent", {"lr": -1}, ">= 0"),
    ("GradientDescent", {"lr": float("nan")}, ">= 0"),
    ("GradientDescent", {"lr": "fast"}, "choose"),
    ("AdamOptimizer", {"betas": (0.9, 1.0)}, "< 1"),
    ("AdamOptimizer", {"betas": 0.9}, "choose"),
    ("RMSPropOptimizer", {"alpha": 1.5}, "< 1"),
]


@pytest.mark.parametrize("source", ["fake", *NATIVE])
@pytest.mark.parametrize(("name", "keywords", "says"), BAD)
def test_bad_hyperparameters_are_refused(name, keywords, says, source):
    with pytest.raises(InputError, match=says):
        make_optimizer(source, name, make_executor(source), **keywords)


@pytest.mark.parametrize("source", ["fake", *NATIVE])
def test_set_parameter_acts_from_the_next_step(source):
    executor = make_executor(source)
    optimizer = make_optimizer(source, "GradientDescent", executor, lr=0.1)
    optimizer.set_parameter("lr", np.float64(0.0))
    before = parameters(executor)["w"]
    optimizer.step(regression_batches(1)[0])
    assert_close(parameters(executor)["w"], before, "exact")
    assert type(optimizer.lr) is float and optimizer.initial["lr"] == 0.1
    with pytest.raises(InputError, match="did you mean 'lr'"):
        optimizer.set_parameter("lrr", 0.1)


@pytest.mark.parametrize("name", [*NAMES, "AcceleGradOptimizer"])
def test_dtype_is_kept(name):
    executor = make_executor("fake", linear_network(dtype="float32"))
    optimizer = getattr(d5, name)(executor, weight_decay=0.1, gradient_transform=ClipGradientNorm(1.0))
    for batch in regression_batches(3, dtype="float32"):
        optimizer.step(batch)  # the fake refuses tensors of another dtype
    assert parameters(executor)["w"].dtype == np.float32


@pytest.mark.parametrize("max_norm", [1e-8, 0.1, 3.0, 1e9])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_clipping_equals_torch(max_norm, dtype):
    rng = np.random.default_rng(0)
    gradients = [rng.normal(size=shape).astype(dtype) for shape in ((5, 3), (7,), (1,))]
    tensors = [torch.nn.Parameter(torch.zeros(g.shape, dtype=getattr(torch, dtype))) for g in gradients]
    for tensor, gradient in zip(tensors, gradients, strict=True):
        tensor.grad = torch.from_numpy(gradient.copy())
    torch.nn.utils.clip_grad_norm_(tensors, max_norm)
    for got, tensor, gradient in zip(ClipGradientNorm(max_norm)("abc", gradients), tensors, gradients, strict=True):
        assert_close(got, tensor.grad, "forward")
        if max_norm > 1e3:
            assert_close(got, gradient, "exact")  # nothing to clip: nothing is changed


def test_clipping_refuses_nonsense_and_takes_nothing():
    assert ClipGradientNorm(1.0)([], []) == []
    for bad in (0, -1, float("nan"), float("inf")):
        with pytest.raises(InputError, match="max_norm"):
            ClipGradientNorm(bad)


def test_update_hooks_are_called_once_per_step():
    from deep500.events import Event, Events

    class Count(Event):
        before = after = 0

        def before_update(self, source):
            self.before += 1

        def after_update(self, source):
            self.after += 1
            assert source is optimizer and optimizer.steps == self.after

    executor, count = make_executor("fake"), Count()
    optimizer = d5.GradientDescent(executor)
    executor.events = Events([count])
    for batch in regression_batches(3):
        optimizer.step(batch)
    assert (count.before, count.after) == (3, 3)
