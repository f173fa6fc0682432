"""What PyTorch has against a network while it runs becomes an error of Deep500's that names the node."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

torch = pytest.importorskip("torch")

import deep500.frameworks.pytorch as d5fw  # noqa: E402
from deep500.errors import InputError, NetworkError, UnsupportedOperator  # noqa: E402
from deep500.networks import Network, add_loss, create  # noqa: E402

pytestmark = pytest.mark.backend("pytorch")
TINY = np.dtype(ml_dtypes.float8_e4m3fn)


def one_node(op_type: str, dtypes: list[str], **attributes: Any) -> Any:
    net = Network("net")
    names = [f"x{i}" for i in range(len(dtypes))]
    for name, dtype in zip(names, dtypes, strict=True):
        net.add_input(name, (None, None), dtype)
    net.add_node(op_type, names, ["y"], name="culprit", **attributes)
    net.add_output("y")
    return d5fw.from_model(net)


@pytest.mark.parametrize("op_type", ["Add", "Sub"])
def test_arithmetic_without_a_kernel(op_type: str) -> None:
    executor = one_node(op_type, ["float8_e4m3fn", "float8_e4m3fn"])
    x = np.ones((2, 2), TINY)
    with pytest.raises(UnsupportedOperator, match=rf"^node 'culprit' \({op_type}\): got .*not implemented for 'Float8"):
        executor.inference({"x0": x, "x1": x})


def test_operands_that_do_not_fit() -> None:
    executor = one_node("Add", ["float32", "float32"])
    with pytest.raises(NetworkError, match=r"^node 'culprit' \(Add\): got The size of tensor a .*; expected operands"):
        executor.inference({"x0": np.ones((2, 3), "f4"), "x1": np.ones((4, 3), "f4")})
    assert executor.inference({"x0": np.ones((2, 3), "f4"), "x1": np.ones((2, 3), "f4")})["y"].sum() == 12


def test_errors_in_sub_graphs_name_the_node_that_holds_them() -> None:
    inner = helper.make_graph(
        [helper.make_node("Add", ["x", "z"], ["inside"])],
        "then",
        [],
        [helper.make_tensor_value_info("inside", 1, None)],
    )
    net = Network("net")
    for name in ("x", "z"):
        net.add_input(name, (None, 3))
    net.add_input("which", (), "bool")
    net.add_node("Add", ["x", "x"], ["twice"], name="innocent")
    net.add_node("If", ["which"], ["y"], name="culprit", then_branch=inner, else_branch=inner)
    net.add_node("Add", ["y", "twice"], ["sum"])
    net.add_output("sum")
    with pytest.raises(NetworkError, match=r"^node 'culprit' \(If\): got The size of tensor a"):
        d5fw.from_model(net).inference(
            {"x": np.ones((2, 3), "f4"), "z": np.ones((4, 3), "f4"), "which": np.array(True)}
        )


def test_indices_that_do_not_exist() -> None:
    executor = one_node("Gather", ["float32", "int64"])
    with pytest.raises(InputError, match=r"^node 'culprit' \(Gather\): got an index out of range"):
        executor.inference({"x0": np.ones((2, 3), "f4"), "x1": np.full((1, 1), 7)})


def test_labels_that_do_not_exist() -> None:
    executor = d5fw.from_model(add_loss(create("mlp", shape=(4,))))
    with pytest.raises(InputError, match="got label or index 99; expected 0 to 9: check the data"):
        executor.inference_and_backprop({"input": np.ones((2, 4), "f4"), "label": np.array([0, 99])})


def test_errors_of_other_people_pass() -> None:
    executor = d5fw.from_model(create("mlp", shape=(4,)))

    def hook(*args: Any) -> None:
        raise RuntimeError("the hook's own")

    handle = executor.module.register_forward_hook(hook)
    with pytest.raises(RuntimeError, match="the hook's own") as caught:
        executor.inference({"input": np.ones((2, 4), "f4")})
    assert type(caught.value) is RuntimeError
    handle.remove()


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    executor = one_node("Add", ["float32", "float32"])
    with pytest.raises(NetworkError):
        executor.inference({"x0": np.ones((2, 3), "f4"), "x1": np.ones((4, 3), "f4")})
    assert capfd.readouterr() == ("", "")
