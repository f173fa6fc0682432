"""Micro-batches: a network whose operators work on pieces of the batch, one piece after the other.

Each piece gets nodes of its own, which share the parameters; inputs are split along their samples, results put
together again. Where samples are summed, in a mean loss above all, each piece gives its sum and how much it counted,
so that pieces of different size and ignored labels weigh what they weigh in the whole. Gradients of parameters are sums
over pieces: the same terms in another order. (Oyama et al. 2018, "Accelerating deep learning frameworks with
micro-batches", cut convolutions so; arXiv 1804.04806.)

Pieces alone save transient memory, of the piece that runs. What training keeps for its backward pass they keep as well,
unless it is computed again piece by piece: nodes of a piece are named ``piece<i>/<node>``, so that a recomputation plan
(`deep500.plan_checkpointing`) finds each piece as a region.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deep500.errors import InputError, NetworkError
from deep500.networks.emit import Emitter
from deep500.networks.network import Network
from deep500.networks.node import Node
from deep500.tensors import dtype_to_onnx
from deep500.transformations.batch_axes import LOSSES, BatchAxes, find_batch_axes
from deep500.transformations.label_means import counted_labels, mean_if_any
from deep500.transformations.parallel.shardings import pieces as pieces_of


def microbatch(
    network: Network,
    pieces: int | Sequence[int],
    nodes: Iterable[str] | None = None,
    inputs: Mapping[str, int] | None = None,
) -> Network:
    """A copy of a network that works on pieces of the batch.

    Args:
        network: stays as it is.
        pieces: how many, whose sizes differ by one at most; or the size of each, which must add up to the batch.
        nodes: names of the nodes that are cut; all that work on samples if None.
        inputs: axis of the samples in each input that has them; the first of every input that is no scalar if None.

    Returns:
        an ordinary network with the same inputs, parameters and outputs.

    Raises:
        NetworkError: a node that is to be cut mixes samples (batch normalization, a softmax over the batch),
            draws one mask for all (Dropout), or has no rule; it is named with the reason.
        InputError: fewer than two pieces, or sizes below 1.

    Example:
        >>> from deep500.networks.losses import add_loss
        >>> from deep500.networks.zoo import create
        >>> cut = microbatch(add_loss(create("mlp", shape=(4,), hidden=(3,), classes=2)), 2)
        >>> [node.name for node in cut.nodes if node.op_type == "Gemm"]
        ['piece0/fc1', 'piece0/fc2', 'piece1/fc1', 'piece1/fc2']
    """
    samples = find_batch_axes(network, inputs)
    part = _Part("", _chosen(network, samples, nodes), *division(pieces))
    return _in_parts(network, samples, [part])


def microbatch_parts(
    network: Network, parts: Mapping[str, tuple[Iterable[str], int]], inputs: Mapping[str, int] | None = None
) -> Network:
    """A copy of a network whose parts work on pieces of the batch, each part on as many as it is given.

    Args:
        network: stays as it is.
        parts: by name of a part the names of its nodes and the number of its pieces; nodes of piece ``i`` are named
            ``<part>/piece<i>/<node>``. No node is in two parts.
        inputs: see :func:`microbatch`.

    Raises:
        NetworkError, InputError: see :func:`microbatch`.

    Example:
        >>> from deep500.networks.losses import add_loss
        >>> from deep500.networks.zoo import create
        >>> network = add_loss(create("mlp", shape=(4,), hidden=(3,), classes=2))
        >>> cut = microbatch_parts(network, {"first": (["fc1"], 2), "second": (["fc2"], 3)})
        >>> [node.name for node in cut.nodes if node.op_type == "Gemm"][:3]
        ['first/piece0/fc1', 'first/piece1/fc1', 'second/piece0/fc2']
    """
    samples = find_batch_axes(network, inputs)
    chosen = [_Part(f"{p}/", _chosen(network, samples, nodes), *division(n)) for p, (nodes, n) in parts.items()]
    return _in_parts(network, samples, chosen)


def division(pieces: int | Sequence[int]) -> tuple[int, tuple[int, ...] | None]:
    """How many pieces, and their sizes if they are given."""
    sizes = tuple(map(int, pieces)) if isinstance(pieces, Sequence) else None
    count = len(pieces) if isinstance(pieces, Sequence) else int(pieces)
    if count < 2 or min(sizes or (1,)) < 1:
        raise InputError(f"got pieces={pieces!r}; expected two or more, or the sizes of two or more: 1 is the network")
    return count, sizes


def even_sizes(op: Emitter, value: str, axis: int, size: Any, count: int) -> str:
    """The name of the sizes of pieces of a value, which differ by one at most.

    Args:
        op: adds what computes them.
        value: to be split.
        axis: along which.
        size: of the axis, if it is known when the network is made; nodes compute them for any other.
        count: of pieces.

    Raises:
        InputError: more pieces than the size.
    """
    if not isinstance(size, int):
        whole = op("Shape", value, start=axis, end=axis + 1)
        return op("Div", op("Add", whole, op.ints(*reversed(range(count)))), op.ints(count))
    if size < count:
        raise InputError(f"got {count} pieces of {size} samples; expected at most as many as samples: take fewer")
    return op.ints(*pieces_of(size, count))


def divide_batch(
    batch: int, times: Mapping[int, float], memory: Mapping[int, int] | None = None, limit: float | None = None
) -> list[int]:
    """The sizes of pieces that take the least time under a limit that all pieces share, one after the other.

    The programme WR of Oyama et al. 2018, section 3.1: ``T(b) = min over pieces m of t(m) + T(b - m)``, ``T(0) = 0``,
    over sizes whose memory is within the limit.

    Args:
        batch: samples in all.
        times: of a piece by its size, in any unit.
        memory: of a piece by its size, in bytes; needed with a limit.
        limit: the most that one piece may take; None for no limit.

    Returns:
        sizes, the largest first.

    Raises:
        InputError: no sizes within the limit add up to the batch; the least limit that works is named if one does.

    Example:
        >>> divide_batch(10, {1: 3.0, 2: 4.0, 4: 6.0, 8: 20.0}, {1: 1, 2: 2, 4: 4, 8: 8}, limit=4)
        [4, 4, 2]
    """
    if batch < 1 or any(size < 1 or not cost >= 0 for size, cost in times.items()):
        raise InputError(
            f"got a batch of {batch} and times {dict(times)}; expected sizes from 1 on and times from 0 on"
        )
    if limit is not None and (memory is None or times.keys() - memory.keys()):
        raise InputError("got a limit without the memory of every size; expected memory={size: bytes}: measure it")
    sizes = [m for m in sorted(times) if limit is None or memory is None or memory[m] <= limit]
    best: list[tuple[float, int]] = [(0.0, 0)]
    for b in range(1, batch + 1):
        best.append(min(((times[m] + best[b - m][0], m) for m in sizes if m <= b), default=(float("inf"), 0)))
    if best[batch][0] == float("inf"):
        raise InputError(
            f"got sizes {sizes} within the limit of {limit}; expected some that add up to {batch}: "
            f"{_least_limit(batch, times, memory)}"
        )
    taken, left = list[int](), batch
    while left:
        taken.append(best[left][1])
        left -= taken[-1]
    return sorted(taken, reverse=True)


def _least_limit(batch: int, times: Mapping[int, float], memory: Mapping[int, int] | None) -> str:
    for limit in sorted(set((memory or {}).values())):
        reached = {0}
        for b in range(1, batch + 1):
            if any(b - m in reached for m in times if (memory or {})[m] <= limit):
                reached.add(b)
        if batch in reached:
            return f"the least limit that works is {limit}"
    return "none do at any limit: name size 1, too"


def _chosen(network: Network, samples: BatchAxes, nodes: Iterable[str] | None) -> set[str]:
    """The names of the nodes that are cut."""
    working = [node for node in network.nodes if any(name in samples.axes for name in node.reads)]
    chosen = {node.name for node in working} if nodes is None else {network.node(name).name for name in nodes}
    for node in working:
        if node.name in chosen and (node.name in samples.mixing or node.graphs):
            why = samples.mixing.get(node.name, "it holds networks of its own")
            raise NetworkError(
                f"node {node.name!r} ({node.op_type}): got a cut along the samples, but {why}; expected operators that "
                "keep samples apart: name the others with nodes=[...], or leave the network whole"
            )
    idle = chosen - {node.name for node in working}
    if idle or not chosen:
        raise NetworkError(f"got {sorted(idle) or 'no nodes'} to cut; expected nodes that work on samples: name some")
    return chosen


@dataclass(frozen=True)
class _Part:
    """Nodes that are cut alike; their new names begin with ``prefix``."""

    prefix: str
    nodes: set[str]
    count: int
    sizes: tuple[int, ...] | None


def _in_parts(network: Network, samples: BatchAxes, parts: Sequence[_Part]) -> Network:
    """Every part cut; the rest as it is."""
    work = _Pieces(network, samples)
    for run, part in _runs(network, parts, samples.combined):
        if part is not None:
            work.add_pieces(run, part)
        else:
            for node in run:
                work.add_whole(node)
    return work.finish()


def _runs(
    network: Network, parts: Sequence[_Part], combined: Mapping[str, str]
) -> list[tuple[list[Node], _Part | None]]:
    """Nodes in an order in which those of one part follow each other as far as they can, with their part.

    What is whole comes as early as it can, so that no part stops for it.
    A sum over samples is there when the last piece is done: what reads it comes in a later run.
    """
    left, done, runs = list(network.nodes), {*network.inputs, *network.parameters}, list[Any]()
    part_of = {name: part for part in parts for name in part.nodes}
    while left:
        able = [part_of.get(node.name) for node in left if all(name in done for name in node.reads)]
        part, run, later = None if None in able else able[0], list[Node](), list[Node]()
        for node in left:
            ready = part_of.get(node.name) is part and all(name in done for name in node.reads)
            (run if ready else later).append(node)
            done.update(name for name in node.writes if ready and not (part and name in combined))
        done.update(name for node in run for name in node.writes)
        runs.append((run, part))
        left = later
    return runs


@dataclass
class _Pieces:
    """The network under construction; what was split is known by the sizes of its pieces, for all parts cut alike."""

    old: Network
    samples: BatchAxes
    new: Network = field(init=False)
    emit: Emitter = field(init=False)
    whole: set[str] = field(default_factory=set)
    part: _Part = field(init=False)
    divided: dict[Any, dict[str, list[str]]] = field(default_factory=dict)
    even: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.new = self.old.bare()
        self.emit = Emitter(self.new, "microbatch/")
        for name, described in self.old.inputs.items():
            self.new.add_input(name, described.shape, described.dtype or "float32")
        for name, parameter in self.old.parameters.items():
            self.new.add_parameter(name, parameter.value, parameter.trainable, parameter.doubt)
        self.whole = {*self.old.inputs, *self.old.parameters}

    def add_whole(self, node: Node) -> None:
        """Add a node as it is."""
        for name in node.reads:
            self._join(name)
        self.new.insert(node)
        self.whole.update(node.writes)

    @property
    def split(self) -> dict[str, list[str]]:
        """Pieces of values, cut as the present part is."""
        return self.divided.setdefault(self.part.sizes or self.part.count, {})

    def add_pieces(self, nodes: Sequence[Node], part: _Part) -> None:
        """Add nodes once per piece, piece after piece, and put together what sums over samples."""
        self.part = part
        inside = {name for node in nodes for name in node.writes}
        for name in dict.fromkeys(name for node in nodes for name in node.reads):
            if name in self.samples.axes and name not in inside:
                self._cut(name)
        sums: dict[str, list[tuple[str, str | None]]] = {}
        for piece in range(part.count):
            for node in nodes:
                read = [self._piece_of(name, piece) for name in node.inputs]
                if node.outputs[0] in self.samples.combined:
                    sums.setdefault(node.name, []).append(self._sum(node, read, piece))
                    continue
                writes = [name and self._named(name, piece) for name in node.outputs]
                self._node(node, read, writes, piece)
                self._note(node.outputs, writes)
        for node in nodes:
            if node.name in sums:
                self._combine(node, sums[node.name])

    def finish(self) -> Network:
        """The network, with its outputs."""
        for name in self.old.outputs:
            self._join(name)
            self.new.add_output(name)
        return self.new

    def _piece_of(self, name: str, piece: int) -> str:
        return self.split[name][piece] if name in self.split else name

    def _named(self, name: str, piece: int) -> str:
        return self.new.fresh_name(f"{self.part.prefix}{name}.piece{piece}")

    def _note(self, names: Sequence[str], writes: Sequence[str]) -> None:
        for name, written in zip(names, writes, strict=True):
            if name:
                self.split.setdefault(name, []).append(written)

    def _node(self, node: Node, read: Sequence[str], writes: Sequence[str], piece: int, **changed: Any) -> None:
        attributes = {**node.attributes, **changed}
        self.new.add_node(node.op_type, read, writes, self._node_name(node, piece), node.domain, **attributes)

    def _node_name(self, node: Node, piece: int) -> str:
        return f"{self.part.prefix}piece{piece}/{node.name}"

    def _cut(self, name: str) -> None:
        """Split a value along its samples."""
        if name in self.split:
            return
        self._join(name)
        part, axis = self.part, self.samples.axes[name]
        pieces, where = [self._named(name, piece) for piece in range(part.count)], f"{part.prefix}pieces/{name}"
        sizes = self.emit.ints(*part.sizes) if part.sizes else self._even(name, axis)
        self.new.add_node("Split", [name, sizes], pieces, where, axis=axis)
        self.split[name] = pieces

    def _even(self, name: str, axis: int) -> str:
        """Sizes of the pieces of a batch, which all values have in common."""
        count = self.part.count
        if count not in self.even:
            shape = self.old.descriptors()[name].shape
            self.even[count] = even_sizes(self.emit, name, axis, shape[axis] if shape else None, count)
        return self.even[count]

    def _join(self, name: str) -> None:
        """Put the pieces of a value together, if they were not."""
        pieces = next((split[name] for split in self.divided.values() if name in split), None)
        if name in self.whole or pieces is None:
            return
        self.new.add_node("Concat", pieces, name, f"joined/{name}", axis=self.samples.axes[name])
        self.whole.add(name)

    def _sum(self, node: Node, read: Sequence[str], piece: int) -> tuple[str, str | None]:
        """A piece's sum, and the amount that a mean divides by (None for a sum)."""
        described = self.old.descriptors()
        dtype = described[node.outputs[0]].dtype or "float32"
        total, *rest = [name and self._named(name, piece) for name in node.outputs]
        if node.op_type in LOSSES:
            self._node(node, read, [total, *rest], piece, reduction="sum")
            self._note(node.outputs[1:], rest)
            mean = node.attribute("reduction", "mean") == "mean"
            weight, label_dtype = read[2] if len(read) > 2 else "", described[node.inputs[1]].dtype or "int64"
            return total, counted_labels(self.emit, node, read[1], weight, (dtype, label_dtype)) if mean else None
        self.new.add_node("ReduceSum", read, total, self._node_name(node, piece), **node.attributes)
        if node.op_type == "ReduceSum":
            return total, None
        sizes = [self.emit("Size", name) for name in (read[0], total)]
        return total, self.emit("Div", *(self.emit("Cast", size, to=dtype_to_onnx(dtype)) for size in sizes))

    def _combine(self, node: Node, sums: Sequence[tuple[str, str | None]]) -> None:
        """The value of the whole batch, from the sums of its pieces."""
        totals, amounts = [total for total, _ in sums], [amount for _, amount in sums if amount is not None]
        if amounts:
            whole, amount = self.emit("Sum", *totals), self.emit("Sum", *amounts)
            if node.attribute("ignore_index") is None:
                self.new.add_node("Div", [whole, amount], node.outputs[0], node.name)
            else:
                dtype = self.old.descriptors()[node.outputs[0]].dtype or "float32"
                self.new.add_node("Identity", mean_if_any(self.emit, whole, amount, dtype), node.outputs[0], node.name)
        else:
            self.new.add_node("Sum", totals, node.outputs[0], node.name)
        self.whole.add(node.outputs[0])
