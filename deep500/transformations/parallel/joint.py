"""The graph that is divided: forward and backward of a training step as one network, in which all sizes are numbers.

The step is differentiated first and divided afterwards: adjoints are nodes like any others, and need no second truth.
Before that

* means of classification losses become a sum and a quotient, whose divisor is that of the whole batch;
* after it BatchNormalization in training mode becomes the sums that it is, so that the batch may be split;
* shapes and all that follows from them become constants: they are those of the whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deep500.errors import PlanError
from deep500.networks.emit import Emitter
from deep500.networks.execution.modes import training_network
from deep500.networks.execution.slicing import needed_nodes, values_read
from deep500.networks.gradients.autodiff import gradient_names
from deep500.networks.losses import gradient_name
from deep500.networks.network import Network
from deep500.networks.node import Node
from deep500.networks.rewrite import supersede
from deep500.networks.shapes import folded_value
from deep500.transformations.batch_axes import LOSSES
from deep500.transformations.label_means import counted_labels, mean_if_any

_SIZED = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0}
"""Operators with an input that is the shape of their output, and its number."""


@dataclass(frozen=True)
class JointNetwork:
    """A step as a network without open sizes.

    Attributes:
        network: outputs are those of the serial network, then gradients and running statistics.
        outputs: those of the serial network, the loss among them.
        gradients: by trained parameter, the output that is its gradient.
        updates: by running statistic, the output that replaces it.
        moving: fixed parameters whose values change between steps all the same: running statistics.
        constants: parameters that are none of the serial network's, as those that gradients brought.
    """

    network: Network
    outputs: tuple[str, ...]
    gradients: Mapping[str, str]
    updates: Mapping[str, str]
    moving: frozenset[str] = frozenset()
    constants: frozenset[str] = frozenset()


def joint_network(network: Network, shapes: Mapping[str, Sequence[int]], loss: str | None = "loss") -> JointNetwork:
    """A training step as one network; without a loss the forward pass in evaluation mode.

    Args:
        network: stays as it is.
        shapes: of its inputs.
        loss: the scalar that is differentiated.

    Raises:
        PlanError: shapes that the network's inputs do not take, or sizes that only a run can tell.
        UnsupportedOperator: a gradient has no rule.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> network = add_loss(create("mlp", shape=(4,), hidden=(8,), classes=3))
        >>> joint = joint_network(network, {"input": (6, 4), "label": (6,)})
        >>> joint.gradients["fc1.weight"], joint.network.descriptors()["fc1.weight.grad"].shape
        ('fc1.weight.grad', (8, 4))
    """
    work = _with_shapes(network, shapes)
    outputs = list(dict.fromkeys([*network.outputs, *([] if loss is None else [loss])]))
    for name in outputs:
        if name not in work.outputs:
            work.add_output(name)
    _take_means_apart(work)
    gradients: dict[str, str] = {}
    updates: dict[str, str] = {}
    if loss is not None:
        work, updates = training_network(work)
        gradients = {name: gradient_name(name) for name, _ in gradient_names(work, loss)}
        work = work.with_gradient(loss)
    _take_normalization_apart(work)
    results = list(dict.fromkeys([*outputs, *gradients.values(), *updates.values()]))
    moving = frozenset(n for node in network.nodes if node.op_type == "BatchNormalization" for n in node.inputs[3:5])
    settled = _settled(work, results, moving)
    constants = frozenset(settled.parameters.keys() - network.parameters.keys())
    return JointNetwork(settled, tuple(outputs), gradients, updates, moving, constants)


def _with_shapes(network: Network, shapes: Mapping[str, Sequence[int]]) -> Network:
    twin = network.copy(arrays=False)
    for name, described in network.inputs.items():
        shape = shapes.get(name, described.shape)
        declared = described.shape
        if shape is None or any(not isinstance(n, int) for n in shape):
            raise PlanError(f"got no sizes for input {name!r} of {described}; expected numbers: give its shape")
        fits = declared is None or (
            len(declared) == len(shape)
            and all(n == m or not isinstance(m, int) for n, m in zip(shape, declared, strict=True))
        )
        if not fits:
            raise PlanError(f"got shape {tuple(shape)} for input {name!r}; expected {described}: give such a shape")
        twin.set_input(name, tuple(shape))
    return twin


def _take_means_apart(work: Network) -> None:
    """Mean losses as sums over their count, which is that of all samples."""
    emitter, taken = Emitter(work, "mean/"), {}
    described = work.descriptors()
    for node in work.nodes:
        if node.op_type not in LOSSES or node.domain or node.attribute("reduction") != "mean":
            continue
        total = emitter.many(
            node.op_type, *node.inputs, outputs=len(node.outputs), **{**node.attributes, "reduction": "sum"}
        )
        dtype, label = described[node.inputs[0]].dtype or "float32", node.inputs[1]
        weights = node.inputs[2] if len(node.inputs) > 2 else ""
        if node.attribute("ignore_index") is None and not weights:
            mean = emitter("Div", total[0], emitter.constant(np.array(described[label].size, dtype)))
        else:
            count = counted_labels(emitter, node, label, weights, (dtype, described[label].dtype or "int64"))
            mean = mean_if_any(emitter, total[0], count, dtype)
        taken[node.name] = {node.outputs[0]: mean, **dict(zip(node.outputs[1:], total[1:], strict=True))}
    supersede(work, taken)


def _take_normalization_apart(work: Network) -> None:
    """BatchNormalization in training mode as sums over the batch, as ONNX defines it."""
    emitter, taken = Emitter(work, "statistics/"), {}
    described = work.descriptors()
    for node in work.nodes:
        if node.op_type != "BatchNormalization" or node.domain or not node.attribute("training_mode"):
            continue
        x, scale, bias, mean, variance = node.inputs
        shape, dtype = described[x].shape or (), described[x].dtype or "float32"
        axes = emitter.ints(0, *range(2, len(shape)))
        column = emitter.ints(-1, *[1] * (len(shape) - 2))
        centre = emitter("ReduceMean", x, axes, keepdims=1)
        centred = emitter("Sub", x, centre)
        spread = emitter("ReduceMean", emitter("Mul", centred, centred), axes, keepdims=1)
        epsilon = emitter.constant(np.array(node.attribute("epsilon"), dtype))
        factor = emitter("Reciprocal", emitter("Sqrt", emitter("Add", spread, epsilon)))
        scaled = emitter("Mul", emitter("Mul", centred, factor), emitter("Reshape", scale, column))
        results = [emitter("Add", scaled, emitter("Reshape", bias, column))]
        for old, new in ((mean, centre), (variance, spread)):
            keep = emitter.constant(np.array(node.attribute("momentum"), dtype))
            share = emitter.constant(np.array(1 - node.attribute("momentum"), dtype))
            flat = emitter("Squeeze", new, axes)
            results.append(emitter("Add", emitter("Mul", old, keep), emitter("Mul", flat, share)))
        taken[node.name] = {name: results[i] for i, name in enumerate(node.outputs) if name}
    supersede(work, taken)


def _settled(work: Network, results: Sequence[str], moving: frozenset[str]) -> Network:
    """The part that results need, with shapes and what follows from them as constants."""
    described = work.descriptors()
    unknown = [name for name, d in described.items() if not d.is_static or d.dtype is None]
    nodes = needed_nodes(work.nodes, results)
    if odd := sorted(set(unknown) & values_read(nodes, results)):
        raise PlanError(
            f"got sizes that only a run can tell, of {odd[:3]}; expected known ones: divide a network whose shapes "
            "follow from those of its inputs"
        )
    settled = work.bare()
    for name, about in work.inputs.items():
        settled.add_input(name, about.shape, about.dtype or "float32")
    settled.put_parameters(work.parameters)
    for node in nodes:
        follows = not moving.intersection(node.reads) and not set(node.writes).intersection(results)
        values = _known(settled, work, node) if follows else None
        if values is not None:
            for name, value in values.items():
                settled.add_parameter(name, value, trainable=False)
        else:
            settled.insert(_with_sizes(settled, node, described[node.outputs[0]].shape or ()))
    for name in results:
        settled.add_output(name)
    read = values_read(settled.nodes, results)
    for name in [name for name in settled.parameters if name not in read]:
        settled.remove_parameter(name)
    return settled


def _known(settled: Network, work: Network, node: Node) -> dict[str, np.ndarray] | None:
    """Values of a node that follow from constants and shapes."""
    described = work.descriptors()
    if node.op_type not in ("Shape", "Size", "Constant") and not all(settled.has_parameter(n) for n in node.reads):
        return None
    values = {}
    for name in node.writes:
        value = folded_value(work, described, name)
        if value is None:
            return None
        values[name] = np.asarray(value)
    return values


def _with_sizes(settled: Network, node: Node, shape: Sequence[object]) -> Node:
    """A node whose result's shape is told by a computation, with the shape written down."""
    index = _SIZED.get(node.op_type)
    if index is None or node.domain or settled.has_parameter(node.inputs[index]):
        return node
    sizes = settled.fresh_name(f"{node.outputs[0]}:sizes")
    settled.add_parameter(sizes, np.array(shape, np.int64), trainable=False)
    return replace(node, inputs=tuple(sizes if i == index else name for i, name in enumerate(node.inputs)))
