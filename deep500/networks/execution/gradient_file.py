"""``deep500 gradient``: an ONNX file in, one whose further outputs are gradients out, for plain ONNX Runtime."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx

from deep500.errors import InputError, NetworkError, nearest
from deep500.networks.execution.modes import training_network
from deep500.networks.losses import LOSSES, add_loss, gradient_name
from deep500.networks.network import Network
from deep500.networks.protos import descriptor_of
from deep500.networks.quantization import differentiable
from deep500.registry import load_backend
from deep500.tensors import TensorDescriptor


def add_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the options of ``gradient``; returns what executes it."""
    add = parser.add_argument
    add("model", type=Path, help="an ONNX file")
    add("-o", "--out", type=Path, required=True, metavar="FILE", help="where the model with gradients goes")
    add(
        "--loss", metavar="NAME",
        help=f"a value of the model with one element, or a loss to append: {', '.join(LOSSES)} (the only output that "
        "has one element)",
    )  # fmt: skip
    add("--output", metavar="NAME", help="what an appended loss compares with the target (the first output)")
    add("--target", metavar="NAME", default="label", help="the input that an appended loss adds (label)")
    add(
        "--trainable", action="append", default=[], metavar="PATTERN",
        help="parameters to differentiate with respect to, * fits anything; repeat it (what is read as weights)",
    )  # fmt: skip
    add("--wrt", action="append", default=[], metavar="NAME", help="an input or inner value besides; repeat it")
    add(
        "--training", action="store_true",
        help="batch normalization takes the batch's statistics and Dropout drops; new running statistics are outputs",
    )  # fmt: skip
    add("--quantization", metavar="KIND", help="straight_through: gradients of quantised values (they have none)")
    add("--json", action="store_true", help="print one JSON object and nothing else")
    return execute


def execute(args: argparse.Namespace) -> int:
    """Differentiate, write the file, say what its inputs and outputs are."""
    if args.out.is_dir() or not args.out.parent.is_dir():
        raise InputError(f"got {args.out}; expected the name of a file in a folder that exists: make the folder first")
    backend: Any = load_backend("onnxruntime")
    network = Network.from_onnx(args.model, args.trainable or None)
    network, loss = choose_loss(network, args.loss, args.output, args.target)
    network = differentiable(network, args.quantization)
    network, variables, notes = with_gradients(network, loss, args.wrt, args.training)
    model = backend.to_model(network, variables, notes)
    onnx.save(model, args.out)
    if args.json:
        names = {"inputs": [x.name for x in model.graph.input], "outputs": [x.name for x in model.graph.output]}
        sys.stdout.write(json.dumps({"files": [str(args.out)], **names}) + "\n")
        return 0
    sys.stdout.write(description(model, args.out))
    return 0


def choose_loss(
    network: Network, loss: str | None = None, output: str | None = None, target: str = "label"
) -> tuple[Network, str]:
    """The network with its loss, and the loss's name.

    Args:
        network: stays as it is.
        loss: a value of the network, or one of :data:`~deep500.networks.losses.LOSSES` to append under the name
            ``loss``; the only output with one element if None.
        output, target: for an appended loss, see :func:`~deep500.networks.losses.add_loss`.

    Raises:
        NetworkError: no such value or kind of loss, or nothing tells which output is the loss.

    Example:
        >>> from deep500.networks import create
        >>> choose_loss(create("mlp", shape=(4,), classes=3), "cross_entropy")[0].outputs
        ['output', 'loss']
    """
    if loss is None:
        descriptors = network.descriptors()
        scalars = [name for name in network.outputs if _is_scalar(descriptors.get(name, TensorDescriptor(None, None)))]
        if len(scalars) != 1:
            raise NetworkError(
                f"got a model whose outputs are {network.outputs}, {scalars or 'none'} of them with one element; "
                f"expected one loss: name it, or append one, --loss {' or --loss '.join(LOSSES)}"
            )
        return network, scalars[0]
    if network.has_value(loss):
        return network, loss
    if loss not in LOSSES:
        raise NetworkError(
            f"got --loss {loss!r}; expected a value of the model or a loss to append: "
            f"{nearest(loss, [*LOSSES, *network.values()])}"
        )
    extended, name = network.copy(), network.fresh_name("loss")
    if output is not None and not network.has_value(output):
        raise NetworkError(
            f"got --output {output!r}; expected a value of the model: {nearest(output, network.values())}"
        )
    return add_loss(extended, loss, output, target, name), name


def _is_scalar(described: TensorDescriptor) -> bool:
    floating = described.dtype is not None and "float" in described.dtype
    return floating and described.shape is not None and all(size == 1 for size in described.shape)


def with_gradients(
    network: Network, loss: str, wrt: Sequence[str] = (), training: bool = False
) -> tuple[Network, list[str], dict[str, str]]:
    """The network with the gradients of all trainable parameters and of ``wrt``, the parameters that change while it is
    trained, and a note on each input and output.

    Raises:
        NetworkError: nothing to differentiate with respect to.
        UnsupportedOperator: a gradient would have to pass operators that have no rule; all of them are named.
    """
    parameters = [name for name, _ in network.gradient(loss)]
    names = list(dict.fromkeys([*parameters, *wrt]))
    if not names:
        raise NetworkError(
            f"got loss {loss!r}, which no trainable parameter influences; expected some: choose them with --trainable, "
            "or name inputs with --wrt; quantised values have a gradient with --quantization straight_through only"
        )
    step, updates = training_network(network) if training else (network, {})
    variables = [*parameters, *updates]
    notes = dict.fromkeys(network.inputs, "input")
    notes |= dict.fromkeys(variables, "parameter: the file's value unless a run gives another")
    notes |= dict.fromkeys(network.outputs, "output of the model")
    step = step.with_gradient(loss, names)
    if loss not in step.outputs:
        step.add_output(loss)
    notes[loss] = "the loss"
    notes |= {value: f"what {parameter} becomes after a training step" for parameter, value in updates.items()}
    notes |= {gradient_name(name): f"gradient of {loss} with respect to {name}" for name in names}
    return step, variables, notes


def description(model: onnx.ModelProto, path: Path) -> str:
    """A table of a model's inputs and outputs with their notes."""
    opset = next(entry.version for entry in model.opset_import if entry.domain == "")
    lines = [f"{path}: ONNX opset {opset}, IR version {model.ir_version}"]
    for title, values in (("inputs", model.graph.input), ("outputs", model.graph.output)):
        rows = [(value.name, _shape(value), value.doc_string) for value in values]
        widths = [max((len(row[k]) for row in rows), default=0) for k in (0, 1)]
        lines += [f"{title}:", *(f"  {a.ljust(widths[0])}  {b.ljust(widths[1])}  {c}".rstrip() for a, b, c in rows)]
    return "\n".join(lines) + "\n"


def _shape(value: onnx.ValueInfoProto) -> str:
    described = descriptor_of(value.type)
    sizes = "?" if described.shape is None else ", ".join("?" if d is None else str(d) for d in described.shape)
    return f"{described.dtype} ({sizes})"
