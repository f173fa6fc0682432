"""By what the loss of a network divides: means over parts of a batch are the mean of the batch if they weigh by it.

Ranks, micro-batches, pieces and batches of a validation each have a mean loss. Where labels do not count, or classes
have weights, these are means over different numbers, and the mean of such means is another one. What a loss divides by
is read off its nodes, here and nowhere else; what counts in a piece is :mod:`deep500.transformations.label_means`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from deep500.errors import InputError
from deep500.networks.emit import Emitter
from deep500.networks.execution.labels import LOSSES
from deep500.networks.execution.slicing import needed_nodes
from deep500.networks.flow import CUSTOM
from deep500.networks.graph import Graph
from deep500.networks.network import Network
from deep500.networks.node import Node
from deep500.networks.shapes import known_value
from deep500.operators.registry import DOMAIN
from deep500.transformations.label_means import counted_labels

_SAME = frozenset({"Cast", "Identity", "Neg", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators on a mean that leave what it divides by."""
_TERMS = frozenset({"Add", "Mean", "Sub", "Sum"})
_FACTORS = frozenset({"Mul", "Where"})


@dataclass
class Denominator:
    """The divisor of a loss.

    Attributes:
        kind: ``"samples"``: their number, or what is in proportion to it; ``"labels"``: those that count, each with the
            weight of its class; ``"value"``: a value of the network that follows from a batch alone; ``"nothing"``: it
            is a sum; ``"several"``: it has terms that divide by different numbers.
        reads: inputs of which it depends, for labels and values.
        ignored: the label that does not count; None: all do.
        classes: weights of classes; None: all weigh 1.
        network: computes the value, as its only output.
    """

    kind: Literal["samples", "labels", "value", "nothing", "several"]
    reads: tuple[str, ...] = ()
    ignored: int | None = None
    classes: np.ndarray | None = None
    network: Network | None = None
    _executor: Any = field(default=None, repr=False)

    @property
    def counted(self) -> bool:
        """Whether batches of as many samples may have different ones."""
        return self.kind in ("labels", "value")

    @property
    def whole(self) -> bool:
        """Whether it is a whole number."""
        return self.kind == "samples" or (self.kind == "labels" and self.classes is None)

    def count(self, batch: Mapping[str, Any], executor: Any) -> float:
        """Return its value for a batch, of labels and values.

        Args:
            batch: arrays or tensors by input name.
            executor: of the network, which tells their arrays and runs what computes a value.
        """
        arrays = {name: np.asarray(executor.network.to_numpy(batch[name])) for name in self.reads}
        if self.network is not None:
            if self._executor is None:
                self._executor = executor.like(self.network)
            (name,) = self.network.outputs
            return float(np.sum(executor.network.to_numpy(self._executor.inference(arrays, [name])[name])))
        (labels,) = arrays.values()
        if self.classes is None:
            return int(np.count_nonzero(labels != self.ignored))
        judged = labels if self.ignored is None else labels[labels != self.ignored]
        return float(np.take(self.classes, judged, mode="clip").sum())  # a label that does not exist: the run says so

    def check(self, loss: str, where: str) -> None:
        """Raise InputError for a loss whose means over parts are not those of the whole.

        Args:
            loss: its name.
            where: what makes parts.
        """
        if self.kind in ("nothing", "several"):
            odd = "a sum" if self.kind == "nothing" else "a sum of terms that divide by different numbers"
            raise InputError(
                f"got {where} with the loss {loss!r}, which is {odd}; expected a mean, by whose divisor parts are "
                "weighted (samples, labels that count, weights of classes): use reduction='mean' with one divisor for "
                "all terms, or leave it out"
            )


def loss_denominator(network: Graph, loss: str) -> Denominator:
    """Read off a loss's nodes what it divides by; an operator that no rule knows is taken for a mean over samples.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> plain = add_loss(create("mlp", shape=(4,), classes=3))
        >>> loss_denominator(plain, "loss").kind
        'samples'
        >>> ignoring = loss_denominator(add_loss(create("mlp", shape=(4,), classes=3), ignore_index=-100), "loss")
        >>> ignoring.kind, ignoring.reads, ignoring.ignored
        ('labels', ('label',), -100)
    """
    return _Search(network).divisor(loss) or Denominator("samples")


class _Search:
    """Goes from the loss back to what divides.

    Attributes:
        moving: values that depend on the values of inputs; those that depend on their sizes alone are in ``sized``.
        learning: values that depend on trained parameters, or on chance.
    """

    def __init__(self, network: Graph) -> None:
        self.network = network
        self.moving, self.sized = set(network.inputs), set[str]()
        self.learning = {name for name, p in network.parameters.items() if p.trainable}
        for node in network.nodes:
            if node.op_type in ("Shape", "Size") and not node.domain:
                self.sized.update(node.writes)
                continue
            for values in (self.moving, self.sized, self.learning):
                if values.intersection(node.reads):
                    values.update(node.writes)
            if node.is_random:
                self.learning.update(node.writes)

    def divisor(self, value: str) -> Denominator | None:
        """Find by what a value divides; None if it depends on no sample."""
        if value not in self.moving:
            return None
        node = self.network.producer(value)
        if node is not None and (node.domain, node.op_type, value) == (DOMAIN, CUSTOM, node.outputs[0]):
            return self.divisor(node.inputs[0])  # its gradient is written down
        if node is None or node.domain:
            return Denominator("samples")
        if node.op_type in LOSSES and value == node.outputs[0]:
            return self._labels(node)
        if node.op_type in _SAME or (node.op_type in ("ReduceSum", "ReduceMean") and self._is_number(node.inputs[0])):
            return self.divisor(node.inputs[0])
        if node.op_type == "ReduceSum":
            return Denominator("nothing")
        if node.op_type == "Div":
            return self._quotient(node)
        places = node.inputs[1:] if node.op_type == "Where" else node.inputs
        if node.op_type in _TERMS | _FACTORS:
            return _together([d for d in map(self.divisor, places) if d is not None], node.op_type in _TERMS)
        return Denominator("samples")

    def _labels(self, node: Node) -> Denominator:
        label, weight = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else ""
        ignored, reduction = node.attribute("ignore_index"), node.attribute("reduction", "mean")
        if reduction != "mean" or (ignored is None and not weight):
            return Denominator("nothing" if reduction == "sum" else "samples")
        classes = known_value(self.network, weight) if weight else None
        if label in self.network.inputs and (classes is not None or not weight):
            wide = None if classes is None else np.asarray(classes, np.float64)
            return Denominator("labels", (label,), ignored, wide)
        described = self.network.descriptors()
        dtypes = (described[node.inputs[0]].dtype or "float32", described[label].dtype or "int64")
        return self._computed(label, *([weight] if weight else []), node=node, dtypes=dtypes)

    def _quotient(self, node: Node) -> Denominator | None:
        above, below = node.inputs
        if below not in self.moving:
            return Denominator("samples") if below in self.sized else self.divisor(above)
        whole = self.divisor(above)
        if whole is None or whole.kind != "nothing":
            return Denominator("several")
        producer = self.network.producer(below)
        if producer is not None and producer.op_type == "Where":  # 1 in the place of 0, as nothing counts
            moving = [name for name in producer.inputs[1:] if name in self.moving]
            below = moving[0] if len(moving) == 1 else below
        return self._computed(below)

    def _computed(self, *values: str, node: Node | None = None, dtypes: tuple[str, str] = ("", "")) -> Denominator:
        """A value that the network computes, or what labels count that it computes."""
        if self.learning.intersection(values):
            return Denominator("several")
        network, part = self.network, Network(f"{self.network.name}: denominator")
        nodes = needed_nodes(network.nodes, values)
        read = dict.fromkeys([*(name for n in nodes for name in n.reads), *values])
        reads = [name for name in read if name in network.inputs]
        for name in read:
            if name in network.parameters:
                part.add_parameter(name, network.parameters[name].value, trainable=False, copy=False)
            elif name in network.inputs:
                described = network.inputs[name]
                part.add_input(name, described.shape, described.dtype or "float32")
        for copied in nodes:
            part.insert(copied)
        emit, value = Emitter(part, "denominator/"), values[0]
        if node is not None:
            value = counted_labels(emit, node, values[0], values[1] if len(values) > 1 else "", dtypes)
        part.add_output(emit("Identity", value))
        return Denominator("value", tuple(reads), network=part)

    def _is_number(self, value: str) -> bool:
        described = self.network.descriptors().get(value)
        return described is not None and described.shape is not None and all(size == 1 for size in described.shape)


def _together(parts: list[Denominator], terms: bool) -> Denominator | None:
    """That of terms, or of factors."""
    if len(parts) < 2:
        return parts[0] if parts else None
    keys = {(p.kind, p.reads, p.ignored, None if p.classes is None else p.classes.tobytes()) for p in parts}
    alike = ("samples", "labels", "nothing") if terms else ("samples",)
    return parts[0] if len(keys) == 1 and parts[0].kind in alike else Denominator("several")
