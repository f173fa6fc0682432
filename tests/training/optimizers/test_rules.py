"""Every rule against its oracle, and on every backend: a new optimizer is a new row of RULES.

A row has a class, keywords, and the oracle: a function that makes, for starting weights and these keywords, something
with ``weights`` and ``step(gradients, lr)``. ``by_torch``, ``by_optax`` and ``by_formula`` make one of an optimizer of
PyTorch, a transformation of Optax, and a formula in NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest

from deep500.distributed import Threads
from deep500.distributed.schemes import Pipeline, ShardedOptimizer, ShardedParameters
from deep500.errors import InputError
from deep500.networks import Network
from deep500.training import optimizers as d5
from tests.conftest import load_backend
from tests.tolerances import as_numpy
from tests.training.linear import CLASSES, FEATURES, FakeExecutor, linear_network, regression_batches

torch = pytest.importorskip("torch")

STEPS = 100
Weights = Mapping[str, np.ndarray]


class ByTorch:
    """An optimizer with the interface of ``torch.optim``."""

    def __init__(self, start: Weights, make: Callable[[Any], Any]) -> None:
        self.tensors = {name: torch.nn.Parameter(torch.tensor(array)) for name, array in start.items()}
        self.optimizer = make(list(self.tensors.values()))
        getattr(self.optimizer, "train", lambda: None)()

    @property
    def weights(self) -> Weights:
        return {name: tensor.detach().numpy() for name, tensor in self.tensors.items()}

    @property
    def judged(self) -> Weights:
        """Those of evaluation, where there are others."""
        getattr(self.optimizer, "eval", lambda: None)()
        return {name: array.copy() for name, array in self.weights.items()}

    def step(self, gradients: Weights, lr: float) -> None:
        for name, tensor in self.tensors.items():
            tensor.grad = torch.tensor(gradients[name])
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.step()


class ByOptax:
    """A transformation of Optax, made for a schedule of the rate."""

    def __init__(self, start: Weights, make: Callable[[Any, Any], Any]) -> None:
        self.optax, self.jax = pytest.importorskip("optax"), pytest.importorskip("jax")
        self.lr, self.judged = 0.0, None
        with self.jax.enable_x64():
            self.weights = {name: self.jax.numpy.asarray(array) for name, array in start.items()}
            self.rule = make(self.optax, lambda count: self.lr)
            self.state = self.rule.init(self.weights)

    def step(self, gradients: Weights, lr: float) -> None:
        self.lr = lr
        with self.jax.enable_x64():
            arrays = {name: self.jax.numpy.asarray(array) for name, array in gradients.items()}
            updates, self.state = self.rule.update(arrays, self.state, self.weights)
            self.weights = self.optax.apply_updates(self.weights, updates)


class ByFormula:
    """``formula(w, g, lr, t, memory) -> w`` for one parameter; ``memory`` is a dictionary of its own."""

    def __init__(self, start: Weights, formula: Callable[..., np.ndarray]) -> None:
        self.weights, self.formula, self.t, self.judged = dict(start), formula, 0, None
        self.memory: dict[str, dict[str, Any]] = {name: {} for name in start}

    def step(self, gradients: Weights, lr: float) -> None:
        self.t += 1
        for name, gradient in gradients.items():
            self.weights[name] = self.formula(self.weights[name], gradient, lr, self.t, self.memory[name])


Oracle = Callable[[Weights, dict[str, Any]], Any]


def by_torch(place: str, **options: Any) -> Oracle:
    """``torch.optim:Adam``, given our keywords and these."""

    def make(start: Weights, keywords: dict[str, Any]) -> ByTorch:
        module, _, name = place.partition(":")
        kind = getattr(pytest.importorskip(module), name)
        return ByTorch(start, lambda tensors: kind(tensors, **{**keywords, **options}))

    return make


def by_optax(make: Callable[[Any, Any, dict[str, Any]], Any]) -> Oracle:
    return lambda start, keywords: ByOptax(start, lambda optax, rate: make(optax, rate, keywords))


def by_formula(formula: Callable[..., np.ndarray]) -> Oracle:
    return lambda start, keywords: ByFormula(
        start, lambda *values: formula(*values, **{k: v for k, v in keywords.items() if k != "lr"})
    )


def algoperf(w: Any, g: Any, lr: float, t: int, memory: Any, betas: Any, weight_decay: float, **kind: Any) -> Any:
    """The baseline's order of operations: the look-ahead is taken into the moment, and out of it again."""
    (b1, b2), coupled = betas, kind.get("coupled", False)
    if coupled:
        g = g + weight_decay * w
    else:
        w = w * (1 - lr * weight_decay)
    m = memory["m"] = memory.get("m", 0) * b1 + g * (1 - b1)
    v = memory["v"] = memory.get("v", 0) * b2 + g**2 * (1 - b2)
    return w - lr / (1 - b1**t) * (m * b1 + g * (1 - b1)) / (np.sqrt(v) / np.sqrt(1 - b2**t) + 1e-8)


def slow_b3(b1: float, b3: float, steps: int) -> Callable[[Any], float]:
    def at(count: Any) -> float:
        share = (int(count) + 1) / steps
        return min(math.exp(math.log(b1) * math.log(b3) / ((1 - share) * math.log(b3) + share * math.log(b1))), b3)

    return lambda count: at(count) if int(count) + 1 < steps else b3


class Rule(NamedTuple):
    """A row: class, keywords, oracle; how far weights may be from the oracle's, and whether backends are compared by
    their losses because last bits flip whole steps."""

    name: str
    keywords: dict[str, Any]
    oracle: Oracle
    tolerance: float = 1e-12
    by_losses: bool = False


# fmt: off
RULES = [
    Rule("NAdamOptimizer", {"lr": 0.05, "betas": (0.8, 0.95), "weight_decay": 0.1}, by_torch("torch.optim:NAdam")),
    Rule("NAdamOptimizer", {"lr": 0.05, "weight_decay": 0.1, "momentum_decay": 0.1, "decoupled_weight_decay": True},
         by_torch("torch.optim:NAdam")),
    Rule("AlgoPerfNAdamOptimizer", {"lr": 0.05, "betas": (0.8, 0.95), "weight_decay": 0.1},
         by_formula(lambda *a, **k: algoperf(*a, **k, coupled=True))),
    Rule("NAdamWOptimizer", {"lr": 0.05, "betas": (0.8, 0.95), "weight_decay": 0.1}, by_formula(algoperf)),
    Rule("LionOptimizer", {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.3}, by_torch("lion_pytorch:Lion"),
         by_losses=True),
    Rule("AMSGradOptimizer", {"lr": 0.05, "betas": (0.8, 0.9), "weight_decay": 0.1},
         by_torch("torch.optim:Adam", amsgrad=True)),
    Rule("AdEMAMixOptimizer", {"lr": 0.02, "betas": (0.9, 0.99, 0.999), "alpha": 4.0, "weight_decay": 0.1},
         by_optax(lambda optax, lr, k: optax.contrib.ademamix(lr, *k["betas"], k["alpha"], weight_decay=.1))),
    Rule("AdEMAMixOptimizer", {"lr": 0.02, "betas": (0.9, 0.99, 0.999), "alpha": 4.0, "warmup_steps": 70},
         by_optax(lambda optax, lr, k: optax.contrib.ademamix(
             lr, .9, .99, slow_b3(.9, .999, 70), lambda count: 4 * min(1, (int(count) + 1) / 70)))),
    Rule("LARSOptimizer", {"lr": 0.5, "weight_decay": 0.1, "trust_coefficient": 0.05, "nesterov": True},
         by_optax(lambda optax, lr, k: optax.lars(lr, .1, trust_coefficient=.05, nesterov=True))),
    Rule("LARSOptimizer", {"lr": 0.5, "weight_decay": 0.1, "trust_coefficient": 0.05, "eps": 0.01},
         by_optax(lambda optax, lr, k: optax.lars(lr, .1, trust_coefficient=.05, eps=.01))),
    Rule("LAMBOptimizer", {"lr": 0.05, "weight_decay": 0.1},
         by_optax(lambda optax, lr, k: optax.lamb(lr, weight_decay=.1))),
    Rule("AdafactorOptimizer", {"lr": 0.3, "weight_decay": 0.1, "eps": (1e-6, 1e-3)},
         by_torch("torch.optim:Adafactor", foreach=False)),
]
# fmt: on
NAMES = sorted({rule.name for rule in RULES})
IDS = [f"{rule.name}-{'-'.join(rule.keywords)}" for rule in RULES]


def rate(base: float, step: int) -> float:
    """A warm-up of ten steps, and a cosine."""
    return base * min(1, (step + 1) / 10) * (0.1 + 0.9 * (1 + math.cos(math.pi * step / STEPS)) / 2)


def train(
    executor: Any, rule: Rule, first: int = 0, last: int = STEPS, state: Any = None, dtype: str = "float64"
) -> Any:
    """The optimizer after these steps, and their losses."""
    optimizer, losses = getattr(d5, rule.name)(executor, **rule.keywords), []
    if state is not None:
        optimizer.load_state_dict(state)
    for step, batch in enumerate(regression_batches(last, dtype=dtype)[first:], first):
        optimizer.set_parameter("lr", rate(rule.keywords["lr"], step))
        losses.append(float(as_numpy(optimizer.step(batch)["loss"])))
    return optimizer, losses


def weights(executor: Any) -> dict[str, np.ndarray]:
    return {name: np.array(as_numpy(value)) for name, value in executor.network.state().items()}


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_it_is_its_oracle_also_from_a_saved_state(rule: Rule) -> None:
    """100 steps in float64 with decay, a warm-up and a schedule, saved and loaded after 50, to the row's tolerance."""
    start = {name: parameter.value for name, parameter in linear_network().parameters.items()}
    theirs, model = rule.oracle(start, dict(rule.keywords)), FakeExecutor(linear_network())
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # torch keeps NAdam's product in it
    try:
        for step, batch in enumerate(regression_batches(STEPS)):
            model.network.tensors.update({name: np.array(array) for name, array in theirs.weights.items()})
            model.inference_and_backprop(batch)
            gradients = {name: model.network.tensors[f"{name}.grad"] for name in start}
            theirs.step(gradients, rate(rule.keywords["lr"], step))
    finally:
        torch.set_default_dtype(default)
    early, whole, late = (FakeExecutor(linear_network()) for _ in range(3))
    optimizer, _ = train(early, rule, last=50)
    state = {name: array.copy() for name, array in optimizer.state_dict().items()}
    late.network.load_state(weights(early))
    resumed, _ = train(late, rule, first=50, state=state)
    train(whole, rule)
    want = {name: np.asarray(array) for name, array in theirs.weights.items()}
    for name, array in want.items():
        np.testing.assert_array_equal(weights(late)[name], weights(whole)[name], err_msg=name)
        np.testing.assert_allclose(weights(late)[name], array, rtol=0, atol=rule.tolerance, err_msg=name)
        assert np.abs(array - start[name]).max() > 0.05, f"{name} did not move"
    assert set(resumed.state_dict()) == set(state) and int(resumed.state_dict()["step"]) == STEPS


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_backends_agree(rule: Rule, backend_name: str) -> None:
    """To 1e-5 after 100 steps in float32."""
    network, options = linear_network(dtype="float32"), {"dtype": "float32"}
    executor, model = load_backend(backend_name).from_model(network, "cpu"), FakeExecutor(network)
    got, want = (train(one, rule, **options)[1] for one in (executor, model))
    if rule.by_losses:
        np.testing.assert_allclose(got, want, rtol=0.02)
        return
    for name, array in weights(model).items():
        np.testing.assert_allclose(weights(executor)[name], array, rtol=0, atol=1e-5, err_msg=name)


def layers(dtype: str = "float64") -> Network:
    """Three layers for the batches of the linear network: weights as [out, in], as [in, out], and of the output."""
    rng, net = np.random.default_rng(3), Network("layers")
    net.add_input("input", ("N", FEATURES), dtype)
    net.add_input("label", ("N", CLASSES), dtype)
    for name, shape in {"first": (6, FEATURES), "bias": (6,), "second": (6, 5), "last": (CLASSES, 5)}.items():
        net.add_parameter(name, rng.normal(size=shape).astype(dtype))
    net.add_node("Gemm", ["input", "first", "bias"], ["a"], transB=1)
    net.add_node("Tanh", ["a"], ["b"])
    net.add_node("MatMul", ["b", "second"], ["c"])
    net.add_node("Tanh", ["c"], ["d"])
    net.add_node("Gemm", ["d", "last"], ["y"], transB=1)
    net.add_output("y")
    net.add_node("Sub", ["y", "label"], ["difference"])
    net.add_node("Mul", ["difference", "difference"], ["square"])
    net.add_node("ReduceMean", ["square"], ["loss"], keepdims=0)
    net.add_output("loss")
    return net


def sharded(comm: Any, rule: Rule, kind: Any) -> Any:
    """The weights after ten steps of two ranks with half of the batch each, and after five more from a saved state."""
    ends, states = [], [None, None]
    for first, last in ((0, 10), (10, 15)):
        executor = load_backend("reference").from_model(layers())
        scheme = kind(getattr(d5, rule.name)(executor, **rule.keywords), comm)
        if first:
            executor.network.load_state(states[0])
            scheme.load_state_dict(states[1])
        for step, batch in enumerate(regression_batches(last)[first:], first):
            scheme.set_parameter("lr", rate(rule.keywords["lr"], step))
            share = slice(comm.rank, None, 2) if kind is not Pipeline else slice(None if comm.rank == 0 else 0)
            scheme.step({name: array[share] for name, array in batch.items()})
        states = [executor.network.state(), scheme.state_dict()]
        ends.append(states[0])
    return ends


@pytest.mark.parametrize("kind", [ShardedOptimizer, ShardedParameters, Pipeline])
@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_whole_tensors_are_whole_or_refused_by_schemes_that_shard(rule: Rule, kind: Any) -> None:
    """Two ranks train as one process does, or the scheme names the optimizer; no norm is of a part in silence."""
    cls = getattr(d5, rule.name)
    if not (kind is not ShardedParameters or vars(cls).get("elementwise")):
        with pytest.raises(InputError, match=rule.name):
            Threads(2).run(sharded, rule, kind)
        return
    want = []
    for last in (10, 15):
        executor = load_backend("reference").from_model(layers())
        train(executor, rule, last=last)
        want.append(weights(executor))
    for ends in Threads(2).run(sharded, rule, kind):
        for got, expected in zip(ends, want, strict=True):
            for name, array in expected.items():
                np.testing.assert_allclose(got[name], array, rtol=0, atol=1e-11, err_msg=name)
