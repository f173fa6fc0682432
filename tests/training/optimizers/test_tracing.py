"""Rules that are compiled, and rules that are not: both do on every backend what they do parameter by parameter."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep500.errors import InputError
from deep500.training.optimizers import AdamOptimizer, GradientDescent, LAMBOptimizer, UpdateRuleOptimizer, compiling
from deep500.training.optimizers.arithmetic import norm
from deep500.training.optimizers.tracing import trace
from tests.conftest import load_backend
from tests.tolerances import assert_close
from tests.training.linear import FakeExecutor, linear_network, regression_batches

COMPILING = ["pytorch", "tensorflow", "jax"]
Rule = Callable[[Any, Any, Any, str], Any]


def optimizer_of(rule: Rule, executor: Any, **attributes: Any) -> Any:
    """An optimizer with a rule and attributes of its own."""

    class Mine(UpdateRuleOptimizer):
        lr: float = 0.05
        decay: float = 0.01
        betas: tuple[float, float] = (0.8, 0.9)
        flag: bool = False

        def update_rule(self, grad: Any, old_param: Any, name: str) -> Any:
            return rule(self, grad, old_param, name)

    optimizer = Mine(executor, groups=[{"parameters": "b", "decay": 0.0}])
    vars(optimizer).update(attributes)
    return optimizer


def trained(optimizer: Any, steps: int = 6, change: Callable[[Any, int], None] | None = None) -> dict[str, Any]:
    """Parameters and state after some steps, and why the steps were not compiled."""
    refusals = []
    for number, batch in enumerate(regression_batches(steps)):
        if change is not None:
            change(optimizer, number)
        optimizer.step(batch)
        refusals.append(optimizer.updates.refusal)
    return {**optimizer.network.state(), **optimizer.state_dict(), "refusals": refusals}


def check(backend: str, rule: Rule, refusal: str, change: Any = None, make: Callable[[], Any] = dict) -> None:
    """A rule on a backend against NumPy, where it runs parameter by parameter."""
    plain = trained(optimizer_of(rule, FakeExecutor(linear_network()), **make()), change=change)
    got = trained(
        optimizer_of(rule, load_backend(backend).from_model(linear_network(), "cpu"), **make()), change=change
    )
    said = got.pop("refusals")
    assert all(refusal in text if refusal else text == "" for text in said), said
    assert plain.pop("refusals")[0]
    assert plain.keys() == got.keys()
    for key, value in plain.items():
        assert_close(got[key], value, "training", f"{key} on {backend}")
    assert not np.allclose(got["w"], linear_network().parameters["w"].value)


def branches(self: Any, grad: Any, param: Any, name: str) -> Any:
    if self.decay:
        grad = grad + self.decay * param
    rate = self.lr if self.steps < 2 else self.lr / math.sqrt(self.steps)
    means = self.slot("mean")
    means[name] = self.betas[0] * means[name] + grad if name in means else grad * 1
    return param - rate * means[name] * (-1) ** self.steps if self.flag else param - rate * means[name]


def powers(self: Any, grad: Any, param: Any, name: str) -> Any:
    sums = self.slot("sum")
    sums[name] = sums.get(name, 0.5) + abs(grad) ** 1.5
    return param - 2 ** -abs(grad) * (1 - self.lr) * -grad / (1 + sums[name] ** 2) ** 0.5 - grad**3 * 1e-4


def keeps_arguments(self: Any, grad: Any, param: Any, name: str) -> Any:
    last, first = self.slot("last"), self.slot("first")
    step = grad + 0.5 * last.get(name, 0.0) + 0.01 * first.setdefault(name, param)
    last[name] = grad
    return param - self.lr * step


def attributes(self: Any, grad: Any, param: Any, name: str) -> Any:
    return param - self.table["rates"][self.steps % 2] * self.factor * grad


def subclass_calls(self: Any, grad: Any, param: Any, name: str) -> Any:
    return param - 0.5 * (param - GradientDescent.update_rule(self, grad, param, name))  # type: ignore[arg-type]


def norms(self: Any, grad: Any, param: Any, name: str) -> Any:
    means = self.slot("mean")
    means[name] = 0.5 * means.get(name, 0.0) + grad / (norm(grad) + 0.1)
    return param - self.lr * norm(param) / norm(means[name] + self.decay * param) * means[name]


def flips(optimizer: Any, step: int) -> None:
    optimizer.flag, optimizer.lr = step % 2 == 1, 0.05 / (1 + step)


def fresh_factor(optimizer: Any, step: int) -> None:
    optimizer.factor = 0.1 * step + 0.2


COMPILED: dict[str, tuple[Rule, Any, Callable[[], Any]]] = {
    "branches": (branches, flips, dict),
    "powers": (powers, None, dict),
    "keeps its arguments": (keeps_arguments, None, dict),
    "attributes": (attributes, fresh_factor, lambda: {"table": {"rates": [0.1, 0.3]}, "factor": 1.0}),
    "norms of parameters": (norms, None, dict),
    "another class's rule": (subclass_calls, None, lambda: {"weight_decay": 0.1}),
}


@pytest.mark.parametrize("backend", COMPILING)
@pytest.mark.parametrize("name", COMPILED)
def test_rules_that_are_compiled(name: str, backend: str) -> None:
    rule, change, make = COMPILED[name]
    check(backend, rule, "", change, make)


def by_name(self: Any, grad: Any, param: Any, name: str) -> Any:
    return param - self.lr * grad * (2 if name == "b" else 1)


def by_table(self: Any, grad: Any, param: Any, name: str) -> Any:
    return param - self.rates[name] * grad if name in self.rates else param - grad


def by_shape(self: Any, grad: Any, param: Any, name: str) -> Any:
    return param - self.lr * grad * (1 if len(grad.shape) > 1 else 3)


def by_attribute(self: Any, grad: Any, param: Any, name: str) -> Any:
    return param - self.lr * grad if hasattr(grad, "shape") else param


def by_value(self: Any, grad: Any, param: Any, name: str) -> Any:
    rows = grad if name == "b" else grad[0]
    return param - self.lr * grad if float(rows[0]) > 0 else param - 2 * self.lr * grad


def by_length(self: Any, grad: Any, param: Any, name: str) -> Any:
    return param - self.lr * grad / (len(grad) - 2)


def own_numbers(self: Any, grad: Any, param: Any, name: str) -> Any:
    return param - self.rng.uniform(0.01, 0.1) * grad


def global_numbers(self: Any, grad: Any, param: Any, name: str) -> Any:
    return param - self.lr * (1 + random.random() * np.random.random() * 1e-9) * grad  # noqa: NPY002


def draws_unused(self: Any, grad: Any, param: Any, name: str) -> Any:
    random.random()
    return param - self.lr * grad


def prints(self: Any, grad: Any, param: Any, name: str) -> Any:
    return param - self.lr * len(f"{grad}") ** 0 * grad


def counts(self: Any, grad: Any, param: Any, name: str) -> Any:
    self.calls += 1
    return param - self.lr / self.calls * grad


def lists(self: Any, grad: Any, param: Any, name: str) -> Any:
    self.history.append(self.lr)
    return param - self.lr / len(self.history) * grad


def other_state(self: Any, grad: Any, param: Any, name: str) -> Any:
    means = self.slot("mean")
    means[name] = grad * 1
    return param - self.lr * means.get("b", 0.0) * grad


def whole_norm(self: Any, grad: Any, param: Any, name: str) -> Any:
    from deep500.tensors import total

    norms = self.slot("norm")
    norms[name] = norms.get(name, 0.0) + total(grad * grad)  # a state of another shape
    return param - self.lr * grad / norms[name] ** 0.5


def asks_network(self: Any, grad: Any, param: Any, name: str) -> Any:
    return param - self.lr * grad / len(self.network.parameters)


REFUSED: dict[str, tuple[Rule, str, Callable[[], Any]]] = {
    "the name": (by_name, "name", dict),
    "a table by names": (by_table, "name", lambda: {"rates": {"w": 0.1}}),
    "the shape": (by_shape, "'shape'", dict),
    "hasattr": (by_attribute, "'shape'", dict),
    "a value": (by_value, "name", dict),
    "the length": (by_length, "elements", dict),
    "numbers of a generator": (own_numbers, "'rng'", lambda: {"rng": np.random.default_rng(3)}),
    "random numbers": (global_numbers, "random", dict),
    "random numbers that it does not use": (draws_unused, "random", dict),
    "a text of a tensor": (prints, "elements", dict),
    "a counter": (counts, "'calls'", lambda: {"calls": 0}),
    "a list": (lists, "append", lambda: {"history": []}),
    "another's state": (other_state, "another parameter", dict),
    "a norm": (whole_norm, "'sum'", dict),
    "the network": (asks_network, "'executor'", dict),
}


@pytest.mark.parametrize("backend", COMPILING)
@pytest.mark.parametrize("name", REFUSED)
def test_rules_that_run_parameter_by_parameter(name: str, backend: str) -> None:
    rule, refusal, make = REFUSED[name]
    check(backend, rule, refusal, None, make)


@pytest.mark.parametrize("backend", COMPILING)
def test_a_rule_that_draws_is_given_the_numbers_that_it_would_be_given_uncompiled(backend: str) -> None:
    optimizer = optimizer_of(global_numbers, load_backend(backend).from_model(linear_network(), "cpu"))
    for _ in range(2):
        optimizer.backprop(regression_batches(1)[0])  # frameworks draw, too, where they compile
        random.seed(5)
        np.random.seed(5)  # noqa: NPY002
        optimizer.update()
        optimizer.steps += 1
        got = random.random(), np.random.random()  # noqa: NPY002
        random.seed(5)
        np.random.seed(5)  # noqa: NPY002
        want = [(random.random(), np.random.random()) for _ in range(3)]  # noqa: NPY002
        assert got == want[2]


LEAVES = st.sampled_from(
    ["grad", "old_param", "self.slot('m').get(name, 0.0)", "self.slot('v').get(name, self.decay)", "self.lr", "0.5",
     "(self.steps + 1)", "math.sqrt(self.steps + 1)", "self.betas[1]"]
)  # fmt: skip


def larger(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.tuples(parts, st.sampled_from(["+", "-", "*"]), parts).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
    return st.one_of(
        binary,
        parts.map(lambda x: f"(-{x})"),
        parts.map(lambda x: f"(1 + abs({x})) ** 0.5"),
        st.tuples(parts, parts).map(lambda t: f"({t[0]} / (1 + abs({t[1]})))"),
        st.tuples(parts, parts).map(lambda t: f"({t[0]} if self.steps % 3 and self.decay else {t[1]})"),
    )


EXPRESSIONS = st.recursive(LEAVES, larger, max_leaves=8)


@pytest.mark.parametrize("backend", COMPILING)
@settings(max_examples=12, deadline=None)
@given(result=EXPRESSIONS, m=EXPRESSIONS, v=EXPRESSIONS)
def test_generated_rules(backend: str, result: str, m: str, v: str) -> None:
    source = (
        "def rule(self, grad, old_param, name):\n"
        f"    m, v = {m} + 0.1 * grad, {v} * grad\n"
        "    self.slot('m')[name], self.slot('v')[name] = m / (1 + abs(m)), v / (1 + abs(v))\n"
        f"    step = {result} + grad\n"
        "    return old_param - self.lr * (step / (1 + abs(step)) + 1.5)\n"  # moves, whatever the step is
    )
    scope: dict[str, Any] = {"math": math}
    exec(source, scope)
    check(backend, scope["rule"], "")


@pytest.mark.parametrize("backend", COMPILING)
def test_a_schedule_compiles_nothing(backend: str) -> None:
    optimizer = AdamOptimizer(load_backend(backend).from_model(linear_network(), "cpu"))
    trained(optimizer, 8, lambda optimizer, step: optimizer.set_parameter("lr", 0.1 / (step + 1)))
    assert [len(engine.steps) for engine in optimizer.updates._engines.values()] == [2]  # without a past, and with it


@pytest.mark.parametrize("backend", COMPILING)
def test_who_reads_or_replaces_the_state_gets_tensors_of_parameters(backend: str) -> None:
    executor, twin = (load_backend(backend).from_model(linear_network(), "cpu") for _ in range(2))
    optimizer, undisturbed = AdamOptimizer(executor, lr=0.1), AdamOptimizer(twin, lr=0.1)
    for batch in regression_batches(6):
        optimizer.step(batch)
        undisturbed.step(batch)
        assert {slot: sorted(tensors) for slot, tensors in optimizer.state.items()} == {
            "exp_avg": ["b", "w"], "exp_avg_sq": ["b", "w"]
        }  # fmt: skip
        assert_close(executor.network.to_numpy(optimizer.state["exp_avg"]["w"]), undisturbed.state_dict()["exp_avg/w"])
        optimizer.load_state_dict(optimizer.state_dict())
    for name, value in undisturbed.network.state().items():
        assert_close(executor.network.state()[name], value, "exact")


@pytest.mark.parametrize("backend", COMPILING)
@pytest.mark.parametrize("elements", [1, 5, 1 << 20])
def test_chunks_of_any_size_give_the_same(backend: str, elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    want = trained(LAMBOptimizer(FakeExecutor(linear_network()), lr=0.1))  # with norms of each parameter
    monkeypatch.setattr(compiling, "CHUNK", elements)
    optimizer = LAMBOptimizer(load_backend(backend).from_model(linear_network(), "cpu"), lr=0.1)
    got = trained(optimizer)
    assert [c.names for c in optimizer.updates._engine.chunks] == ([("w", "b")] if elements > 12 else [("w",), ("b",)])
    for key in ("w", "b", "exp_avg/w", "exp_avg_sq/b"):
        assert_close(got[key], want[key], "training", key)


@pytest.mark.parametrize("backend", COMPILING)
def test_a_networks_edit_keeps_the_state(backend: str) -> None:
    optimizer = AdamOptimizer(load_backend(backend).from_model(linear_network(), "cpu"), lr=0.1)
    undisturbed = AdamOptimizer(load_backend(backend).from_model(linear_network(), "cpu"), lr=0.1)
    for number, batch in enumerate(regression_batches(4)):
        if number == 2:
            optimizer.network.add_node("Neg", ["y"], ["minus"])
        optimizer.step(batch)
        undisturbed.step(batch)
    assert not optimizer.updates.refusal
    for key, value in undisturbed.state_dict().items():
        assert_close(optimizer.state_dict()[key], value, "exact", key)


@pytest.mark.parametrize("backend", COMPILING)
def test_a_rule_that_always_computes_something_else_is_not_compiled_for_ever(backend: str) -> None:
    def rule(self: Any, grad: Any, param: Any, name: str) -> Any:
        return param - self.lr * grad * abs(grad) ** (self.steps / 100)

    optimizer = optimizer_of(rule, load_backend(backend).from_model(linear_network(), "cpu"))
    refusals = trained(optimizer, 20)["refusals"]
    assert not refusals[0] and "every step" in refusals[-1]


def test_what_a_rule_does_while_it_is_traced_reaches_nothing() -> None:
    optimizer = AdamOptimizer(FakeExecutor(linear_network()))
    before = dict(vars(optimizer))
    program, numbers = trace(optimizer, {}, frozenset())
    assert vars(optimizer) == before and not optimizer.state and not optimizer.updated
    assert program.count == len(numbers) and {slot for slot, _ in program.writes} == {"exp_avg", "exp_avg_sq"}


@pytest.mark.parametrize("backend", COMPILING)
def test_a_users_error_is_raised_as_it_is(backend: str) -> None:
    def fails(self: Any, grad: Any, param: Any, name: str) -> Any:
        raise ZeroDivisionError(f"no rate for {name}")

    def narrow(self: Any, grad: Any, param: Any, name: str) -> Any:
        return param[0]

    for rule, error, match in ((fails, ZeroDivisionError, "no rate for w"), (narrow, InputError, "'w'.*expected")):
        with pytest.raises(error, match=match):
            trained(optimizer_of(rule, load_backend(backend).from_model(linear_network(), "cpu")), 1)


def test_a_scheme_that_exchanges_no_gradients_trains_by_one_function_of_tensorflow() -> None:
    from deep500.distributed import Threads
    from deep500.distributed.optimizer import DistributedOptimizer
    from deep500.distributed.schemes import ConsistentDecentralized, LocalSGD

    class Watching(LocalSGD):
        def update(self) -> None:
            super().update()

    def fused(comm: Any, kind: type[DistributedOptimizer]) -> list[bool]:
        optimizer = AdamOptimizer(load_backend("tensorflow").from_model(linear_network(), "cpu"), lr=0.1)
        scheme = kind(optimizer, comm)
        for batch in regression_batches(2):
            scheme.step(batch)
        return [step._fused is not None for step in optimizer.updates._engine.steps.values()]

    for kind, one_function in ((LocalSGD, True), (Watching, False), (ConsistentDecentralized, False)):
        assert Threads(2).run(fused, kind) == [[one_function] * 2] * 2, kind
