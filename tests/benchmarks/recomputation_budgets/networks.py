"""The networks: six of the zoo, six read from files that PyTorch's exporter wrote, four modules not tuned to."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from deep500.networks import Network, add_loss, create
from deep500.networks.emit import Emitter
from deep500.networks.execution.inputs import make_inputs
from deep500.networks.objects import as_network

Subject = tuple[Network, dict[str, np.ndarray]]
Make = Callable[[], Subject]


def _zoo(model: str, batch: int, **options: Any) -> Make:
    def make() -> Subject:
        network = add_loss(create(model, **options))
        return network, make_inputs(network, batch)

    return make


def _exported(build: Callable[[], Any], **shapes: tuple[int, ...]) -> Make:
    """A module's file, in training mode; the loss is the mean of its output's squares."""

    def make() -> Subject:
        import torch

        torch.manual_seed(0)
        module, file = build().train(), io.BytesIO()
        inputs = {name: torch.randn(shape) for name, shape in shapes.items()}
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            mode = torch.onnx.TrainingMode.PRESERVE
            names: dict[str, Any] = {"input_names": list(inputs), "output_names": ["y"], "opset_version": 18}
            options: dict[str, Any] = {"training": mode, "do_constant_folding": False, "dynamo": False}
            torch.onnx.export(module, tuple(inputs.values()), file, **names, **options)
        network = Network.from_onnx(file.getvalue())
        emit = Emitter(network)
        emit("ReduceMean", emit("Mul", "y", "y"), output="loss", keepdims=0)
        network.add_output("loss")
        return network, {name: value.numpy() for name, value in inputs.items()}

    return make


def _vision(name: str) -> Callable[[], Any]:
    """One of the models that the table of other people's collections has."""

    def build() -> Any:
        from tests.models.architectures import ARCHITECTURES

        return ARCHITECTURES[name].build()

    return build


def _bottlenecks() -> Any:
    """torchvision's ResNet of eight narrow bottlenecks: activations outweigh the gradients of its parameters."""
    from tests.models.architectures.architecture import import_torchvision

    import_torchvision()
    from torchvision.models.resnet import Bottleneck, ResNet

    return ResNet(Bottleneck, [2, 2, 2, 2], num_classes=10, width_per_group=8)


def _diffusion() -> Any:
    from tests.benchmarks.imported.models import DiffusionUNet

    return DiffusionUNet()


def _encoder() -> Any:
    from torch import nn

    layer = nn.TransformerEncoderLayer(128, 4, 512, 0.1, "gelu", batch_first=True)
    return nn.Sequential(nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), nn.Linear(128, 50))


def _cell() -> Any:
    """An LSTM's cell, written out for every step: two values cross from each to the next."""
    import torch
    from torch import nn

    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.out = nn.LSTMCell(64, 128), nn.Linear(128, 10)

        def forward(self, x: Any) -> Any:
            h = c = torch.zeros(x.shape[0], 128)
            for step in range(x.shape[1]):
                h, c = self.cell(x[:, step], (h, c))
            return self.out(h)

    return Cell()


def _module(build: Callable[[], Any], **shapes: tuple[int, ...]) -> Make:
    """A module as ``as_network`` takes it, with its author's names; the loss is the mean of its output's squares."""

    def make() -> Subject:
        import torch

        torch.manual_seed(0)
        inputs = {name: torch.randn(shape) for name, shape in shapes.items()}
        network = as_network(build().train(), example=tuple(inputs.values()))
        emit, (output, *_) = Emitter(network), network.outputs
        emit("ReduceMean", emit("Mul", output, output), output="loss", keepdims=0)
        network.add_output("loss")
        return network, {name: v.numpy() for name, v in zip(network.inputs, inputs.values(), strict=True)}

    return make


def _attending_unet() -> Any:
    """Three levels with connections across, attention in the two lower ones."""
    import torch
    from torch import nn

    from tests.benchmarks.imported.models import SpatialAttention

    def block(inputs: int, width: int, attends: bool) -> Any:
        convolved = [nn.Conv2d(inputs, width, 3, padding=1), nn.GroupNorm(8, width), nn.SiLU()]
        again = [nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(8, width), nn.SiLU()]
        return nn.Sequential(*convolved, *again, *([SpatialAttention(width)] if attends else []))

    class AttendingUNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = (16, 32, 64)
            self.down = nn.ModuleList(block(a, b, b > 16) for a, b in zip((3, 16, 32), widths, strict=True))
            self.middle = block(64, 64, True)
            self.up = nn.ModuleList(block(2 * b, a, b > 16) for a, b in ((32, 64), (16, 32), (16, 16)))
            self.last = nn.Conv2d(16, 3, 1)

        def forward(self, x: Any) -> Any:
            across = []
            for down in self.down:
                x = down(x)
                across.append(x)
                x = nn.functional.avg_pool2d(x, 2)
            x = self.middle(x)
            for up, skip in zip(self.up, reversed(across), strict=True):
                x = up(torch.cat([nn.functional.interpolate(x, scale_factor=2.0), skip], 1))
            return self.last(x)

    return AttendingUNet()


def _vgg() -> Any:
    """VGG-16's thirteen convolutions at a quarter of their width."""
    from torch import nn

    layers, width = list[Any](), 3
    for next_width in (16, 16, 0, 32, 32, 0, 64, 64, 64, 0, 128, 128, 128, 0, 128, 128, 128, 0):
        layers += [nn.Conv2d(width, next_width, 3, padding=1), nn.ReLU()] if next_width else [nn.MaxPool2d(2)]
        width = next_width or width
    return nn.Sequential(nn.Sequential(*layers), nn.Flatten(), nn.Linear(width * 4, 10))


def _recurrent() -> Any:
    """A GRU's cell, written out for every step."""
    import torch
    from torch import nn

    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.out = nn.GRUCell(64, 128), nn.Linear(128, 10)

        def forward(self, x: Any) -> Any:
            h = torch.zeros(x.shape[0], 128)
            for step in range(x.shape[1]):
                h = self.cell(x[:, step], h)
            return self.out(h)

    return Steps()


def _decoder() -> Any:
    """Six pre-normalised blocks with causal attention, as in GPT-2."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            n, t, width = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, 4, width // 4).permute(2, 0, 3, 1, 4).unbind()
            attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(attended.transpose(1, 2).reshape(n, t, width))
            return x + self.mlp(self.norm2(x))

    return nn.Sequential(*(Block(128) for _ in range(6)), nn.LayerNorm(128), nn.Linear(128, 256))


NETWORKS: Mapping[str, Make] = {
    "mixed_resnet": _zoo("mixed_resnet", 8),
    "unet": _zoo("unet", 8, shape=(3, 64, 64)),
    "transformer": _zoo("transformer", 16, shape=(64,), layers=6),
    "nested_resnet": _zoo("nested_resnet", 16),
    "resnet20": _zoo("resnet", 32, depth=20),
    "squeezenet": _zoo("squeezenet", 8, shape=(3, 96, 96)),
    "resnet (torchvision)": _exported(_bottlenecks, images=(16, 3, 64, 64)),
    "mobilenet_v3 (torchvision)": _exported(_vision("mobilenet_v3_small"), images=(8, 3, 96, 96)),
    "densenet (torchvision)": _exported(_vision("densenet"), images=(8, 3, 64, 64)),
    "diffusion U-Net": _exported(_diffusion, images=(4, 4, 32, 32), times=(4, 32)),
    "encoder": _exported(_encoder, words=(8, 64, 128)),
    "LSTM cell, 24 steps": _exported(_cell, words=(64, 24, 64)),
    "U-Net with attention": _module(_attending_unet, images=(4, 3, 32, 32)),
    "VGG-16, quarter": _module(_vgg, images=(8, 3, 64, 64)),
    "GRU cell, 20 steps": _module(_recurrent, words=(64, 20, 64)),
    "GPT, 6 blocks": _module(_decoder, words=(8, 64, 128)),
}
"""By name; each makes the network, with a loss, and a batch."""
IMPORTED = tuple(NETWORKS)[6:12]
HELD_OUT = tuple(NETWORKS)[12:]
