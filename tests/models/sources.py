"""Architectures of public collections with random weights, exported to ONNX files in a temporary folder.

The collections are tools of this test, never dependencies of Deep500: install them beside it, in an environment of
their own (``HOW_TO_INSTALL``). Without ``--no-deps`` they replace a CPU build of torch by one of several gigabytes.
"""

from __future__ import annotations

import copy
import importlib.metadata
import importlib.util
import os
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

HOW_TO_INSTALL = (
    "pip install --no-deps torchvision==0.28.0 timm transformers && "
    "pip install huggingface_hub tokenizers regex pyyaml safetensors onnxscript"
)
OPSET = 18
SEED = 0

Example = Callable[[torch.Generator], tuple[torch.Tensor, ...]]


@dataclass(frozen=True)
class Source:
    """One architecture: how to build it (random weights, no download), what to feed it, and which exporter takes it."""

    name: str
    collection: str
    build: Callable[[], nn.Module]
    example: Example
    dynamo: bool = False


@dataclass(frozen=True)
class Export:
    """An exported file with the inputs and outputs of the module that it came from."""

    name: str
    path: Path
    inputs: dict[str, np.ndarray]
    expected: list[np.ndarray]


# -- what there is to export ------------------------------------------------------------------------------------------
def images(size: int, count: int = 2) -> Example:
    """A batch of noise in the shape of images."""
    return lambda generator: (torch.randn(count, 3, size, size, generator=generator),)


def tokens(vocabulary: int, length: int = 24, count: int = 2, mask: bool = True) -> Example:
    """Numbers of words, and a mask that hides the end of the last text."""

    def make(generator: torch.Generator) -> tuple[torch.Tensor, ...]:
        numbers = torch.randint(0, vocabulary, (count, length), generator=generator)
        seen = torch.ones_like(numbers)
        seen[-1, -5:] = 0
        return (numbers, seen) if mask else (numbers,)

    return make


def _torchvision(name: str, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import_torchvision()
        from torchvision import models

        return getattr(models, name)(weights=None, **options)

    return build


def _timm(name: str, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import_torchvision()  # timm imports it
        import timm

        return timm.create_model(name, pretrained=False, **options)

    return build


class _First(nn.Module):
    """A model of transformers as a function of tensors, with one tensor as result."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=False, **self.options())[0]

    def options(self) -> dict[str, Any]:
        return {"use_cache": False} if hasattr(self.model.config, "use_cache") else {}


def _transformers(kind: str, config: str, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        os.environ["HF_HUB_OFFLINE"] = "1"
        import_torchvision()  # transformers does, where it is installed
        import transformers

        return _First(getattr(transformers, kind)(getattr(transformers, config)(**options)))

    return build


_WORDS = 500
_BERT = {
    "vocab_size": _WORDS,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 64,
}
_LLAMA = {
    "vocab_size": _WORDS,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "max_position_embeddings": 64,
}
_GPT2 = {
    "vocab_size": _WORDS,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
_DISTIL = {
    "vocab_size": _WORDS,
    "dim": 64,
    "n_layers": 2,
    "n_heads": 4,
    "hidden_dim": 128,
    "max_position_embeddings": 64,
}

# fmt: off
SOURCES = (
    *(Source(name, "torchvision", _torchvision(name), images(size)) for name, size in {
        "resnet18": 96, "resnet50": 160, "mobilenet_v2": 96, "mobilenet_v3_small": 96, "efficientnet_b0": 96,
        "densenet121": 64, "squeezenet1_1": 96, "shufflenet_v2_x0_5": 96, "regnet_y_400mf": 96, "convnext_tiny": 64,
        "swin_t": 64,
    }.items()),
    Source("googlenet", "torchvision", _torchvision("googlenet", aux_logits=False, init_weights=False), images(96)),
    Source("vit_tiny_patch16_224", "timm", _timm("vit_tiny_patch16_224", img_size=96), images(96)),
    Source("mixer_s32_224", "timm", _timm("mixer_s32_224"), images(224, 1)),
    Source("gcresnext26ts", "timm", _timm("gcresnext26ts"), images(64)),
    Source("bert", "transformers", _transformers("BertModel", "BertConfig", **_BERT), tokens(_WORDS), True),
    Source("distilbert", "transformers", _transformers("DistilBertModel", "DistilBertConfig", **_DISTIL),
           tokens(_WORDS), True),
    Source("gpt2", "transformers", _transformers("GPT2LMHeadModel", "GPT2Config", **_GPT2), tokens(_WORDS), True),
    Source("llama", "transformers", _transformers("LlamaForCausalLM", "LlamaConfig", **_LLAMA), tokens(_WORDS), True),
)
# fmt: on


def import_torchvision() -> None:
    """Import torchvision beside a CPU build of torch: its compiled operators are missing there, so declare them.

    They are never run; importing the package only wants to see their schemas. Does nothing where it is not installed.
    """
    if importlib.util.find_spec("torchvision") is None:
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    boxes = "Tensor dets, Tensor scores, float iou_threshold"
    for schema in (
        f"nms({boxes}) -> Tensor",
        f"qnms({boxes}) -> Tensor",
        "roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width, "
        "int sampling_ratio, bool aligned) -> Tensor",
    ):
        if not hasattr(torch.ops.torchvision, schema.partition("(")[0]):
            library.define(schema)
    _LIBRARIES.append(library)  # what it defines lives as long as it does
    import torchvision  # noqa: F401


_LIBRARIES: list[torch.library.Library] = []


# -- exporting --------------------------------------------------------------------------------------------------------
def prepare(module: nn.Module, batch: tuple[torch.Tensor, ...]) -> nn.Module:
    """Make a fresh module's outputs depend on all of it, in place, and put it into evaluation mode.

    Parameters that are constant (heads of zeros, scales of ones or 1e-6) get noise, and BatchNormalization the
    statistics of a batch: else deep networks vanish, and everything agrees with everything.
    """
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.numel() > 1 and parameter.min() == parameter.max():
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
        module.eval()
        normalisations = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
        momenta = [m.momentum for m in normalisations]
        for m in normalisations:
            m.train().momentum = None  # the average over all batches so far: of one
        module(*batch)
        for m, momentum in zip(normalisations, momenta, strict=True):
            m.eval().momentum = momentum
    return module


def export(source: Source, folder: Path | None = None, keep_modes: bool = False) -> Export:
    """Export an architecture, or take the file that an earlier call left in the folder.

    Args:
        source: see ``SOURCES``.
        folder: below the system's temporary folder if None.
        keep_modes: leave BatchNormalization in the file instead of folding it into convolutions, for training.

    Raises:
        ModuleNotFoundError: the collection, or onnxscript for the dynamo exporter, is not installed.
    """
    version = importlib.metadata.version(source.collection)
    folder = folder or Path(tempfile.gettempdir()) / "deep500-models"
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{source.name}-{source.collection}{version}-torch{torch.__version__.partition('+')[0]}-{int(keep_modes)}"
    path, data = folder / f"{stem}.onnx", folder / f"{stem}.npz"
    if not (path.is_file() and data.is_file()):
        torch.manual_seed(SEED)
        generator = torch.Generator().manual_seed(SEED)
        example, *others = (source.example(generator) for _ in range(8))
        batch = tuple(torch.cat(tensors) for tensors in zip(example, *others, strict=True))
        module = prepare(source.build(), batch)
        with torch.no_grad():
            expected = module(*example)
        traced = example if source.dynamo else tuple(t[:3] for t in batch)  # a size other than that of what is run
        write(module, traced, path, source.dynamo, keep_modes)
        arrays = {f"input{i}": t.numpy() for i, t in enumerate(example)}
        np.savez(data, expected=expected.numpy(), **arrays)
    return _read(source.name, path, data)


def write(
    module: nn.Module, example: tuple[torch.Tensor, ...], path: Path, dynamo: bool = False, keep_modes: bool = False
) -> None:
    """Write a module as an ONNX file whose first axis of images is symbolic (legacy exporter) or fixed (dynamo)."""
    module = copy.deepcopy(module)  # exporters run the module, some change it
    options: dict[str, Any] = {"opset_version": OPSET, "dynamo": dynamo, "verbose": False}
    names = [f"input{i}" for i in range(len(example))]
    if dynamo:
        options |= {"external_data": False}
    else:
        if keep_modes:
            options |= {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
        options |= {"dynamic_axes": {name: {0: "N"} for name in [*names, "output"]}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters, about themselves
        torch.onnx.export(module, example, path, input_names=names, output_names=["output"], **options)


def _read(name: str, path: Path, data: Path) -> Export:
    with np.load(data) as arrays:
        inputs = {key: arrays[key] for key in arrays.files if key != "expected"}
        return Export(name, path, inputs, [arrays["expected"]])
