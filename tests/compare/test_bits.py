"""``deep500 bits`` names a planted fault of one unit in the last place: its step, its operator, its element."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep500 import cli
from deep500.compare.bits import apart, compare_networks, ulps
from deep500.compare.subject import Candidate
from deep500.errors import InputError
from deep500.metrics import BitwiseEqual
from deep500.networks import Network, add_loss, create
from deep500.registry import load_backend

RECIPE = """
import numpy as np
import deep500 as d5
import deep500.frameworks.reference as d5fw

def digits():
    rng = np.random.default_rng(0)
    parts = [(rng.normal(size=(n, 6)).astype("float32"), rng.integers(0, 3, n)) for n in (32, 8)]
    return tuple(d5.NumpyDataset(x, "input", y, "label", classes=3) for x, y in parts)

class Nudged(d5fw.GradientDescent):
    def update_rule(self, grad, old_param, param_name):
        new = super().update_rule(grad, old_param, param_name)
        if param_name == "fc2.weight" and self.steps == NUDGE - 1:
            new = np.array(new)
            new[1, 0] = np.nextafter(new[1, 0], np.float32(9))
        return new

def planted(network):
    # one element of a hidden layer is a unit in the last place larger
    one = np.ones(5, np.float32)
    one[2] = np.nextafter(one[2], np.float32(9))
    network.add_parameter("nudge", one, trainable=False)
    network.add_node("Relu", ["fc1"], ["before"], name="clean")
    network.replace("relu1", "Mul", ["before", "nudge"])
    return network

NUDGE = 0
FIXED = {"model": "mlp", "model_kwargs": dict(hidden=(5,)), "dataset": digits, "epochs": 2}
MUTABLE = {"batch_size": 8, "executor": d5fw.from_model, "optimizer": Nudged, "optimizer_kwargs": dict(lr=0.1)}
METRICS = [(d5.TestAccuracy(), None)]
"""


def run(folder, name, text):
    path = folder / f"{name}.py"
    path.write_text(text)
    assert cli.main(["run", str(path), "--quiet", "--out", str(folder / "results")]) == 0
    (made,) = (path for path in (folder / "results" / name).iterdir() if path.is_dir())
    return str(made)


def bits(capsys, *words):
    capsys.readouterr()
    code = cli.main(["bits", "--run", *words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_the_same_run_twice_has_the_same_bits(tmp_path, capsys):
    code, verdict = bits(capsys, *(run(tmp_path, name, RECIPE) for name in ("one", "two")))
    assert code == 0 and verdict["same"] and verdict["steps"] == 8 and verdict["notes"] == []


def test_a_recipe_in_a_folder_is_run_on_request_only(tmp_path, capsys):
    (tmp_path / "manifest.json").write_text("{}")
    assert cli.main(["bits", str(tmp_path), str(tmp_path)]) == InputError.exit_code
    assert "expected --run, if you trust who made them" in capsys.readouterr().err


def test_the_metric_tells_a_digest_and_judges_by_it(tmp_path, capsys):
    recipe = RECIPE.replace("(d5.TestAccuracy(), None)", "(d5.metrics.BitwiseEqual(EXPECTED), 1)")
    said = []
    for number in range(3):
        expected = [None, "0" * 64, said[0]["remark"].split()[-1] if said else ""][number]
        path = tmp_path / f"job{number}.py"
        path.write_text(recipe.replace("EXPECTED", repr(expected)))
        capsys.readouterr()
        code = cli.main(["run", str(path), "--json", "--out", str(tmp_path / "results")])
        printed = capsys.readouterr()
        said.append({**json.loads(printed.out)["metrics"][0], "code": code})
    assert [metric["value"] for metric in said] == [None, 0.0, 1.0] and said[2]["code"] == 0
    with pytest.raises(InputError, match="64 digits"):
        BitwiseEqual("abc")


def test_an_update_that_is_off_by_one_unit_is_named(tmp_path, capsys):
    """In the third step, of one element."""
    sides = [run(tmp_path, "one", RECIPE), run(tmp_path, "two", RECIPE.replace("NUDGE = 0", "NUDGE = 3"))]
    code, verdict = bits(capsys, *sides)
    parting = verdict["parting"]
    assert code == 1 and parting["step"] == 3 and parting["where"] == "update of parameter 'fc2.weight'"
    assert parting["index"] == [1, 0] and parting["ulps"] == 1 and parting["elements"] == 1
    code, verdict = bits(capsys, *sides, "--steps", "2")
    assert code == 0 and verdict["steps"] == 2


def test_an_operator_that_is_off_by_one_unit_is_to_blame(tmp_path, capsys):
    """In the forward pass of the first step: a value of one name, of which all that it is computed from is the same."""
    fault = RECIPE.replace('"epochs": 2}', '"epochs": 2, "network_transformations": [planted]}')
    code, verdict = bits(capsys, run(tmp_path, "one", RECIPE), run(tmp_path, "two", fault))
    parting = verdict["parting"]
    assert code == 1 and parting["step"] == 1 and parting["index"][1] == 2 and parting["ulps"] <= 2
    assert parting["where"].startswith("forward, value 'relu1' of node") and "(Relu)" in parting["where"]


def faulty(value):
    """A backend one of whose values is off by one unit."""
    reference = load_backend("reference")

    def build(network):
        executor = reference.from_model(network)
        plain = executor.inference

        def inference(feeds, outputs=None):
            wanted = list(executor.network.outputs if outputs is None else outputs)
            results = plain(feeds, wanted)
            place = [node.name for node in network.nodes]
            broken = False
            for name in wanted:
                producer = network.producer(name)
                late = producer is not None and place.index(producer.name) >= place.index(network.producer(value).name)
                if late and not broken:
                    results[name] = np.array(results[name])
                    results[name].flat[0] = np.nextafter(results[name].flat[0], np.float32(9))
                    broken = True
            return results

        executor.inference = inference
        return executor

    return Candidate("faulty", build)


def test_the_first_value_of_a_model_that_differs_is_named():
    network = create("lenet", shape=(1, 28, 28))
    value = network.nodes[3].outputs[0]
    good = Candidate("reference", load_backend("reference").from_model)
    assert compare_networks([network, network], [good, good]).parting is None
    parting = compare_networks([network, network], [good, faulty(value)]).parting
    assert f"value {value!r} of node {network.nodes[3].name!r}" in parting.where and parting.ulps == 1


def test_two_backends_part_where_sums_do(tmp_path, capsys):
    pytest.importorskip("torch")
    path = tmp_path / "model.onnx"
    add_loss(create("mlp", shape=(40,), hidden=(30,), classes=3)).to_onnx(path)
    code, verdict = bits(capsys, str(path), "--backend", "reference,pytorch")
    assert code in (0, 1)
    if code:
        assert "of node" in verdict["parting"]["where"] and verdict["parting"]["ulps"] >= 1


def test_two_files(tmp_path, capsys):
    network = create("mlp", shape=(4,), hidden=(3,), classes=2)
    network.to_onnx(tmp_path / "a.onnx")
    changed = Network.from_onnx(tmp_path / "a.onnx")
    weight = np.array(changed.parameters["fc2.weight"].value)
    weight += np.float32(0.01)
    changed.set_parameter("fc2.weight", weight)
    changed.to_onnx(tmp_path / "b.onnx")
    code, verdict = bits(capsys, str(tmp_path / "a.onnx"), str(tmp_path / "b.onnx"))
    assert code == 1 and "'fc2'" in verdict["parting"]["where"]


@pytest.mark.parametrize("words", [["a"], ["a", "b", "c"], ["a", "--backend", "x,y,z"], ["a", "b", "--steps", "0"]])
def test_what_cannot_be_compared_is_bad_usage(words, capsys):
    assert cli.main(["bits", *words]) == InputError.exit_code
    assert "expected" in capsys.readouterr().err


@given(st.floats(-(2.0**100), 2.0**100, width=32), st.integers(-3, 3))
def test_units_count_the_numbers_in_between(value, steps):
    a = np.array([value], "float32")
    b = a.copy()
    with np.errstate(under="ignore"):
        for _ in range(abs(steps)):
            b = np.nextafter(b, np.float32(np.inf if steps > 0 else -np.inf))
    assert int(ulps(a, b)[0]) == abs(steps)


def test_bits_are_not_values():
    """Zeros of both signs are two, a NaN is itself, and a shape is more than its elements."""
    zero = apart(np.array([0.0, 1.0]), np.array([-0.0, 1.0]), "x")
    assert zero.ulps == 0 and zero.elements == 1
    assert apart(np.array([np.nan]), np.array([np.nan]), "x") is None
    assert apart(np.array([np.nan]), np.array([1.0]), "x").ulps is None
    assert apart(np.zeros((2, 1)), np.zeros((1, 2)), "x").index == ()
    assert apart(np.array(3), np.array(4), "x").first == 3
