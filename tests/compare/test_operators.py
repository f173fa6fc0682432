"""`measure-op`: one operator in several frameworks, from words to a page; times are produced, never judged."""

from __future__ import annotations

import json

import numpy as np
import pytest

from deep500 import cli
from deep500.compare import compare_operator
from deep500.compare.operator_subject import BOTH, FORWARD, OneOperator, OperatorJob
from deep500.errors import InputError, UnsupportedOperator

PAIR = ["reference", "onnxruntime"]
pytestmark = pytest.mark.backend(*PAIR)


def test_the_command_times_both_passes_and_writes_a_page(tmp_path, capsys):
    words = ["measure-op", "MatMul", "6x4", "4x3", "--backend", ",".join(PAIR), "--rounds", "6", "--steps", "1"]
    assert cli.main([*words, "--threads", "1", "--quiet", "--out", str(tmp_path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result["timings"]) == {FORWARD, BOTH}
    assert {len(samples) for timing in result["timings"].values() for samples in timing["samples"].values()} == {6}
    page = next(tmp_path.rglob("comparison.html")).read_text(encoding="utf-8")
    assert "2 frameworks compute the same" in page and "forward and backward pass" in page and "None" not in page


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "note"),
    [
        ("Conv", ["1x2x5x5", "3x2x3x3"], {"pads": [1, 1, 1, 1]}, "agrees with differences"),
        ("Reshape", ["4x6", "[6, 4]"], {}, "agrees with differences"),
        ("Log", ["4x6"], {}, "inputs are positive"),
        ("ArgMax", ["4x6"], {"axis": 1}, "forward only"),
        ("Gather", ["4x6", "3:int64"], {}, "agrees with differences"),
        ("Mish", ["2x3"], {}, "agrees with differences"),
    ],
)
def test_operators_agree_and_their_gradients_are_right(op, inputs, attributes, note):
    result = compare_operator(op, inputs, attributes, frameworks=PAIR, rounds=0)
    assert result and not result.timings
    assert any(note in line for line in result.gate.notes)
    assert any(check.framework == "onnxruntime" and check.name == "outputs" for check in result.gate.checks)


def test_a_wrong_gradient_fails(tmp_path, capsys):
    plugin = tmp_path / "wrong.py"
    plugin.write_text(
        "import deep500 as d5\n"
        "@d5.register_op('WrongSquare')\n"
        "class WrongSquare(d5.CustomPythonOp):\n"
        "    def infer(self, inputs):\n"
        "        return list(inputs)\n"
        "    def forward(self, inputs):\n"
        "        return inputs[0] ** 2\n"
        "    def backward(self, grads, fwd_inputs, fwd_outputs):\n"
        "        return 3 * grads[0] * fwd_inputs[0]\n"
    )
    words = ["measure-op", "WrongSquare", "2x3", "--backend", ",".join(PAIR), "--custom-op", str(plugin)]
    assert cli.main([*words, "--rounds", "0", "--quiet", "--out", str(tmp_path / "out")]) == 1
    assert "gradient against differences DIFFERS" in capsys.readouterr().out


def test_a_worker_runs_on_tensors_of_its_own():
    job = OperatorJob("onnxruntime", name="Tanh", inputs=["3x2"], outputs=[([3, 2], "float32")])
    once, wait = job.repetition(FORWARD)
    wait()
    assert np.allclose(once()["y0"], np.tanh(OneOperator("Tanh", ["3x2"]).arrays()["x0"]))
    once, _ = job.repetition(BOTH)
    assert set(once()) == {"y0", "loss"}


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "message"),
    [
        ("Sofmax", ["4x6"], {}, "did you mean 'Softmax'"),
        ("Relu", ["4y6"], {}, "'4y6'"),
        ("Relu", ["[1, oh]"], {}, "expected sizes"),
        ("Relu", ["4:text"], {}, "'4:text'"),
    ],
)
def test_wrong_words(op, inputs, attributes, message):
    with pytest.raises(InputError, match=message):
        compare_operator(op, inputs, attributes, frameworks=PAIR, rounds=0)


def test_backends_that_do_not_run_it_are_left_out_unless_named(monkeypatch):
    import deep500.compare.operators as module

    def refuse(network):
        raise UnsupportedOperator("got operator 'Tanh'; expected others")

    real = module.load_backend
    fake = type("Fake", (), {"from_model": staticmethod(refuse)})
    monkeypatch.setattr(module, "backend_names", lambda: [*PAIR, "pytorch"])
    monkeypatch.setattr(module, "is_installed", lambda name: True)
    monkeypatch.setattr(module, "load_backend", lambda name: fake if name == "pytorch" else real(name))
    result = compare_operator("Tanh", ["4"], rounds=0)
    assert result.frameworks == PAIR and any("pytorch is left out" in note for note in result.gate.notes)
