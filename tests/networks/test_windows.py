"""Sizes of what slides over a tensor, against ONNX's own inference of shapes."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from deep500.networks.attributes import Sliding, collect
from deep500.networks.windows import make_transposed, make_window


def inferred(kind: str, sizes: list[int], kernel: list[int], attributes: dict[str, Any]) -> tuple[int, ...]:
    """Spatial sizes of the result."""
    names = ["x", "w"] if "Conv" in kind else ["x"]
    node = helper.make_node(kind, names, ["y"], kernel_shape=kernel, **attributes)
    shapes = {"x": [1, 1, *sizes], "w": [1, 1, *kernel]}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in names]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", inputs, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])
    shape = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.output[0].type.tensor_type.shape
    return tuple(d.dim_value for d in shape.dim)[2:]


CASES: list[dict[str, Any]] = [
    {},
    {"strides": [2, 3]},
    {"strides": [2, 1], "dilations": [1, 2]},
    {"pads": [1, 0, 2, 1], "strides": [3, 2]},
    {"auto_pad": "VALID", "strides": [2, 2]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 3]},
    {"auto_pad": "SAME_LOWER", "strides": [3, 1]},
]


@pytest.mark.parametrize("attributes", CASES, ids=str)
@pytest.mark.parametrize("ceil", [0, 1])
def test_windows_are_as_many_as_onnx_says(attributes: dict[str, Any], ceil: int) -> None:
    for sizes in ([7, 9], [8, 11], [5, 6]):
        window = make_window(sizes, [3, 2], collect(Sliding, {**attributes, "ceil_mode": ceil}))
        assert window.out == inferred("MaxPool", sizes, [3, 2], {**attributes, "ceil_mode": ceil})
        spans = [(o - 1) * s + r for o, s, r in zip(window.out, window.strides, window.reach, strict=True)]
        there = [b + n + e for b, n, e in zip(window.begin, sizes, window.whole_end, strict=True)]
        assert all(span <= room for span, room in zip(spans, there, strict=True))  # the last window has its elements


@pytest.mark.parametrize("attributes", [*CASES[:5], {"output_padding": [1, 0], "strides": [2, 2]}], ids=str)
def test_results_of_transposed_convolutions_have_onnx_sizes(attributes: dict[str, Any]) -> None:
    window = make_transposed([4, 5], [3, 2], collect(Sliding, attributes))
    assert window.out == inferred("ConvTranspose", [4, 5], [3, 2], attributes)


def test_an_output_shape_decides_what_is_cut_away() -> None:
    window = make_transposed([3, 3], [3, 3], Sliding(output_shape=[1, 1, 6, 5], strides=(2, 2), auto_pad="SAME_UPPER"))
    assert (window.out, window.begin, window.end) == ((6, 5), (0, 1), (1, 1))


@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
def test_unknown_sizes_are_needed_by_strides_alone(auto_pad: str) -> None:
    settings = Sliding(auto_pad=auto_pad)
    unknown, known = make_window([None], [4], settings), make_window([9], [4], settings)
    assert (unknown.begin, unknown.end, unknown.out) == (known.begin, known.end, ())
    if auto_pad != "NOTSET":
        with pytest.raises(TypeError):
            make_window([None], [4], settings._replace(strides=(2,)))
