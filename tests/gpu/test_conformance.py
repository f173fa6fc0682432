"""ONNX's own cases on the stand-in for a card: what the processor passes, the card passes, with results on it."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("torch")

from deep500.compare.conformance import suite as conformance
from deep500.frameworks import pytorch
from tests.gpu.cases import on_card
from tests.gpu.standin import a_card

RANDOM = re.compile(r"dropout|bernoulli|random", re.IGNORECASE)
pytestmark = pytest.mark.long


@pytest.mark.parametrize("group", ["node", "simple", "pytorch-converted", "pytorch-operator"])
def test_cases(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance.Representation, "_array", _located)
    plain, card = conformance.Suite("cpu"), conformance.Suite("gpu")
    plain.module = card.module = pytorch
    names = [name for name in plain.cases if plain.groups[name] == group and not RANDOM.search(name)]
    passed = [name for name in names if plain.judge(name).verdict == "passed"]
    assert len(passed) > 10
    with a_card():
        verdicts = {name: card.judge(name) for name in passed}
    wrong = {name: result.message for name, result in verdicts.items() if result.verdict != "passed"}
    assert not wrong, wrong


def _located(self: conformance.Representation, value: object) -> object:
    """A result as an array, which must be where the executor is."""
    if isinstance(value, list):
        return [_located(self, item) for item in value]
    if self.executor.device.kind == "gpu" and value is not None and hasattr(value, "detach"):
        assert on_card(value), f"a result is on {value.device}"
    return None if value is None else self.executor.network.to_numpy(value)
