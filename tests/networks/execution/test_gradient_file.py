"""``deep500 gradient``: the written file in a bare session of ONNX Runtime, against PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from deep500 import cli
from deep500.networks import Network
from tests.networks.gradients.rules.test_control import CASES, loop, torch_gradients

torch = pytest.importorskip("torch")
ort = pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(8)


def classifier(dtype: str = "float64", loss: bool = False) -> tuple[Network, dict[str, np.ndarray]]:
    """Convolution, batch normalization, ReLU, global average, matrix product, as a user's file has them."""
    net = Network("classifier")
    net.add_input("x", ("N", 2, 5, 5), dtype)
    arrays = {
        "conv.weight": RNG.normal(size=(4, 2, 3, 3)), "conv.bias": RNG.normal(size=4),
        "bn.weight": RNG.uniform(0.5, 2, 4), "bn.bias": RNG.normal(size=4),
        "bn.mean": RNG.normal(size=4), "bn.var": RNG.uniform(0.5, 2, 4), "fc.weight": RNG.normal(size=(4, 3)),
    }  # fmt: skip
    for name, array in arrays.items():
        net.add_parameter(name, array.astype(dtype), trainable=name not in ("bn.mean", "bn.var"))
    net.add_node("Conv", ["x", "conv.weight", "conv.bias"], ["c"], pads=[1, 1, 1, 1])
    net.add_node(
        "BatchNormalization", ["c", "bn.weight", "bn.bias", "bn.mean", "bn.var"], ["b"], epsilon=2.0**-7, momentum=0.875
    )
    net.add_node("Relu", ["b"], ["r"])
    net.add_node("ReduceMean", ["r"], ["pooled"], keepdims=0)
    if loss:
        net.add_output("pooled")
        return net, arrays
    net.remove_node("ReduceMean_pooled")
    net.add_node("GlobalAveragePool", ["r"], ["g"])
    net.add_node("Flatten", ["g"], ["f"])
    net.add_node("MatMul", ["f", "fc.weight"], ["scores"])
    net.add_output("scores")
    return net, arrays


def twin(arrays: dict[str, np.ndarray], x: np.ndarray, training: bool) -> tuple[dict[str, Any], Any]:
    p = {n: torch.tensor(a, requires_grad=n not in ("bn.mean", "bn.var")) for n, a in arrays.items()}
    p["x"] = torch.tensor(x, requires_grad=True)
    c = torch.nn.functional.conv2d(p["x"], p["conv.weight"], p["conv.bias"], padding=1)
    norm = torch.nn.functional.batch_norm
    b = norm(c, p["bn.mean"], p["bn.var"], p["bn.weight"], p["bn.bias"], training, 0.125, 2.0**-7)
    return p, torch.relu(b).mean((2, 3)) @ p["fc.weight"]


def written(net: Network, folder: Path, *words: str) -> Any:
    """A bare session of what the command makes of a network's file."""
    net.to_onnx(folder / "model.onnx")
    out = folder / "gradient.onnx"
    assert cli.main(["gradient", str(folder / "model.onnx"), "-o", str(out), *words]) == 0
    model = onnx.load(out)
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version <= 13
    return ort.InferenceSession(out)


@pytest.mark.parametrize("training", [False, True])
def test_file_gives_pytorchs_gradients(training: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net, arrays = classifier()
    words = ["--loss", "cross_entropy", "--wrt", "x", *["--training"] * training]
    session = written(net, tmp_path, *words)
    x, label = RNG.normal(size=(6, 2, 5, 5)), np.array([0, 1, 2, 2, 1, 0])
    p, scores = twin(arrays, x, training)
    loss = torch.nn.functional.cross_entropy(scores, torch.tensor(label))
    loss.backward()
    names = [output.name for output in session.get_outputs()]
    got = dict(zip(names, session.run(None, {"x": x, "label": label}), strict=True))
    np.testing.assert_allclose(got["loss"], loss.detach().numpy(), rtol=1e-9)
    for name, value in p.items():
        if value.requires_grad:
            np.testing.assert_allclose(got[f"{name}.grad"], value.grad.numpy(), rtol=1e-9, atol=1e-9, err_msg=name)
        elif training:
            np.testing.assert_allclose(got[f"{name}.new"], value.numpy(), rtol=1e-9, err_msg=name)
    shown = capsys.readouterr().out
    assert "gradient of loss with respect to fc.weight" in shown and "x.grad" in shown
    fields = {value.name: value.doc_string for value in onnx.load(tmp_path / "gradient.onnx").graph.output}
    assert fields["fc.weight.grad"] == "gradient of loss with respect to fc.weight"


def test_parameters_are_inputs_with_a_default(tmp_path: Path) -> None:
    """A gradient at other weights than those of the file; frozen ones are no inputs."""
    net, arrays = classifier("float32")
    words = ["--loss", "mean_squared_error", "--target", "wanted", "--trainable", "fc*", "--trainable", "conv.bias"]
    session = written(net, tmp_path, *words)
    assert {v.name for v in session.get_inputs()} == {"x", "wanted"}
    assert {v.name for v in session.get_overridable_initializers()} == {"fc.weight", "conv.bias"}
    x, wanted = RNG.normal(size=(2, 2, 5, 5)), RNG.normal(size=(2, 3))
    arrays["fc.weight"] = RNG.normal(size=(4, 3))
    p, scores = twin(arrays, x, training=False)
    ((scores - torch.tensor(wanted)) ** 2).mean().backward()
    feeds = {"x": x, "wanted": wanted, "fc.weight": arrays["fc.weight"]}
    found = session.run(["fc.weight.grad", "conv.bias.grad"], {n: v.astype(np.float32) for n, v in feeds.items()})
    for name, got in zip(("fc.weight", "conv.bias"), found, strict=True):
        np.testing.assert_allclose(got, p[name].grad.numpy(), rtol=1e-4, atol=1e-5, err_msg=name)


def test_only_output_with_one_element_is_the_loss(tmp_path: Path) -> None:
    session = written(classifier(loss=True)[0], tmp_path)
    assert [output.name for output in session.get_outputs()][:2] == ["pooled", "conv.weight.grad"]


def test_gradients_through_a_loop_have_the_shapes_of_their_parameters(tmp_path: Path) -> None:
    session = written(loop(50, 9.0), tmp_path, "--loss", "loss")
    outputs = {output.name: output.shape for output in session.get_outputs()}
    assert outputs["w.grad"] == [3, 3] and outputs["x.grad"] == [2, 3]
    got = dict(zip(outputs, session.run(None, {}), strict=True))
    want = torch_gradients(CASES["Loop, until"][1], loop(50, 9.0))
    for name, expected in want.items():
        np.testing.assert_allclose(got[f"{name}.grad"], expected, rtol=1e-9, atol=1e-9, err_msg=name)


BAD = [
    (["--loss", "crossentropy"], "did you mean 'cross_entropy'"),
    ([], "none of them with one element"),
    (["--loss", "scores"], "expected one element"),
    (["--loss", "cross_entropy", "--output", "score"], "did you mean 'scores'"),
    (["--loss", "cross_entropy", "--trainable", "nothing*"], "fits no floating array"),
    (["--loss", "cross_entropy", "--wrt", "y"], "expected a value of the network"),
    (["--loss", "cross_entropy", "-o", "nowhere/g.onnx"], "make the folder first"),
]


@pytest.mark.parametrize(("words", "message"), BAD, ids=[" ".join(words) for words, _ in BAD])
def test_errors_say_what_to_do(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    classifier()[0].to_onnx("model.onnx")
    assert cli.main(["gradient", "model.onnx", "-o", "gradient.onnx", *words]) == 2
    err = capsys.readouterr().err
    assert message in err and "expected" in err and not Path("gradient.onnx").exists()
