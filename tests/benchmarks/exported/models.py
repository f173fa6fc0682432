"""The thirty files: name -> a function that writes the model; each is exported by the tools of its own users."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from tests.benchmarks.exported import modules as m
from tests.models.exporting import prepare

Write = Callable[[Path], None]
MODELS: dict[str, Write] = {}
LIGHT = ("repvgg", "recurrent cell", "two dynamic sizes", "qdq", "function of another domain")
"""What a test runs every time: cheap, and of five kinds."""
IMAGE, SMALL = (1, 3, 32, 32), (2, 3, 16, 16)


def model(name: str) -> Callable[[Write], Write]:
    """Add a model to the table."""

    def add(write: Write) -> Write:
        MODELS[name] = write
        return write

    return add


def export(module: Any, arrays: tuple[torch.Tensor, ...], path: Path, half: bool = False, **options: Any) -> None:
    """Export a module in evaluation mode, with statistics of a batch, by PyTorch's exporter."""
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        module = prepare(module, arrays)
        if half:
            module, arrays = module.half(), tuple(a.half() if a.is_floating_point() else a for a in arrays)
        torch.onnx.export(module, arrays, path, dynamo=False, opset_version=options.pop("opset_version", 17), **options)


def image_model(name: str, body: Callable[[], Any], shape: tuple[int, ...] = IMAGE, **options: Any) -> None:
    """Add a model of one image, its first size dynamic."""

    @model(name)
    def write(path: Path) -> None:
        torch.manual_seed(0)
        axes = {"image": {0: "batch"}}
        export(
            body(),
            (torch.randn(shape),),
            path,
            input_names=["image"],
            output_names=["out"],
            dynamic_axes=axes,
            **options,
        )


def _repvgg() -> Any:
    blocks = [
        m.Sum(m.conv(16, 16, act=None), m.conv(16, 16, 1, act=None), nn.BatchNorm2d(16), act=nn.ReLU())
        for _ in range(3)
    ]
    return m.Head(nn.Sequential(m.conv(3, 16, stride=2), *blocks), 16)


def _mobileone() -> Any:
    branches = [m.conv(16, 16, groups=16, act=None) for _ in range(3)]
    block = m.Sum(*branches, m.conv(16, 16, 1, groups=16, act=None), nn.BatchNorm2d(16), act=nn.ReLU())
    return m.Head(nn.Sequential(m.conv(3, 16), block, m.conv(16, 32, 1)), 32)


def _residual(*, groups: int = 1) -> Any:
    block = nn.Sequential(m.conv(16, 16, 1), m.conv(16, 16, groups=groups), m.conv(16, 16, 1, act=None))
    return m.Head(nn.Sequential(m.conv(3, 16), m.Sum(block, None, act=nn.ReLU())), 16)


def _inverted(act: Any, excite: bool) -> Any:
    inner = [m.conv(8, 32, 1, act=act), m.conv(32, 32, groups=32, act=act)]
    inner += [m.SqueezeExcite(32)] * excite
    return m.Head(
        nn.Sequential(m.conv(3, 8, act=act), m.Sum(nn.Sequential(*inner, m.conv(32, 8, 1, act=None)), None)), 8
    )


def _inception() -> Any:
    pool = nn.Sequential(nn.AvgPool2d(3, 1, 1), m.conv(16, 8, 1))
    join = m.Join(m.conv(16, 8, 1), nn.Sequential(m.conv(16, 8, 1), m.conv(8, 8)), pool, m.conv(16, 8))
    return m.Head(nn.Sequential(m.conv(3, 16), join, nn.MaxPool2d(2)), 32)


def _dense() -> Any:
    return m.Head(
        nn.Sequential(m.conv(3, 8), m.Join(nn.Identity(), m.conv(8, 8)), m.Join(nn.Identity(), m.conv(16, 8))), 24
    )


def _squeeze() -> Any:
    fire = nn.Sequential(m.conv(8, 4, 1), m.Join(m.conv(4, 8, 1), m.conv(4, 8)))
    return m.Head(nn.Sequential(m.conv(3, 8), fire), 16)


def _lenet() -> Any:
    layers = [
        nn.Conv2d(1, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
    ]
    return nn.Sequential(*layers, nn.Linear(256, 84), nn.ReLU(), nn.Linear(84, 10))


def _autoencoder() -> Any:
    down = [m.conv(3, 8, stride=2), m.conv(8, 16, stride=2)]
    return nn.Sequential(
        *down, nn.ConvTranspose2d(16, 8, 2, 2), nn.ReLU(), nn.ConvTranspose2d(8, 3, 2, 2), nn.Sigmoid()
    )


image_model("lenet", _lenet, (1, 1, 28, 28))
image_model("vgg", lambda: m.Head(nn.Sequential(m.conv(3, 8), m.conv(8, 8), nn.MaxPool2d(2), m.conv(8, 16)), 16))
image_model("resnet", _residual)
image_model("resnext", lambda: _residual(groups=4))
image_model("repvgg", _repvgg)
image_model("mobileone", _mobileone)
image_model("mobilenet v2", lambda: _inverted(nn.ReLU6, False))
image_model("mobilenet v3", lambda: _inverted(nn.Hardswish, True))
image_model("efficientnet", lambda: _inverted(nn.SiLU, True))
image_model("shufflenet", lambda: m.Head(nn.Sequential(m.conv(3, 16), m.Shuffle(16)), 16))
image_model("squeezenet", _squeeze)
image_model("inception", _inception)
image_model("densenet", _dense)
image_model("convnext", lambda: m.Head(nn.Sequential(nn.Conv2d(3, 16, 4, 4), m.ConvNeXtBlock(16)), 16))
image_model("u-net", m.UNet)
image_model("autoencoder", _autoencoder)
image_model("vit", m.ViT)
image_model("float16", _residual, half=True)
image_model("initializers as inputs", _residual, keep_initializers_as_inputs=True, opset_version=15)


@model("unnamed batch")
def _unnamed(path: Path) -> None:
    """What a user writes by hand: the batch has no name, (None, 16)."""
    torch.manual_seed(0)
    export(m.TwoHeads(), (torch.randn(2, 16),), path, input_names=["x"], dynamic_axes={"x": [0]})
    file = onnx.load(path)
    for value in (*file.graph.input, *file.graph.output):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param:
                size.Clear()
    onnx.save(file, path)


@model("two dynamic sizes")
def _encoder(path: Path, half: bool = False) -> None:
    """As transformers export: token ids and a mask, batch and sequence dynamic."""
    torch.manual_seed(0)
    arrays = torch.randint(64, (2, 7)), torch.ones(2, 7, dtype=torch.int64)
    names = ["input_ids", "attention_mask"]
    axes = {name: {0: "batch_size", 1: "sequence_length"} for name in names}
    outputs = ["last_hidden_state", "pooler_output"]
    axes |= {"last_hidden_state": axes["input_ids"], "pooler_output": {0: "batch_size"}}
    export(m.Encoder(), arrays, path, half, input_names=names, output_names=outputs, dynamic_axes=axes)


@model("float16, two dynamic sizes")
def _half_encoder(path: Path) -> None:
    _encoder(path, half=True)


@model("one weight for two nodes")
def _decoder(path: Path) -> None:
    torch.manual_seed(0)
    axes = {"input_ids": {0: "batch_size"}}
    export(m.Decoder(), (torch.randint(64, (2, 8)),), path, input_names=["input_ids"], dynamic_axes=axes)


@model("recurrent cell")
def _recurrent(path: Path) -> None:
    torch.manual_seed(0)
    export(m.Recurrent(), (torch.randn(1, 4, 32),), path, input_names=["x"])


@model("lstm")
def _lstm(path: Path) -> None:
    torch.manual_seed(0)
    export(m.Sequence("LSTM"), (torch.randn(1, 5, 16),), path, input_names=["x"])


@model("control flow")
def _conditional(path: Path) -> None:
    torch.manual_seed(0)
    export(torch.jit.script(m.Conditional()), (torch.randn(2, 16),), path, input_names=["x"])


@model("qdq")
def _qdq(path: Path) -> None:
    """Static quantization, in DequantizeLinear and QuantizeLinear, by ONNX Runtime's tool."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            rng = np.random.default_rng(0)
            self.data = iter([{"image": rng.normal(size=IMAGE).astype("float32")} for _ in range(4)])

        def get_next(self) -> Any:
            return next(self.data, None)

    plain = path.with_name(f"{path.stem}-plain.onnx")
    MODELS["squeezenet"](plain)
    quantize_static(plain, path, Reader(), quant_format=QuantFormat.QDQ)


@model("dynamically quantized")
def _dynamic(path: Path) -> None:
    from onnxruntime.quantization import quantize_dynamic

    plain = path.with_name(f"{path.stem}-plain.onnx")
    MODELS["unnamed batch"](plain)
    quantize_dynamic(plain, path)


def _by_hand(
    path: Path, nodes: list[Any], weights: dict[str, Any], output: str, opsets: list[Any], **more: Any
) -> None:
    """A file whose input is x (N, 16) and whose output has as many columns."""
    described = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 16]) for name in ("x", output)]
    arrays = [numpy_helper.from_array(np.asarray(value, "float32"), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "by hand", described[:1], described[1:], arrays)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9, **more), path)


@model("function of another domain")
def _function(path: Path) -> None:
    """A custom operator with its body in the file: what runtimes that do not know it execute."""
    rng, own = np.random.default_rng(0), helper.make_opsetid("my.company", 1)
    opsets = [helper.make_opsetid("", 17), own]
    body = [helper.make_node("Sigmoid", ["a"], ["s"]), helper.make_node("Mul", ["a", "s"], ["b"])]
    function = helper.make_function("my.company", "MySwish", ["a"], ["b"], body, opsets[:1])
    nodes = [helper.make_node("MatMul", ["x", f"w{n}"], [f"p{n}"], name=f"p{n}") for n in range(3)]
    nodes += [helper.make_node("MySwish", [f"p{n}"], [f"s{n}"], domain="my.company") for n in range(3)]
    nodes += [helper.make_node("Sum", ["s0", "s1", "s2"], ["y"])]
    weights = {f"w{n}": rng.normal(size=(16, 16)) / 4 for n in range(3)}
    _by_hand(path, nodes, weights, "y", opsets, functions=[function])


@model("onnx runtime's operators")
def _fused(path: Path) -> None:
    """What ONNX Runtime's own transformer optimizer writes."""
    rng, own = np.random.default_rng(0), {"domain": "com.microsoft"}
    nodes = [
        helper.make_node("FusedMatMul", ["x", "w0"], ["a"], alpha=0.5, **own),
        helper.make_node("BiasGelu", ["a", "b"], ["g"], **own),
        helper.make_node("MatMul", ["g", "w1"], ["c"]),
        helper.make_node("MatMul", ["g", "w2"], ["d"]),
        helper.make_node("Add", ["c", "d"], ["e"]),
        helper.make_node("SkipLayerNormalization", ["e", "x", "gamma", "beta"], ["y"], epsilon=1e-5, **own),
    ]
    weights = {f"w{n}": rng.normal(size=(16, 16)) / 4 for n in range(3)}
    weights |= {name: rng.normal(size=16) for name in ("b", "gamma", "beta")}
    _by_hand(path, nodes, weights, "y", [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])
