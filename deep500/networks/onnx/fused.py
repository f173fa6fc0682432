"""Operators that ONNX Runtime's optimizer fused (domain ``com.microsoft``), taken apart into ONNX's own.

So every backend has them, and their gradients. What they compute: ONNX Runtime's ``ContribOperators.md``. Some stand in
ONNX's own domain, where ONNX does not have them (``SimplifiedLayerNormalization``), or did not yet
(``LayerNormalization`` before opset 17).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from deep500.errors import NetworkError
from deep500.networks.node import OPSET

DOMAIN = "com.microsoft"
_FOREIGN = {"SimplifiedLayerNormalization": 10**6, "LayerNormalization": 17, "Gelu": 20}
"""Operators that ONNX Runtime writes into ONNX's domain, and the opset that has them there."""

Rule = Callable[..., Sequence[str]]
_RULES: dict[tuple[str, str], tuple[Rule, frozenset[str] | None]] = {}


def claim(model: onnx.ModelProto) -> None:
    """Move operators that ONNX does not have at the model's opset into ONNX Runtime's domain, in place."""
    opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=0)
    odd = [n for n in model.graph.node if n.domain in ("", "ai.onnx") and opset < _FOREIGN.get(n.op_type, 0)]
    for node in odd:
        node.domain = DOMAIN
    if odd and DOMAIN not in {o.domain for o in model.opset_import}:
        model.opset_import.append(helper.make_operatorsetid(DOMAIN, 1))


def expand(graph: onnx.GraphProto, source: str = "model") -> None:
    """Take the fused operators of a graph at our opset apart, in place; those without a rule stay.

    Raises:
        NetworkError: a form of one that its rule does not have; names the node.

    Example:
        >>> from onnx import parser
        >>> graph = parser.parse_graph("g (float[2] x, float[2] b) => (float[2] y) {y = com.microsoft.BiasGelu(x, b)}")
        >>> expand(graph)
        >>> [node.op_type for node in graph.node]
        ['Add', 'Gelu']
    """
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                expand(attribute.g, source)
    if not any((n.domain, n.op_type) in _RULES for n in graph.node):
        return
    nodes = list(graph.node)
    del graph.node[:]
    emit = Emit(graph, nodes, source)
    for node in nodes:
        if (node.domain, node.op_type) in _RULES:
            emit.take_apart(node)
        else:
            graph.node.append(node)


class Emit:
    """Appends nodes to a graph; what a rule calls."""

    def __init__(self, graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto], source: str) -> None:
        self.graph = graph
        self.read = {v for n in nodes for v in n.input} | {v.name for v in graph.output}
        self.source, self.prefix, self.count = source, "", 0
        self._shapes: dict[str, tuple[int | None, ...] | None] = {}

    def take_apart(self, node: onnx.NodeProto) -> None:
        """Append what a fused node stands for."""
        rule, attributes = _RULES[node.domain, node.op_type]
        where = f"{self.source}: node {node.name or node.output[0]!r} ({node.domain}.{node.op_type})"
        values = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if attributes is not None and (odd := sorted(set(values) - attributes)):
            raise NetworkError(f"{where}: got attribute {odd[0]!r}; expected one of {sorted(attributes)}: export again")
        self.where, self.prefix, self.count = where, f"{node.output[0]}/{node.op_type}", 0
        results = rule(self, *(v or None for v in node.input), **{n: _text(v) for n, v in values.items()})
        read = [v for v in node.output[len(results) :] if v in self.read]
        if read:
            self.refuse(f"output {read[0]!r}, which is read", "the others alone")
        for old, new in zip(node.output, results, strict=False):
            if not new and old in self.read:
                self.refuse(f"output {old!r}, which is read", "the others alone")
            if not old or not new:
                continue
            last = self.graph.node[-1]
            if len(results) == 1 and list(last.output) == [new]:
                last.output[0] = old
            else:
                self.graph.node.append(helper.make_node("Identity", [new], [old]))

    def refuse(self, got: str, expected: str) -> None:
        """Raise the error of a form that is not taken apart."""
        raise NetworkError(
            f"{self.where}: got {got}; expected {expected}: export the model in operators of ONNX's own domain"
        )

    def op(self, kind: str, *inputs: str | None, outputs: int = 1, **attributes: Any) -> Any:
        """Append one of ONNX's operators; returns its output's name, or names."""
        names = []
        for _ in range(outputs):
            self.count += 1
            names.append(f"{self.prefix}/{kind}_{self.count}")
        values = [v or "" for v in inputs]
        while values and not values[-1]:
            values.pop()
        self.graph.node.append(helper.make_node(kind, values, names, **attributes))
        return names[0] if outputs == 1 else names

    def ints(self, *values: int) -> str:
        """A vector of whole numbers."""
        return self.constant(np.array(values, np.int64))

    def constant(self, value: np.ndarray) -> str:
        """An array."""
        return self.op("Constant", value=numpy_helper.from_array(value))

    def number(self, value: float, like: str) -> str:
        """A number of the dtype of another value."""
        return self.op("CastLike", self.constant(np.array(value, np.float64)), like)

    def shape(self, value: str) -> tuple[int | None, ...]:
        """The shape of a value, as far as it can be inferred; unknown sizes are None. Refuses unknown ranks."""
        if self._shapes.get(value) is None:
            described = onnx.GraphProto()
            described.CopyFrom(self.graph)
            del described.output[:]
            model = helper.make_model(
                described,
                opset_imports=[
                    helper.make_opsetid("", OPSET),
                    helper.make_opsetid(DOMAIN, 1),
                    helper.make_opsetid("ai.onnx.ml", 3),
                ],
            )
            graph = onnx.shape_inference.infer_shapes(model).graph
            for v in (*graph.input, *graph.value_info, *self.graph.output):
                tensor = v.type.tensor_type
                if tensor.HasField("shape"):
                    self._shapes[v.name] = tuple(
                        d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim
                    )
            self._shapes.update({t.name: tuple(t.dims) for t in graph.initializer})
        known = self._shapes.get(value)
        if known is None:
            self.refuse(f"input {value!r} of unknown rank", "a rank that follows from the inputs' shapes")
        return known or ()


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def fused(*kinds: str, domain: str = DOMAIN) -> Callable[[Rule], Rule]:
    """Enter a rule: a function of :class:`Emit`, the inputs (None where absent) and the attributes."""

    def enter(rule: Rule) -> Rule:
        code = rule.__code__
        names = frozenset(code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount])
        known = None if code.co_flags & inspect.CO_VARKEYWORDS else names  # such a rule looks at them itself
        _RULES.update({(domain, kind): (rule, known) for kind in kinds})
        return rule

    return enter


def _sum(e: Emit, *values: str | None) -> str:
    first, *rest = (v for v in values if v)
    for value in rest:
        first = e.op("Add", first, value)
    return first


# -- activations -------------------------------------------------------------------------------------------------------
@fused("Gelu", "BiasGelu")
def gelu(e: Emit, x: str, bias: str | None = None) -> list[str]:
    """By the error function."""
    return [e.op("Gelu", _sum(e, x, bias))]


@fused("FastGelu")
def fast_gelu(e: Emit, x: str, bias: str | None = None) -> list[str]:
    """By the hyperbolic tangent."""
    return [e.op("Gelu", _sum(e, x, bias), approximate="tanh")]


@fused("QuickGelu")
def quick_gelu(e: Emit, x: str, *, alpha: float = 1.702) -> list[str]:
    """``x * sigmoid(alpha x)``."""
    return [e.op("Mul", x, e.op("Sigmoid", e.op("Mul", x, e.number(alpha, x))))]


def _activated(e: Emit, y: str, activation: str, first: Any = None, second: Any = None) -> str:
    parameters = {n: v for n, v in zip(("alpha", "beta"), (first, second), strict=True) if v is not None}
    if activation in ("", "Relu", "Tanh", "Sigmoid"):
        return e.op(activation, y) if activation else y
    if activation == "LeakyRelu":
        return e.op(activation, y, **({"alpha": first} if first is not None else {}))
    if activation == "HardSigmoid":
        return e.op(activation, y, **parameters)
    if activation == "Clip":
        return e.op(activation, y, e.number(first, y), e.number(second, y))
    e.refuse(f"activation {activation!r}", "Relu, Tanh, Sigmoid, LeakyRelu, HardSigmoid or Clip")
    return y


# -- products ----------------------------------------------------------------------------------------------------------
@fused("FusedMatMul", "TransposeMatMul")
def matmul(
    e: Emit,
    a: str,
    b: str,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
) -> list[str]:
    """``alpha`` times the product of matrices, which may be transposed."""
    if transBatchA or transBatchB:
        e.refuse("transBatchA or transBatchB", "neither")
    if transA:
        a = e.op("Transpose", a, perm=_last_two(len(e.shape(a))))
    if transB:
        b = e.op("Transpose", b, perm=_last_two(len(e.shape(b))))
    y = e.op("MatMul", a, b)
    return [y if alpha == 1 else e.op("Mul", y, e.number(alpha, y))]


def _last_two(rank: int) -> list[int]:
    return list(range(rank)) if rank < 2 else [*range(rank - 2), rank - 1, rank - 2]


@fused("FusedGemm")
def gemm(
    e: Emit,
    a: str,
    b: str,
    c: str | None = None,
    *,
    activation: str = "",
    activation_alpha: Any = None,
    activation_beta: Any = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> list[str]:
    """Gemm, then an activation."""
    y = e.op("Gemm", a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    return [_activated(e, y, activation, activation_alpha, activation_beta)]


@fused("FusedConv")
def conv(
    e: Emit,
    x: str,
    w: str,
    b: str | None = None,
    z: str | None = None,
    *,
    activation: str = "",
    activation_params: Sequence[float] = (),
    auto_pad: Any = None,
    dilations: Any = None,
    group: Any = None,
    kernel_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> list[str]:
    """Conv, plus ``z``, then an activation."""
    options = {"auto_pad": auto_pad, "dilations": dilations, "group": group, "pads": pads, "strides": strides}
    options["kernel_shape"] = kernel_shape
    y = e.op("Conv", x, w, b, **{n: v for n, v in options.items() if v is not None})
    return [_activated(e, _sum(e, y, z), activation, *activation_params)]


# -- normalization -----------------------------------------------------------------------------------------------------
@fused("LayerNormalization")
def layer_norm(
    e: Emit, x: str, scale: str, bias: str | None = None, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> list[str]:
    """ONNX's own, in files older than that."""
    return [e.op("LayerNormalization", x, scale, bias, axis=axis, epsilon=epsilon, stash_type=stash_type)]


@fused("SimplifiedLayerNormalization")
def rms_norm(e: Emit, x: str, scale: str, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> list[str]:
    """By the root of the mean square."""
    return [e.op("RMSNormalization", x, scale, axis=axis, epsilon=epsilon, stash_type=stash_type)]


@fused("SkipLayerNormalization")
def skip_layer_norm(
    e: Emit, x: str, skip: str, scale: str, shift: str | None = None, bias: str | None = None, *, epsilon: float = 1e-12
) -> list[str]:
    """LayerNormalization of a sum; the sum is the fourth output."""
    total = _sum(e, x, skip, bias)
    return _fourth(e, e.op("LayerNormalization", total, scale, shift, axis=-1, epsilon=epsilon), total)


@fused("SkipSimplifiedLayerNormalization")
def skip_rms_norm(
    e: Emit, x: str, skip: str, scale: str, bias: str | None = None, *, epsilon: float = 1e-12
) -> list[str]:
    """RMSNormalization of a sum; the sum is the fourth output."""
    total = _sum(e, x, skip, bias)
    return _fourth(e, e.op("RMSNormalization", total, scale, axis=-1, epsilon=epsilon), total)


def _fourth(e: Emit, y: str, total: str) -> list[str]:
    """Outputs two and three, mean and deviation, are left to be refused where they are read."""
    return [y, "", "", total]


@fused("EmbedLayerNormalization")
def embed_layer_norm(
    e: Emit,
    ids: str,
    segments: str | None,
    words: str,
    positions: str,
    kinds: str | None,
    scale: str,
    shift: str,
    mask: str | None = None,
    places: str | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> list[str]:
    """LayerNormalization of the sum of embeddings of words, positions and segments; then lengths; then the sum."""
    segments, places = (e.op("Cast", v, to=onnx.TensorProto.INT64) if v else None for v in (segments, places))
    numbers = e.op("Cast", ids, to=onnx.TensorProto.INT64)
    if places is None:
        position = e.op("Slice", positions, e.ints(0), e.op("Shape", ids, start=1, end=2), e.ints(0))
    else:
        position = e.op("Gather", positions, places)
    segment = e.op("Gather", kinds, segments) if kinds and segments else None
    total = _sum(e, e.op("Gather", words, numbers), position, segment)
    counted = e.op("Cast", mask, to=onnx.TensorProto.INT32) if mask else e.op("Sub", ids, ids)
    lengths = e.op("ReduceSum", counted, e.ints(1), keepdims=0)
    return [e.op("LayerNormalization", total, scale, shift, axis=-1, epsilon=epsilon), lengths, total]


# -- attention ---------------------------------------------------------------------------------------------------------
@fused("Attention")
def attention(
    e: Emit,
    x: str,
    weight: str,
    bias: str | None = None,
    mask: str | None = None,
    past: str | None = None,
    added: str | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    qkv_hidden_sizes: Any = None,
    scale: float | None = None,
    unidirectional: int = 0,
) -> list[str]:
    """Queries, keys and values by one product, then attention."""
    if past:
        e.refuse("a past", "none")
    projected = _sum(e, e.op("MatMul", x, weight), bias)
    parts = {"axis": -1, **({} if qkv_hidden_sizes else {"num_outputs": 3})}
    splits = e.ints(*qkv_hidden_sizes) if qkv_hidden_sizes else None
    query, key, value = e.op("Split", projected, splits, outputs=3, **parts)
    return [_attend(e, (query, key, value), (mask, mask_filter_value), added, num_heads, scale, unidirectional)]


@fused("MultiHeadAttention")
def multi_head_attention(
    e: Emit,
    query: str,
    key: str | None = None,
    value: str | None = None,
    bias: str | None = None,
    mask: str | None = None,
    added: str | None = None,
    past_key: str | None = None,
    past_value: str | None = None,
    *,
    num_heads: int,
    mask_filter_value: float = -10000.0,
    scale: float | None = None,
    unidirectional: int = 0,
) -> list[str]:
    """Attention of queries, keys and values of rank 3, to which biases are added."""
    if past_key or past_value or not key or not value or any(len(e.shape(v)) != 3 for v in (query, key, value)):
        e.refuse("a past, or packed queries, keys and values", "three inputs of rank 3")
    if bias:
        sizes = [e.op("Shape", v, start=2, end=3) for v in (query, key, value)]
        query, key, value = (
            e.op("Add", v, b)
            for v, b in zip(
                (query, key, value), e.op("Split", bias, e.op("Concat", *sizes, axis=0), outputs=3, axis=0), strict=True
            )
        )
    return [_attend(e, (query, key, value), (mask, mask_filter_value), added, num_heads, scale, unidirectional)]


def _attend(
    e: Emit,
    parts: tuple[Any, Any, Any],
    masked: tuple[str | None, float],
    added: str | None,
    heads: int,
    scale: float | None,
    causal: int,
) -> str:
    """ONNX's Attention; a mask of zeros and ones, or of lengths, is a number that is added where it is zero."""
    (query, key, value), (mask, filler) = parts, masked
    if mask:
        rank = len(e.shape(mask))
        if rank == 1:
            total = e.op("Squeeze", e.op("Shape", key, start=1, end=2))
            places = e.op(
                "Range", *(e.constant(np.array(n, np.int64)) if n is not None else total for n in (0, None, 1))
            )
            lengths = e.op("Cast", e.op("Unsqueeze", mask, e.ints(1)), to=onnx.TensorProto.INT64)
            mask, rank = e.op("Less", places, lengths), 2
        if rank not in (2, 3):
            e.refuse(f"a mask of rank {rank}", "rank 1 (lengths), 2 or 3")
        seen = e.op("Unsqueeze", e.op("CastLike", mask, query), e.ints(*((1, 2) if rank == 2 else (1,))))
        away = e.op("Mul", e.op("Sub", e.number(1, query), seen), e.number(filler, query))
        added = _sum(e, away, added)
    options: dict[str, Any] = {} if scale is None or scale == 0 else {"scale": scale}
    return e.op(
        "Attention", query, key, value, added, q_num_heads=heads, kv_num_heads=heads, is_causal=causal, **options
    )


@fused("RotaryEmbedding")
def rotary(
    e: Emit,
    x: str,
    places: str,
    cos: str,
    sin: str,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
    is_packed_batching: int = 0,
) -> list[str]:
    """ONNX's own; a single place is that of the first element."""
    if is_packed_batching or scale != 1:
        e.refuse("is_packed_batching or a scale", "neither")
    shape = e.shape(x)
    if len(shape) == 3 and not num_heads:
        width = e.shape(cos)[1]
        if not width or not shape[2]:
            e.refuse("no num_heads and unknown sizes", "num_heads")
        num_heads = (shape[2] or 0) // (2 * (width or 1))
    if len(e.shape(places)) == 1:
        axis = 1 if len(shape) == 3 else 2
        length = e.op("Squeeze", e.op("Shape", x, start=axis, end=axis + 1))
        steps = e.op("Range", e.constant(np.array(0, np.int64)), length, e.constant(np.array(1, np.int64)))
        row = e.op("Unsqueeze", e.op("Add", steps, places), e.ints(0))
        places = e.op("Expand", row, e.op("Concat", e.op("Shape", x, start=0, end=1), e.ints(1), axis=0))
    heads = {"num_heads": num_heads} if len(shape) == 3 else {}
    return [
        e.op(
            "RotaryEmbedding",
            x,
            cos,
            sin,
            places,
            interleaved=interleaved,
            rotary_embedding_dim=rotary_embedding_dim,
            **heads,
        )
    ]
