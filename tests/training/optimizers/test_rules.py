"""Every rule against its oracle, and on every backend: a new optimizer is a new row of RULES.

A row has a class, keywords, and the oracle: a function that makes, for starting weights and these keywords, something
with ``weights`` and ``step(gradients, lr)``. ``by_torch``, ``by_optax`` and ``by_formula`` make one of an optimizer of
PyTorch, a transformation of Optax, and a formula in NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest

from deep500.distributed import Threads
from deep500.distributed.schemes import Pipeline, ShardedOptimizer, ShardedParameters
from deep500.errors import InputError
from deep500.networks import Network
from deep500.training import optimizers as d5
from deep500.training.optimizers.states import arrays_of_training
from tests.conftest import load_backend
from tests.tolerances import as_numpy
from tests.training.linear import CLASSES, FEATURES, linear_network, regression_batches

torch = pytest.importorskip("torch")

STEPS = 100
Weights = Mapping[str, np.ndarray]


def layers(dtype: str = "float64") -> Network:
    """Three layers for the batches of the linear network: weights as [out, in], as [in, out], and of the output.

    Sizes differ by one, so that no gradient's Gram matrix has more than one eigenvalue of 0 and SOAP's bases are known.
    """
    rng, net = np.random.default_rng(3), Network("layers")
    net.add_input("input", ("N", FEATURES), dtype)
    net.add_input("label", ("N", CLASSES), dtype)
    for name, shape in {"first": (5, FEATURES), "bias": (5,), "second": (5, 4), "last": (CLASSES, 4)}.items():
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
        self.memory: dict[str, dict[str, Any]] = {name: {"name": name} for name in start}

    def step(self, gradients: Weights, lr: float) -> None:
        self.t += 1
        for name, gradient in gradients.items():
            self.weights[name] = self.formula(self.weights[name], gradient, lr, self.t, self.memory[name])


class BySOAP(ByTorch):
    """That of pytorch-optimizer, whose QR is in float32 whatever the weights are in: here in theirs."""

    def step(self, gradients: Weights, lr: float) -> None:
        class Wide:
            float32 = torch.float64
            __getattr__ = staticmethod(lambda name: getattr(torch, name))

        with patch("pytorch_optimizer.optimizer.soap.torch", Wide()):
            super().step(gradients, lr)


class ByKeras:
    """Keras's Muon in float64, with AdamW for what the graph says is no hidden matrix. It narrows numbers to float32 on
    the way, so that they have to be exact in it."""

    def __init__(self, start: Weights, **options: Any) -> None:
        self.keras, self.judged = pytest.importorskip("keras"), None
        with self.wide():
            self.variables = {name: self.keras.Variable(array, name=name) for name, array in start.items()}
            self.optimizer = self.keras.optimizers.Muon(
                exclude_layers=["last"], epsilon=0.0, adam_beta_1=0.875, adam_beta_2=0.96875, **options
            )
            self.optimizer.lr_adjust = lambda x: x * max(x.shape) ** 0.5 * 0.2  # its own takes the root in float32
            self.optimizer.build(list(self.variables.values()))

    @contextmanager
    def wide(self) -> Iterator[None]:
        before = self.keras.config.floatx()
        self.keras.config.set_floatx("float64")
        yield
        self.keras.config.set_floatx(before)

    @property
    def weights(self) -> Weights:
        return {name: variable.numpy() for name, variable in self.variables.items()}

    def step(self, gradients: Weights, lr: float) -> None:
        with self.wide():
            self.optimizer.learning_rate = lr
            self.optimizer.apply([gradients[name] for name in self.variables], list(self.variables.values()))


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


def cautious_nadamw(w: Any, g: Any, lr: float, t: int, memory: Any, betas: Any, weight_decay: float) -> Any:
    step = w * (1 - lr * weight_decay) - algoperf(w, g, lr, t, memory, betas, weight_decay)
    mask = step * g > 0
    return w * (1 - lr * weight_decay) - step * mask * mask.size / (mask.sum() + 1)


def muon(w: Any, g: Any, lr: float, t: int, memory: Any, weight_decay: float, scaling: str, **kind: Any) -> Any:
    """Written for matrices as [out, in], ``second`` the other way around; iterated by its singular values."""
    decayed = w * (1 - lr * weight_decay)
    if memory["name"] in ("last", "bias"):
        m = memory["m"] = memory.get("m", 0) * 0.9 + 0.1 * g
        v = memory["v"] = memory.get("v", 0) * 0.999 + 0.001 * g**2
        step = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        return decayed - lr * kind.get("adam_lr_ratio", 1.0) * step
    m = memory["m"] = memory.get("m", 0) * 0.95 + g
    direction = g + 0.95 * m if kind.get("nesterov", True) else m
    u, s, v = np.linalg.svd(direction, full_matrices=False)
    s = s / (np.linalg.norm(direction) + 1e-7)
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    inputs, outputs = w.shape if memory["name"] == "second" else w.shape[::-1]
    factors = {"original": max(1, outputs / inputs) ** 0.5, "spectral": (outputs / inputs) ** 0.5}
    return decayed - lr * factors[scaling] * (u * s) @ v


class Rule(NamedTuple):
    """A row: class, keywords, oracle; how far weights may be from the oracle's, and whether backends are compared by
    their losses because last bits flip whole steps; the network."""

    name: str
    keywords: dict[str, Any]
    oracle: Oracle
    tolerance: float = 1e-12
    by_losses: bool = False
    network: Callable[..., Network] = linear_network

    @property
    def kind(self) -> Any:
        """The class, or ``wrapper(class)``."""
        wrapper, _, inner = self.name.rpartition("(")
        cls = getattr(d5, inner.removesuffix(")"))
        return getattr(d5, wrapper)(cls) if wrapper else cls


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
    Rule("ScheduleFreeSGDOptimizer", {"lr": 0.3, "momentum": 0.8, "weight_decay": 0.1, "warmup_steps": 10},
         by_torch("schedulefree:SGDScheduleFree")),
    Rule("ScheduleFreeAdamWOptimizer", {"lr": 0.05, "betas": (0.8, 0.95), "weight_decay": 0.1, "warmup_steps": 10,
                                        "r": 0.5}, by_torch("schedulefree:AdamWScheduleFree")),
    Rule("MuonOptimizer", {"lr": 0.02, "betas": (0.875, 0.96875), "weight_decay": 0.125, "eps": 0.0},
         lambda start, k: ByKeras(start, weight_decay=.125, adam_weight_decay=.125), network=layers),
    Rule("MuonOptimizer", {"lr": 0.02, "weight_decay": 0.1, "scaling": "original", "adam_lr_ratio": 0.5},
         by_formula(muon), network=layers),
    Rule("MuonOptimizer", {"lr": 0.02, "weight_decay": 0.1, "scaling": "spectral", "nesterov": False},
         by_formula(muon), network=layers),
    Rule("ProdigyOptimizer", {"lr": 1.0, "weight_decay": 0.1, "d0": 1e-3}, by_torch("prodigyopt:Prodigy")),
    Rule("ProdigyOptimizer", {"lr": 1.0, "betas": (0.8, 0.95), "d0": 1e-3, "d_coef": 0.5, "growth_rate": 1.1,
                              "use_bias_correction": True, "weight_decay": 0.1}, by_torch("prodigyopt:Prodigy")),
    Rule("SOAPOptimizer", {"lr": 0.02, "weight_decay": 0.1}, lambda start, keywords: BySOAP(
        start, lambda tensors: pytest.importorskip("pytorch_optimizer").SOAP(tensors, **keywords)), by_losses=True),
    Rule("cautious(LionOptimizer)", {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.3},
         by_torch("pytorch_optimizer:Lion", cautious=True), by_losses=True),
    Rule("cautious(NAdamWOptimizer)", {"lr": 0.05, "betas": (0.8, 0.95), "weight_decay": 0.1},
         by_formula(cautious_nadamw)),
    Rule("lookahead(AdamOptimizer)", {"lr": 0.05, "weight_decay": 0.1, "every": 4, "slow_step": 0.6},
         lambda start, keywords: ByTorch(start, lambda tensors: pytest.importorskip("pytorch_optimizer").Lookahead(
             torch.optim.Adam(tensors, weight_decay=.1), k=4, alpha=.6))),
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
    optimizer, losses = rule.kind(executor, **rule.keywords), []
    if state is not None:
        optimizer.load_state_dict(state)
    for step, batch in enumerate(regression_batches(last, dtype=dtype)[first:], first):
        optimizer.set_parameter("lr", rate(rule.keywords["lr"], step))
        losses.append(float(as_numpy(optimizer.step(batch)["loss"])))
    return optimizer, losses


def executor_of(rule: Rule, backend: str = "reference", **options: Any) -> Any:
    return load_backend(backend).from_model(rule.network(**options), "cpu")


def weights(executor: Any) -> dict[str, np.ndarray]:
    return {name: np.array(as_numpy(value)) for name, value in executor.network.state().items()}


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_it_is_its_oracle_also_from_a_saved_state(rule: Rule) -> None:
    """100 steps in float64 with decay, a warm-up and a schedule, saved and loaded after 50, to the row's tolerance."""
    start = {name: parameter.value for name, parameter in rule.network().parameters.items()}
    theirs, model = rule.oracle(start, dict(rule.keywords)), executor_of(rule)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # torch keeps NAdam's product in it
    try:
        for step, batch in enumerate(regression_batches(STEPS)):
            model.network.load_state({name: np.array(array) for name, array in theirs.weights.items()})
            model.inference_and_backprop(batch)
            names, tensors = zip(*model.network.gradient("loss"), strict=True)
            gradients = dict(zip(names, model.network.fetch_tensors(tensors), strict=True))
            theirs.step(gradients, rate(rule.keywords["lr"], step))
    finally:
        torch.set_default_dtype(default)
    early, whole, late = (executor_of(rule) for _ in range(3))
    optimizer, _ = train(early, rule, last=50)
    state = {name: array.copy() for name, array in optimizer.state_dict().items()}
    late.network.load_state(weights(early))
    resumed, _ = train(late, rule, first=50, state=state)
    train(whole, rule)
    want = {name: np.array(array) for name, array in theirs.weights.items()}
    if resumed.judges_other:
        with resumed.evaluation():
            for name, array in theirs.judged.items():
                np.testing.assert_allclose(weights(late)[name], array, rtol=0, atol=rule.tolerance, err_msg=name)
                assert np.abs(array - want[name]).max() > 1e-3
    for name, array in want.items():
        np.testing.assert_array_equal(weights(late)[name], weights(whole)[name], err_msg=name)
        np.testing.assert_allclose(weights(late)[name], array, rtol=0, atol=rule.tolerance, err_msg=name)
        assert np.abs(array - start[name]).max() > 0.05, f"{name} did not move"
    assert set(resumed.state_dict()) == set(state) and int(resumed.state_dict()["step"]) == STEPS


@pytest.mark.parametrize("rule", [rule for rule in RULES if vars(rule.kind).get("elementwise")], ids=attrgetter("name"))
def test_what_training_will_hold_is_what_it_holds(rule: Rule) -> None:
    """Plans ask before the first step, which leaves no trace."""
    executor = executor_of(rule)
    optimizer = rule.kind(executor, **rule.keywords)
    expected = arrays_of_training(optimizer)
    assert not optimizer.state and optimizer.steps == 0
    optimizer.step(next(iter(regression_batches(1))))
    assert expected == 2 + sum(map(bool, optimizer.state.values()))


@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_backends_agree(rule: Rule, backend_name: str) -> None:
    """To 1e-5 after 100 steps in float32."""
    options = {"dtype": "float32"}
    executor, model = executor_of(rule, backend_name, **options), executor_of(rule, **options)
    got, want = (train(one, rule, **options)[1] for one in (executor, model))
    if rule.by_losses:
        np.testing.assert_allclose(got, want, rtol=0.02)
        return
    for name, array in weights(model).items():
        np.testing.assert_allclose(weights(executor)[name], array, rtol=0, atol=1e-5, err_msg=name)


def sharded(comm: Any, rule: Rule, kind: Any) -> Any:
    """The weights after ten steps of two ranks with half of the batch each, as trained and as judged, and after five
    more from a saved state."""
    ends, states = [], [None, None]
    for first, last in ((0, 10), (10, 15)):
        executor = load_backend("reference").from_model(layers())
        scheme = kind(rule.kind(executor, **rule.keywords), comm)
        if first:
            executor.network.load_state(states[0])
            scheme.load_state_dict(states[1])
        for step, batch in enumerate(regression_batches(last)[first:], first):
            scheme.set_parameter("lr", rate(rule.keywords["lr"], step))
            share = slice(comm.rank, None, 2) if kind is not Pipeline else slice(None if comm.rank == 0 else 0)
            scheme.step({name: array[share] for name, array in batch.items()})
        states = [executor.network.state(), scheme.state_dict()]
        with scheme.evaluation():
            ends += [states[0], executor.network.state()]
    return ends


@pytest.mark.parametrize("kind", [ShardedOptimizer, ShardedParameters, Pipeline])
@pytest.mark.parametrize("rule", RULES, ids=IDS)
def test_whole_tensors_are_whole_or_refused_by_schemes_that_shard(rule: Rule, kind: Any) -> None:
    """Two ranks train as one process does, or the scheme names the optimizer; no norm is of a part in silence."""
    cls = rule.kind
    parts = vars(cls).get("elementwise") and not cls.keeps_parameters
    if (kind is ShardedParameters and not parts) or (kind is Pipeline and cls.needs_all):
        with pytest.raises(InputError, match=rule.kind.__name__):
            Threads(2).run(sharded, rule, kind)
        return
    want = []
    for last in (10, 15):
        executor = load_backend("reference").from_model(layers())
        optimizer, _ = train(executor, rule, last=last)
        want.append(weights(executor))
        with optimizer.evaluation():
            want.append(weights(executor))
    for ends in Threads(2).run(sharded, rule, kind):
        for got, expected in zip(ends, want, strict=True):
            for name, array in expected.items():
                np.testing.assert_allclose(got[name], array, rtol=0, atol=1e-11, err_msg=name)
