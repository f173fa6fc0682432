"""The networks: six of the zoo, six read from files that PyTorch's exporter wrote."""

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
}
"""By name; each makes the network, with a loss, and a batch."""
IMPORTED = tuple(NETWORKS)[6:]
