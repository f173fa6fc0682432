"""Modules drawn with state of all kinds, three ways into Deep500: ``python -m tests.fuzz.modules``.

A module, the file that PyTorch's exporter makes of it, and that of its older exporter, hold the same network: the same
arrays must train, and some steps on the same batches must have PyTorch's own losses. Drawn are layers that are used
again, tied, copied from one another (equal until they train), parameters and buffers in the same places, ones and
zeros, running statistics, frozen layers, an embedding tied to the last layer; over positions recurrent layers,
convolutions and attention too; slopes of a PReLU, weights as length times direction.
"""

from __future__ import annotations

import argparse
import copy
import io
import logging
import random
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import torch
from torch import nn

from deep500.frameworks import reference
from deep500.networks import add_loss, as_network
from deep500.networks.onnx.load import DoubtfulParametersWarning, LeftOutParametersWarning, MergedParametersWarning
from deep500.networks.onnx.tying import left_out
from deep500.training.optimizers import GradientDescent

WIDTH, ROWS, TOKENS, STEPS, LR = 5, 8, 3, 4, 0.2
WAYS = ("module", "dynamo", "tracing")
CLOSE = 2e-5
"""Of losses in float32, relative."""


class Drawn(nn.Module):
    """Layers one after the other; of each it is known by which words it was drawn."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self.words: list[str] = []
        self.layers = nn.ModuleList()
        self.order: list[tuple[str, Any]] = []
        self.deep = draw.random() < 0.5
        self.embedding = nn.Embedding(WIDTH + 2, WIDTH) if draw.random() < 0.3 else None
        if self.embedding is None and draw.random() < 0.3:
            self._buffer("mean", torch.rand(WIDTH))
            self._buffer("std", torch.rand(WIDTH) + 0.5)
        for _ in range(draw.randint(2, 6)):
            self._add(draw)
        self.head = None
        if self.embedding is not None and draw.random() < 0.7:
            self.words.append("tied head")
            self.head = nn.Linear(WIDTH, WIDTH + 2, bias=draw.random() < 0.5)
            self.head.weight = self.embedding.weight

    def _buffer(self, name: str, value: torch.Tensor) -> None:
        self.register_buffer(name, value)
        self.words.append(name)

    def _add(self, draw: random.Random) -> None:
        linears = [layer for layer in self.layers if type(layer) is nn.Linear]
        kinds = ["linear", "linear", "norm", "scale", "position", "buffer", "spaced", "zero bias", "frozen"]
        kinds += ["again", "tied", "tied", "copy", "copy"] if linears else []
        kinds += ["norm again"] if any(isinstance(layer, nn.LayerNorm) for layer in self.layers) else []
        kinds += [] if self.deep or self.embedding is not None else ["running"]
        kinds += ["prelu", "weight norm", *(["recurrent", "recurrent", "conv", "attention"] if self.deep else [])]
        kind = draw.choice(kinds)
        self.words.append(kind)
        name = f"v{len(self.order)}"
        if kind in ("scale", "position"):
            self.register_parameter(name, nn.Parameter(torch.rand(WIDTH) + 0.5))
            self.order.append((kind, name))
            return
        if kind in ("buffer", "spaced"):
            value = torch.rand(WIDTH) + 0.5 if kind == "buffer" else torch.linspace(0.5, 1.5, WIDTH)
            self.register_buffer(name, value)
            self.order.append(("scale" if draw.random() < 0.5 else "position", name))
            return
        layer = self._layer(kind, draw, linears)
        if not any(layer is known for known in self.layers):
            self.layers.append(layer)
        self.order.append(("layer", next(n for n, known in enumerate(self.layers) if known is layer)))

    def _layer(self, kind: str, draw: random.Random, linears: list[nn.Linear]) -> nn.Module:
        if kind == "norm":
            return nn.LayerNorm(WIDTH)
        if kind == "norm again":
            return next(layer for layer in self.layers if isinstance(layer, nn.LayerNorm))
        if kind == "running":
            return nn.BatchNorm1d(WIDTH)
        if kind == "again":
            return draw.choice(linears)
        if kind == "copy":
            layer = copy.deepcopy(draw.choice(linears))
            self.words += ["bare copy"] if layer.bias is None else []
            return layer
        if kind in ("recurrent", "conv", "attention", "prelu", "weight norm"):
            return self._special(kind, draw)
        layer = nn.Linear(WIDTH, WIDTH, bias=draw.random() < 0.7)
        if kind == "tied":
            layer.weight = draw.choice(linears).weight
        if kind == "zero bias" and layer.bias is not None:
            nn.init.zeros_(layer.bias)
        if kind == "frozen":
            layer.requires_grad_(False)
        return layer

    def _special(self, kind: str, draw: random.Random) -> nn.Module:
        if kind == "recurrent":
            return draw.choice((nn.RNN, nn.GRU, nn.LSTM))(WIDTH, WIDTH, bias=draw.random() < 0.7, batch_first=True)
        if kind == "conv":
            return nn.Conv1d(WIDTH, WIDTH, draw.choice((1, 3)), padding="same", bias=draw.random() < 0.7)
        if kind == "attention":
            return nn.MultiheadAttention(WIDTH, 1, bias=draw.random() < 0.5, batch_first=True)
        if kind == "prelu":
            return nn.PReLU(draw.choice((1, WIDTH)) if not self.deep else 1)
        return nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH, bias=draw.random() < 0.7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of as many columns as rows of the embedding, or WIDTH."""
        if self.embedding is not None:
            x = self.embedding(x)
        elif "mean" in self.words:
            x = (x - self.mean) / self.std
        for kind, what in self.order:
            if kind == "layer":
                x = torch.tanh(applied(self.layers[what], x))
            else:
                value = getattr(self, what)
                x = x * value if kind == "scale" else x + value
        return x if self.head is None else self.head(x)

    def batch(self, seed: int, rows: int = ROWS) -> dict[str, np.ndarray]:
        """An input, and what is wanted."""
        rng = np.random.default_rng(seed)
        shape = (rows, TOKENS) if self.deep else (rows,)
        wanted = WIDTH if self.head is None else WIDTH + 2
        if self.embedding is not None:
            x = rng.integers(0, WIDTH + 2, shape)
        else:
            x = rng.normal(size=(*shape, WIDTH)).astype("float32")
        return {"input": x, "label": rng.normal(size=(*shape, wanted)).astype("float32")}


def applied(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """A layer's first output: samples by positions by features, or samples by features."""
    if isinstance(layer, nn.Conv1d):
        return layer(x.transpose(1, 2)).transpose(1, 2)
    if isinstance(layer, nn.MultiheadAttention):
        return layer(x, x, x, need_weights=False)[0]
    return layer(x)[0] if isinstance(layer, nn.RNNBase) else layer(x)


def drawn(seed: int, number: int) -> Drawn:
    """A number of a seed."""
    draw = random.Random(f"{seed}:{number}")
    torch.manual_seed(draw.randrange(2**31))
    return Drawn(draw).eval()


def undecided(module: Drawn, way: str) -> str:
    """Why a file does not tell what trains; empty if it does, or says that it does not."""
    words = set(module.words)
    if way != "module" and "frozen" in words:
        return "a frozen parameter is stored as one that trains"
    if way == "tracing" and "buffer" in words:
        return "a buffer is stored as a parameter is"
    if way == "tracing" and "copy" in words and words & {"tied", "again", "tied head"}:
        return "equal weights that were transposed are copies or tied"
    if way == "tracing" and "bare copy" in words:
        return "equal weights without names are copies or tied"
    return ""


class Read(NamedTuple):
    """A network, the parameters that it has not, and the warnings about what trains."""

    network: Any
    absent: list[str]
    said: set[type[Warning]]


def network_of(module: Drawn, way: str) -> Read:
    """Take a module one way in."""
    example, absent = torch.from_numpy(module.batch(0, 2)["input"]), []
    with warnings.catch_warnings(record=True) as noted, tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("always")
        if way == "module":
            network = as_network(copy.deepcopy(module), example.numpy())
        elif way == "dynamo":
            path = Path(folder) / "module.onnx"
            sizes = ({0: torch.export.Dim("N", min=2)},)
            torch.onnx.export(module, (example,), path, dynamo=True, dynamic_shapes=sizes, verbose=False)
            network, absent = as_network(path), left_out(onnx.load(path, load_external_data=False).graph)
        else:
            file = io.BytesIO()
            torch.onnx.export(module, (example,), file, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "N"}})
            network = as_network(file.getvalue())
    said = {note.category for note in noted}
    assert bool(absent) == (LeftOutParametersWarning in said)
    return Read(network, absent, said)


def their_losses(module: Drawn, absent: list[str]) -> list[float]:
    """PyTorch's own, where biases that a file has not stay zeros."""
    module = copy.deepcopy(module).train()
    for name in absent:
        module.get_parameter(name).requires_grad_(False)
    descent = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], LR)
    losses = []
    for step in range(STEPS):
        batch = {name: torch.from_numpy(array) for name, array in module.batch(step + 1).items()}
        loss = ((module(batch["input"]) - batch["label"]) ** 2).mean()
        descent.zero_grad()
        loss.backward()
        descent.step()
        losses.append(loss.item())
    return losses


def our_losses(module: Drawn, network: Any) -> list[float]:
    """Those of the reference, which is Deep500's definition."""
    (output,), (name,) = network.outputs, network.inputs
    executor = reference.from_model(add_loss(network, "mean_squared_error", output=output), "cpu")
    optimizer, losses = GradientDescent(executor, lr=LR), []
    for step in range(STEPS):
        batch = module.batch(step + 1)
        losses.append(float(optimizer.step({name: batch["input"], "label": batch["label"]})["loss"]))
    return losses


def values_of(arrays: Any, whole: bool) -> Counter[bytes]:
    """Arrays as bags of numbers, as an exporter may transpose them; as one bag where it may join and cut them."""
    bags = [np.sort(np.asarray(array, np.float32).ravel()) for array in arrays]
    return Counter(bag.tobytes() for bag in bags) if whole else Counter(x.tobytes() for bag in bags for x in bag)


def judge(module: Drawn, way: str) -> str:
    """Name the fault of one way; empty if there is none, ``"said"`` if a warning names what may be wrong."""
    network, absent, said = network_of(module, way)
    if MergedParametersWarning in said and way == "tracing":
        return "said"
    if DoubtfulParametersWarning in said and "weight norm" in module.words and way != "module":
        return "said"  # the exporter computed the product
    whole = not {"recurrent", "attention"} & set(module.words)
    parameters = [p.detach() for n, p in module.named_parameters() if p.requires_grad and n not in absent]
    expected = values_of(parameters, whole)
    got = values_of((network.parameter(name).value for name in network.trainable()), whole)
    if got != expected:
        return f"{sum(got.values())} of {sum(expected.values())} train: {', '.join(network.trainable())}"
    if not expected:
        return ""
    ours, theirs = our_losses(module, network), their_losses(module, absent)
    return "" if np.allclose(ours, theirs, rtol=CLOSE, atol=1e-7) else f"losses {ours}; PyTorch's are {theirs}"


def main() -> int:
    """Draw, compare, print; 1 if a way is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="N")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    words = parser.parse_args()
    logging.disable(logging.WARNING)  # PyTorch's exporters say a lot
    judged, wrong = Counter[str](), 0
    for number in range(words.first, words.first + words.count):
        module = drawn(words.seed, number)
        for way in words.ways:
            if undecided(module, way):
                judged[f"{way} undecided"] += 1
                continue
            fault = judge(module, way)
            judged[way + " said" * (fault == "said")] += 1
            if fault not in ("", "said"):
                wrong += 1
                print(
                    f"{number} {way} ({', '.join(module.words)}; {3 if module.deep else 2} axes): {fault}", flush=True
                )
    print(f"{words.count} modules of seed {words.seed}: {dict(judged)}; findings: {wrong or 'none'}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
