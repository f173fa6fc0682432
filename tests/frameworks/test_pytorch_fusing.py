"""Rules as short lists of PyTorch's functions compute what the rules compute, end to end, by lists, and one by one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep500.training.optimizers import UpdateRuleOptimizer
from deep500.training.optimizers.arithmetic import norm
from deep500.training.optimizers.tracing import trace
from tests.training.linear import FakeExecutor, linear_network

torch = pytest.importorskip("torch")

from deep500.frameworks.pytorch.fusing import lower  # noqa: E402
from deep500.frameworks.pytorch.updates import _Flat, _Lists, run_program  # noqa: E402

TENSORS = st.sampled_from(["grad", "old_param", "m", "v", "norm(grad) * m", "m / (1 + norm(old_param))"])
NUMBERS = st.sampled_from(["0.5", "-1.5", "self.lr", "(2 - self.lr)"])


def larger(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(parts, st.sampled_from("+-*"), st.one_of(parts, NUMBERS)).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(NUMBERS, st.sampled_from("+-*"), parts).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(parts, parts).map(lambda t: f"({t[0]} / (1 + abs({t[1]})))"),
        st.tuples(parts, NUMBERS).map(lambda t: f"({t[0]} / {t[1]})"),
        st.tuples(parts, NUMBERS, TENSORS).map(lambda t: f"({t[0]} + {t[1]} * ({t[2]} - {t[0]}))"),
        parts.map(lambda x: f"norm({x}) / (1 + {x} ** 2)"),
        parts.map(lambda x: f"(-{x} + abs({x}) ** 0.5)"),
        parts.map(lambda x: f"(1 / (1 + abs({x})) ** 1.5)"),
    )


EXPRESSIONS = st.recursive(TENSORS, larger, max_leaves=6)


def program_of(source: str) -> Any:
    scope: dict[str, Any] = {"norm": norm}
    exec(f"def rule(self, grad, old_param, name):\n{source}", scope)

    class Mine(UpdateRuleOptimizer):
        lr: float = 0.25
        update_rule = scope["rule"]
        summands = scope["rule"]

    return trace(Mine(FakeExecutor(linear_network())), {}, frozenset({"m", "v"}))


@pytest.mark.parametrize("ways", ["ends", "lists", "single"])
@settings(max_examples=60, deadline=None)
@given(result=EXPRESSIONS, m=EXPRESSIONS, v=EXPRESSIONS)
def test_lowered_rules_compute_what_the_rules_do(ways: str, result: str, m: str, v: str) -> None:
    program, numbers = program_of(
        "    m, v = self.slot('m')[name], self.slot('v')[name]\n"
        f"    self.slot('m')[name] = m + {m}\n"
        f"    self.slot('v')[name] = {v}\n"
        f"    return old_param - {result}\n"
    )
    rng = np.random.default_rng(5)
    shapes = [(4, 3), (1,), (5,)] if ways != "single" else [(4, 3)]
    grads, params, ms, vs = ([torch.from_numpy(rng.normal(size=shape)) for shape in shapes] for _ in range(4))
    want = [program(g, p, {"m": x, "v": y}, numbers) for g, p, x, y in zip(grads, params, ms, vs, strict=True)]
    given_grads = [grad.clone() for grad in grads]
    packed = {
        name: tensors[0].clone() if ways == "single" else torch.cat([tensor.reshape(-1) for tensor in tensors])
        for name, tensors in (("m", ms), ("v", vs))
    }
    room = _Lists(params, (len(params),)) if ways == "lists" else _Flat(params)
    with torch.no_grad():
        after, _ = run_program(room, program, grads, [packed], numbers)
    for got, (new, _) in zip(params, want, strict=True):
        torch.testing.assert_close(got, new, rtol=1e-11, atol=1e-12, equal_nan=True)
    for slot in ("m", "v"):
        flat = torch.cat([written[slot].reshape(-1) for _, written in want])
        torch.testing.assert_close(after[slot][0].reshape(-1), flat, rtol=1e-11, atol=1e-12, equal_nan=True)
    assert all(torch.equal(grad, before) for grad, before in zip(grads, given_grads, strict=True))
    assert not any(after[slot][0].data_ptr() == other.data_ptr() for slot in after for other in (*params, *grads))
    assert after["m"][0].data_ptr() != after["v"][0].data_ptr()


def test_moments_and_averages_are_few_instructions() -> None:
    program, numbers = program_of(
        "    z = self.slot('m')[name]\n"
        "    squares = self.slot('v')\n"
        "    squares[name] = 0.9 * squares[name] + (1 - 0.9) * grad * grad\n"
        "    return old_param + 0.1 * (z - old_param) - self.lr * grad / (squares[name] ** 0.5 + 1e-8)\n"
    )
    names = [name for name, *_ in lower(program)]
    assert names == ["slot", "slot", "scale", "addcmul", "lerp", "sqrt", "shift", "addcdiv"]
    assert math.isclose(lower(program)[-1].coefficient.value(numbers), -0.25)
