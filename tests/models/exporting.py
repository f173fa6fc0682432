"""From a model to an ONNX file: by the tools that its own users export with."""

from __future__ import annotations

import copy
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tests.models.architectures.architecture import Architecture, Inputs

OPSET = 18
SEED = 0


def make_inputs(architecture: Architecture) -> Inputs:
    """The arrays that the model is traced and compared with."""
    return architecture.inputs(np.random.default_rng(SEED))


def build(architecture: Architecture) -> Any:
    """The model as its collection's users have it, with weights drawn from the seed; PyTorch's are prepared."""
    if architecture.exporter in ("legacy", "dynamo"):
        import torch

        torch.manual_seed(SEED)
        module = architecture.build()
        return prepare(module, tuple(torch.from_numpy(v) for v in make_inputs(architecture).values()))
    if architecture.exporter == "keras":
        os.environ.update(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3")
        import keras

        keras.utils.set_random_seed(SEED)
        model = architecture.build()
        rng = np.random.default_rng(SEED)
        for variable in model.weights:  # as for PyTorch, see prepare
            value = np.asarray(variable)
            if value.size > 1 and value.min() == value.max():
                noise = 0.1 * rng.standard_normal(value.shape)
                variable.assign(value + (np.abs(noise) if variable.name.endswith("variance") else noise))
        return model
    return architecture.build()


def prepare(module: Any, batch: tuple[Any, ...]) -> Any:
    """Make a fresh module's outputs depend on all of it, in place, and put it into evaluation mode.

    Parameters that are constant (heads of zeros, scales of ones or 1e-6) get noise, and BatchNormalization the
    statistics of a batch: else deep networks vanish, and everything agrees with everything.
    """
    import torch

    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.numel() > 1 and parameter.min() == parameter.max():
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
        module.eval()
        normalisations = [m for m in module.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
        momenta = [m.momentum for m in normalisations]
        for m in normalisations:
            m.train().momentum = None  # the average over all batches so far: of one
        if normalisations:
            module(*batch)
        for m, momentum in zip(normalisations, momenta, strict=True):
            m.eval().momentum = momentum
    return module


def write(architecture: Architecture, model: Any, path: Path) -> None:
    """Export a built model; the file's inputs have the names of the architecture's."""
    inputs = make_inputs(architecture)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporters, about themselves
        if architecture.exporter == "keras":
            _write_keras(model, inputs, path)
        elif architecture.exporter == "sklearn":
            _write_sklearn(model, inputs, path)
        else:
            _write_torch(architecture, model, inputs, path)


def _write_torch(architecture: Architecture, model: Any, inputs: Inputs, path: Path) -> None:
    import torch

    module = copy.deepcopy(model)  # exporters run the module, some change it
    options: dict[str, Any] = {"opset_version": OPSET, "verbose": False, "input_names": list(inputs)}
    if architecture.exporter == "dynamo":
        options |= {"dynamo": True, "external_data": False, "optimize": architecture.optimize}
    else:  # batch normalization stays in the file, for training
        options |= {"dynamo": False, "training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
        if architecture.symbolic:
            inputs = {name: np.concatenate([v, v[:1]]) for name, v in inputs.items()}
            options |= {"dynamic_axes": {name: {0: "N"} for name in [*inputs, "output"]}, "output_names": ["output"]}
    example = tuple(torch.from_numpy(v.copy()) for v in inputs.values())
    torch.onnx.export(module, example, path, **options)


def _write_keras(model: Any, inputs: Inputs, path: Path) -> None:
    import tensorflow as tf
    import tf2onnx

    signature = [tf.TensorSpec(v.shape, v.dtype, name=n) for n, v in inputs.items()]
    function = tf.function(lambda *given: model(*given, training=False), input_signature=signature)
    tf2onnx.convert.from_function(function, signature, opset=OPSET, output_path=str(path))


def _write_sklearn(model: Any, inputs: Inputs, path: Path) -> None:
    from skl2onnx import to_onnx

    path.write_bytes(to_onnx(model, next(iter(inputs.values()))[:1], options={"zipmap": False}).SerializeToString())
