"""The last part of a network with its loss, worked on in pieces, whose gradient is formed in the forward pass.

Scores of a large vocabulary are the largest value of a language model: (tokens, words), kept with their softmax until
the backward pass. But a loss is a sum over rows (tokens), so that one piece of the rows after the other can go through
the last layer, be judged *and be differentiated*, and be forgotten. What remains are the sum of the losses and its
gradients with respect to the layer's features and parameters, which a ``CustomGradient`` node
(:mod:`deep500.networks.flow`) hands to the backward pass. Nothing runs twice. (As a kernel by hand it is known as
fused linear cross entropy: Hsu et al. 2024, "Liger Kernel", arXiv 2410.10989. Here it is plain nodes, made by
differentiating the part itself, whatever it holds.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from onnx import helper

from deep500.errors import NetworkError
from deep500.networks.emit import Emitter
from deep500.networks.execution.slicing import sources
from deep500.networks.flow import CUSTOM, STOP
from deep500.networks.gradients.autodiff import with_gradient
from deep500.networks.gradients.reach import is_floating
from deep500.networks.graph import AnyGraph, Graph
from deep500.networks.losses import find_loss, gradient_name
from deep500.networks.node import Node
from deep500.networks.rewrite import supersede
from deep500.operators.registry import DOMAIN
from deep500.tensors import TensorDescriptor, dtype_to_onnx
from deep500.transformations.batch_axes import LOSSES, SUMS, Mixes, find_batch_axes, reduced_axes
from deep500.transformations.label_means import counted_labels, mean_if_any
from deep500.transformations.microbatching import division, even_sizes
from deep500.transformations.token_rows import RowForm

LINEAR = frozenset({"Conv", "Gemm", "MatMul"})
_SUM, _COUNT = "loss_pieces.sum", "loss_pieces.count"


def microbatch_loss(
    network: AnyGraph,
    pieces: int | Sequence[int],
    since: str | Sequence[str] = (),
    loss: str = "loss",
    outputs: bool = False,
) -> AnyGraph:
    """A copy of a network whose last layer and loss work on pieces of the rows, and are differentiated at once.

    Rows are tokens of all samples where the part treats all alike, else samples. Loss and gradients are sums of the
    same terms in another order; means are weighted by what was counted. Scores are no longer outputs, since a step
    would form them whole; ``executor.inference(batch, ["output"])`` still gives them.

    Args:
        network: stays as it is.
        pieces: how many, of equal size but for the last; or the size of each.
        since: value, or values, at which the part begins; the features that the last linear layers before the loss
            read if absent. What lies between must keep rows apart.
        loss: the scalar that is differentiated.
        outputs: whether outputs within the part stay, joined from pieces of samples.

    Returns:
        an ordinary network, for all backends and files. A gradient of a gradient does not pass the part.

    Raises:
        NetworkError: the part mixes rows, or the loss is no sum or mean over them; the node is named with the reason.
        InputError: fewer than two pieces, or sizes below 1.

    Example:
        >>> from deep500.networks.losses import add_loss
        >>> from deep500.networks.zoo import create
        >>> network = add_loss(create("gru_language_model", classes=50, shape=(8,), width=4, embedding=4))
        >>> cut = microbatch_loss(network, 4)
        >>> network.outputs, cut.outputs
        (['output', 'loss'], ['loss'])
        >>> sum(node.op_type == "SoftmaxCrossEntropyLoss" for node in cut.nodes)
        4
    """
    count, sizes = division(pieces)
    work = network.copy()
    find_loss(work, loss)
    reach = _Reach.across(work)
    begin, inner, joined = {since} if isinstance(since, str) else set(since), set[str](), dict[str, str]()
    ends = list(_sums_of_loss(work, loss, reach))
    before = {name for end in ends for name in sources(work.nodes, end.inputs)} & reach.data
    _check_begin(loss, ends, begin - before)
    for end in ends:
        try:
            part = _LossPart.before(work, end, begin, reach)
            pieces_of_end = _LossPieces(work, part, count, sizes, _whole_outputs(work, part) if outputs else ())
            supersede(work, {end.name: {end.outputs[0]: pieces_of_end.write()}})
        except Mixes as reason:
            raise _mixing(loss, reason) from reason
        inner.update(value for node in part.nodes for value in node.writes)
        joined = {**pieces_of_end.joined, **joined}
    if outputs:
        _take_over(work, joined)
    else:
        _drop_outputs(work, inner - {loss}, loss, {end.outputs[0] for end in ends})
    return work


def _check_begin(loss: str, ends: Sequence[Node], unknown: set[str]) -> None:
    if not ends or unknown:
        what = f"since={sorted(unknown)}" if ends else "no sum over rows before it"
        raise NetworkError(
            f"loss {loss!r}: got {what}; expected a mean or sum over rows that trainable parameters influence, and "
            "values before it that depend on inputs: name others"
        )


def _mixing(loss: str, reason: Mixes) -> NetworkError:
    return NetworkError(
        f"loss {loss!r}: got pieces of the rows, but {reason}; expected nodes that keep rows apart and sum "
        "over all of them at the end: begin later, with since=, or leave the loss whole"
    )


def _whole_outputs(work: Graph, part: _LossPart) -> list[str]:
    """Values of the nodes in a part that give outputs of the network."""
    outputs = set(work.outputs)
    return [value for node in part.nodes[:-1] if outputs.intersection(node.writes) for value in node.writes]


def _take_over(work: Graph, joined: Mapping[str, str]) -> None:
    """Let values that were joined from pieces stand in the place of the whole ones."""
    producers = {name: work.producer(name) for name in joined}
    supersede(work, {n.name: {v: joined[v] for v in n.writes} for n in producers.values() if n is not None})


def _drop_outputs(work: Graph, inner: set[str], loss: str, sums: set[str]) -> None:
    """Let outputs that would have to be formed whole be values only."""
    whole = set(inner) - sums
    for node in work.nodes:
        if whole.intersection(node.reads):
            whole.update(node.writes)
    for name in [name for name in work.outputs if name in whole and name != loss]:
        work.remove_output(name)


@dataclass
class _Reach:
    """Values by what they depend on.

    Attributes:
        data: values that depend on inputs.
        trained: values that depend on trainable parameters, these included.
    """

    data: set[str]
    trained: set[str]

    @classmethod
    def across(cls, network: Graph) -> _Reach:
        reach = cls(set(network.inputs), set(network.trainable()))
        for node in network.nodes:
            for values in (reach.data, reach.trained):
                if values.intersection(node.reads):
                    values.update(node.writes)
        return reach


def _sums_of_loss(network: Graph, loss: str, reach: _Reach) -> list[Node]:
    """The nodes that sum over rows, of which the loss is a function."""
    described, left, ends = network.descriptors(), [loss], dict[str, Node]()
    while left:
        node = network.producer(left.pop())
        if node is None or not (reach.data & reach.trained).intersection(node.writes):
            continue
        if all(_single(name, described) for name in node.reads if name in reach.data & reach.trained):
            left += node.reads
        else:
            ends[node.name] = node
    return list(ends.values())


def _single(name: str, described: Mapping[str, TensorDescriptor]) -> bool:
    return name in described and described[name].size == 1


@dataclass
class _LossPart:
    """Nodes up to a sum over rows.

    Attributes:
        end: the node that sums.
        nodes: of the part, in order, the end included.
        starts: values of rows at which it begins.
        further: values of rows that it reads, such as labels.
        shared: values that it reads and all rows share.
        trained: those of the values read from outside whose gradient is wanted.
    """

    end: Node
    nodes: list[Node]
    starts: list[str]
    further: list[str]
    shared: list[str]
    trained: list[str]

    @classmethod
    def before(cls, network: Graph, end: Node, since: set[str], reach: _Reach) -> _LossPart:
        """The part before an end.

        Raises:
            Mixes: the end is no sum or mean over rows.
        """
        part, inside, left = cls(end, [], [], [], [], []), {end.name}, [end]
        while left:
            node = left.pop()
            if node.graphs:
                raise Mixes(f"node {node.name!r} ({node.op_type}) holds networks of its own")
            linear = not since and node.op_type in LINEAR and any(name not in reach.data for name in node.reads)
            for name in node.reads:
                producer = network.producer(name)
                if name not in reach.data:
                    part.shared.append(name)
                elif name in since or linear or producer is None:
                    part.starts.append(name)
                elif name not in reach.trained:
                    part.further.append(name)
                elif producer.name not in inside:
                    inside.add(producer.name)
                    left.append(producer)
        part.nodes = [node for node in network.nodes if node.name in inside]
        labels = {node.inputs[1] for node in part.nodes if node.op_type in LOSSES and not node.domain}
        rows = [name for name in dict.fromkeys(part.starts) if name not in labels]
        features = [name for name in rows if name in reach.trained or name in since] or rows
        part.further = list(dict.fromkeys([*part.further, *(name for name in part.starts if name not in features)]))
        part.starts, part.shared = features, list(dict.fromkeys(part.shared))
        described = network.descriptors()
        outside = [*part.starts, *part.further, *part.shared]
        part.trained = [name for name in outside if name in reach.trained and is_floating(name, described)]
        return part

    def check(self, network: Graph) -> None:
        """Raise Mixes unless the end is a sum or mean over everything."""
        end, name = self.end, f"node {self.end.name!r} ({self.end.op_type})"
        if end.domain or end.op_type not in LOSSES | SUMS or len(end.writes) > 1:
            raise Mixes(f"{name} is none, or gives more than the loss")
        described = network.descriptors()
        if end.op_type in SUMS:
            shape = described[end.inputs[0]].shape or ()
            if len(set(reduced_axes(end, described, network))) < len(shape):
                raise Mixes(f"{name} sums over some axes only")
        elif end.attribute("reduction", "mean") == "none":
            raise Mixes(f"{name} sums over nothing")


class _LossPieces:
    """A part of a network, written anew in pieces."""

    def __init__(
        self, work: Graph, part: _LossPart, count: int, sizes: tuple[int, ...] | None, outputs: Sequence[str]
    ) -> None:
        self.work, self.part, self.count, self.sizes = work, part, count, sizes
        self.outputs = outputs  # values of the part that are wanted whole
        self.joined: dict[str, str] = {}  # those, once they are written
        self.axis_of: Mapping[str, int] = {}  # of samples, by value
        self.described = work.descriptors()
        self.op = Emitter(work, f"{part.end.name}/pieces/")
        part.check(work)
        self.mean = part.end.attribute("reduction", "mean") == "mean" if part.end.op_type in LOSSES else False
        self.axes: dict[str, int] = {}  # of the rows, by value that has them
        self.sources: dict[str, str] = {}  # values of the work by those that the part's nodes read
        self.head = self._head()

    def write(self) -> str:
        """Write the pieces; returns the name of what takes the place of the end's result."""
        step = with_gradient(self.head, _SUM, self.part.trained)
        stopped = {name: self._stopped(name) for name in self.sources}
        split = {name: self._split(stopped[name], axis) for name, axis in self.axes.items()}
        constants = {n: self.op.constant(p.value) for n, p in step.parameters.items() if n not in self.sources}
        sums, counts, gradients = list[str](), list[str](), dict[str, list[str]]()
        outputs: dict[str, list[str]] = {name: [] for name in self.outputs}
        for piece in range(self.count):
            names = {**stopped, **constants, **{name: values[piece] for name, values in split.items()}}
            self._wait(names, gradients)
            self._inline(step, names, piece, gradients)
            sums.append(names[_SUM])
            counts += [names[_COUNT]] if _COUNT in names else []
            for name, pieces in outputs.items():
                pieces.append(names[name])
        for name, pieces in outputs.items():
            self.joined[name] = self.op("Concat", *pieces, axis=self.axis_of[name])
        return self._result(self.op("Sum", *sums), counts, gradients)

    # -- the part as a network of its own ---------------------------------------------------------------------------
    def _head(self) -> Graph:
        """The part, with the sum of its rows as the output: in rows of tokens if it can be, else of samples."""
        if self.outputs:
            return self._by_sample("outputs that are wanted whole are joined from samples")
        try:
            return self._in_rows()
        except Mixes as reason:
            self.axes, self.sources = {}, {}
            return self._by_sample(str(reason))

    def _in_rows(self) -> Graph:
        part = self.part
        form = RowForm(self.work, self.described, part.starts, set(part.shared))
        for node in part.nodes:
            try:
                form.add(node, node is part.end)
            except Mixes as reason:
                raise Mixes(f"node {node.name!r} ({node.op_type}): {reason}") from reason
        rows = [*part.starts, *part.further]
        shapes = {name: form.shape_in_rows(name) for name in rows}
        views = [Node("Reshape", (old, f"{new}.shape"), (new,), new) for new, (old, _) in form.reshaped.items()]
        sizes = {f"{new}.shape": np.array(sizes, np.int64) for new, (_, sizes) in form.reshaped.items()}
        head = self._network(shapes, [*views, *form.nodes], {**form.constants, **sizes})
        self.sources.update({name: form.rows_of(self.op, name) for name in rows})
        self.axes = dict.fromkeys(rows, 0)
        return head

    def _by_sample(self, why: str) -> Graph:
        part, samples = self.part, find_batch_axes(self.work)
        rows = [*part.starts, *part.further]
        for node in part.nodes:
            early = node.name != part.end.name and node.outputs[0] in samples.combined
            why_not = "it sums over samples before the end" if early else samples.mixing.get(node.name)
            if why_not:
                raise Mixes(f"node {node.name!r} ({node.op_type}) keeps samples not apart: {why_not}")
        missing = [name for name in (*rows, *self.outputs) if name not in samples.axes]
        if missing or part.end.outputs[0] not in samples.combined:
            raise Mixes(f"{why}; and {missing or [part.end.name]} has no samples to sum over")
        self.axes, self.axis_of = {name: samples.axes[name] for name in rows}, samples.axes
        shapes = {}
        for name, axis in self.axes.items():
            shape = self.described[name].shape or ()
            shapes[name] = (*shape[:axis], "rows", *shape[axis + 1 :])
        self.sources.update({name: name for name in rows})
        return self._network(shapes, part.nodes, {})

    def _network(self, shapes: Mapping[str, Any], nodes: Sequence[Node], constants: Mapping[str, Any]) -> Graph:
        head, end = Graph("head"), self.part.end
        for name, shape in shapes.items():
            head.add_input(name, shape, self.described[name].dtype or "float32")
        for name in self.part.shared:
            self.sources[name] = name
            if self.work.has_parameter(name):
                parameter = self.work.parameter(name)
                head.add_parameter(name, parameter.value, parameter.trainable, copy=False)
            else:
                head.add_input(name, self.described[name].shape, self.described[name].dtype or "float32")
        for name, value in constants.items():
            head.add_parameter(name, value, trainable=False)
        for node in nodes:
            if node.name != end.name:
                head.insert(node)
                continue
            if end.op_type in LOSSES:
                head.add_node(end.op_type, node.inputs, _SUM, **{**node.attributes, "reduction": "sum"})
                continue
            head.add_node("ReduceSum", node.inputs[0], _SUM, keepdims=0)
            if end.op_type == "ReduceMean":
                head.add_node("Size", node.inputs[0], _COUNT)
        return head

    # -- its pieces -------------------------------------------------------------------------------------------------
    def _stopped(self, name: str) -> str:
        """A value as the pieces read it: their own gradients are nodes, and no other may be formed."""
        source = self.sources[name]
        return self.op(STOP, source, domain=DOMAIN) if name in self.part.trained else source

    def _split(self, value: str, axis: int) -> list[str]:
        shape = self.described[value].shape if value in self.described else None
        size = shape[axis] if shape else None
        sizes = self.op.ints(*self.sizes) if self.sizes else even_sizes(self.op, value, axis, size, self.count)
        return self.op.many("Split", value, sizes, outputs=self.count, axis=axis)

    def _wait(self, names: dict[str, str], gradients: Mapping[str, list[str]]) -> None:
        """Let a piece read its features when the gradients of the piece before it are there.

        Compilers and runtimes that choose an order would else begin all pieces, and hold their scores at once. A number
        equals itself or is no number; that this is always so, they do not know.
        """
        there = [self._seen(name, values[-1]) for name, values in gradients.items() if self.described[name].shape]
        for name in self.part.starts if there else ():
            if is_floating(name, self.described):
                zero = self.op.constant(np.array(0, self.described[name].dtype))
                names[name] = self.op("Where", there[0] if len(there) == 1 else self._both(there), names[name], zero)

    def _seen(self, name: str, gradient: str) -> str:
        first = self.op("Slice", gradient, self.op.ints(0), self.op.ints(1), self.op.ints(self.axes.get(name, 0)))
        number = self.op("ReduceSum", first, keepdims=0)
        return self.op("Or", self.op("IsNaN", number), self.op("Equal", number, number))

    def _both(self, conditions: Sequence[str]) -> str:
        both, *others = conditions
        for other in others:
            both = self.op("And", both, other)
        return both

    def _inline(self, step: Graph, names: dict[str, str], piece: int, gradients: dict[str, list[str]]) -> None:
        """Write the nodes of one piece; ``names`` gets its values, ``gradients`` its own, or the sums so far."""
        results = {gradient_name(name): name for name in self.part.trained}
        sums = {node.inputs[0]: results[node.outputs[0]] for node in step.nodes if node.outputs[0] in results}
        for node in step.nodes:
            if node.outputs[0] in results:
                continue
            read = [name and names[name] for name in node.inputs]
            owner = sums.get(node.outputs[0], "")
            before = gradients.get(owner, []) if owner not in self.axes and _is_plain_product(step, node) else []
            if before:  # adds to what the pieces before it gave, in one kernel
                read = [*read[:2], before.pop()]
            written = [name and self.work.fresh_name(f"{self.op.prefix}{piece}/{name}") for name in node.outputs]
            name = self.work.fresh_name(f"{self.op.prefix}{piece}/{node.name}")
            self.work.add_node(node.op_type, read, written, name, node.domain, **node.attributes)
            names.update(zip(node.outputs, written, strict=True))
        for node in step.nodes:
            if node.outputs[0] in results:
                self._add_gradient(results[node.outputs[0]], names[node.inputs[0]], gradients)

    def _add_gradient(self, name: str, value: str, gradients: dict[str, list[str]]) -> None:
        """Rows follow each other; what rows share is summed up at once."""
        so_far = gradients.setdefault(name, [])
        so_far.append(self.op("Add", so_far.pop(), value) if so_far and name not in self.axes else value)

    # -- together ---------------------------------------------------------------------------------------------------
    def _result(self, total: str, counts: Sequence[str], gradients: Mapping[str, list[str]]) -> str:
        """The value in the place of the end's result: the sum, with its gradient, over what was counted."""
        end, dtype = self.part.end, self.described[self.part.end.outputs[0]].dtype or "float32"
        if self.part.trained:
            residuals = {name: self._joined(name, gradients[name]) for name in self.part.trained}
            arguments = [self.sources[name] for name in residuals]
            dtypes = [self.described[name].dtype or "float32" for name in residuals]
            attributes = {"values": 1, "arguments": len(residuals), "backward": _scaled(dtype, dtypes)}
            (total,) = self.op.many(
                CUSTOM, total, *arguments, *residuals.values(), outputs=1, domain=DOMAIN, **attributes
            )
        if counts:
            amount = reduce(lambda a, b: self.op("Add", a, b), counts)  # Sum takes no integers
            total = self.op("Div", total, self.op("Cast", amount, to=dtype_to_onnx(dtype)))
        elif self.mean:
            weight = end.inputs[2] if len(end.inputs) > 2 else ""
            label_dtype = self.described[end.inputs[1]].dtype or "int64"
            amount = counted_labels(self.op, end, end.inputs[1], weight, (dtype, label_dtype))
            ignores = end.attribute("ignore_index") is not None
            total = mean_if_any(self.op, total, amount, dtype) if ignores else self.op("Div", total, amount)
        rank = len(self.described[end.outputs[0]].shape or ())
        return self.op("Reshape", total, self.op.ints(*[1] * rank)) if rank else self.op("Identity", total)

    def _joined(self, name: str, gradients: Sequence[str]) -> str:
        return self.op("Concat", *gradients, axis=self.axes[name]) if name in self.axes else gradients[0]


def _is_plain_product(step: Graph, node: Node) -> bool:
    """Whether a node is a product of two matrices that only a gradient reads."""
    return node.op_type == "Gemm" and len(node.inputs) == 2 and len(step.consumers(node.outputs[0])) == 1


def _scaled(dtype: str, dtypes: Sequence[str]) -> Any:
    """The gradients of a sum, times the gradient that comes to it, as a graph."""
    inputs = [helper.make_tensor_value_info("upstream", dtype_to_onnx(dtype), None)]
    outputs, nodes = [], []
    for i, kind in enumerate(dtypes):
        inputs.append(helper.make_tensor_value_info(f"gradient{i}", dtype_to_onnx(kind), None))
        outputs.append(helper.make_tensor_value_info(f"scaled{i}", dtype_to_onnx(kind), None))
        scale = "upstream" if kind == dtype else f"upstream{i}"
        if kind != dtype:
            nodes.append(helper.make_node("Cast", ["upstream"], [scale], to=dtype_to_onnx(kind)))
        nodes.append(helper.make_node("Mul", [f"gradient{i}", scale], [f"scaled{i}"]))
    return helper.make_graph(nodes, "scaled", inputs, outputs)
