"""Models of scikit-learn and its like (domain ``ai.onnx.ml``), taken apart into ONNX's own operators when read.

So every backend has them. They are for inference: trees have no gradient, and what was learned elsewhere is constants.
Trees are walked level by level, all trees of an ensemble at once: where each sample stands in each tree is an array of
numbers of nodes, and a leaf leads to itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from deep500.networks.onnx.fused import Emit, fused
from deep500.networks.onnx.fused import expand as expand

DOMAIN = "ai.onnx.ml"
_COMPARED = {
    "BRANCH_LEQ": "LessOrEqual",
    "BRANCH_LT": "Less",
    "BRANCH_GTE": "GreaterOrEqual",
    "BRANCH_GT": "Greater",
    "BRANCH_EQ": "Equal",
    "BRANCH_NEQ": "Equal",
}
_DEEPEST = 256


def _float(e: Emit, x: str) -> str:
    return str(e.op("Cast", x, to=onnx.TensorProto.FLOAT))


def _row(e: Emit, numbers: Sequence[float]) -> str:
    return e.constant(np.array(numbers, np.float32))


@fused("Scaler", domain=DOMAIN)
def scaler(e: Emit, x: str, *, offset: Sequence[float] = (0.0,), scale: Sequence[float] = (1.0,)) -> list[str]:
    """``(x - offset) * scale``."""
    return [e.op("Mul", e.op("Sub", _float(e, x), _row(e, offset)), _row(e, scale))]


@fused("ArrayFeatureExtractor", domain=DOMAIN)
def array_feature_extractor(e: Emit, x: str, index: str) -> list[str]:
    """Columns of the last axis."""
    picked = e.op("Gather", x, e.op("Reshape", index, e.ints(-1)), axis=-1)
    return [e.op("Reshape", picked, e.ints(1, -1)) if len(e.shape(x)) == 1 else picked]


@fused("Binarizer", domain=DOMAIN)
def binarizer(e: Emit, x: str, *, threshold: float = 0.0) -> list[str]:
    """1 above the threshold, else 0, in the dtype of ``x``."""
    return [e.op("CastLike", e.op("Greater", x, e.number(threshold, x)), x)]


@fused("Normalizer", domain=DOMAIN)
def normalizer(e: Emit, x: str, *, norm: str = "MAX") -> list[str]:
    """Rows divided by their largest element, the sum of their sizes, or their length; rows of zeros stay."""
    kinds = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}
    if norm not in kinds:
        e.refuse(f"norm {norm!r}", "MAX, L1 or L2")
    x = _float(e, x)
    size = e.op(kinds[norm], x, e.ints(-1), keepdims=1)
    return [e.op("Div", x, e.op("Where", e.op("Equal", size, _row(e, [0])), _row(e, [1]), size))]


@fused("Imputer", domain=DOMAIN)
def imputer(
    e: Emit,
    x: str,
    *,
    imputed_value_floats: Sequence[float] = (),
    imputed_value_int64s: Sequence[int] = (),
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> list[str]:
    """Other numbers in the place of one, which may be NaN."""
    if imputed_value_int64s:
        whole = e.constant(np.array(imputed_value_int64s, np.int64))
        return [e.op("Where", e.op("Equal", x, e.constant(np.array(replaced_value_int64))), whole, x)]
    missing = np.isnan(replaced_value_float)
    at = e.op("IsNaN", x) if missing else e.op("Equal", x, e.number(replaced_value_float, x))
    return [e.op("Where", at, e.op("CastLike", _row(e, imputed_value_floats), x), x)]


@fused("FeatureVectorizer", domain=DOMAIN)
def feature_vectorizer(e: Emit, *columns: str, inputdimensions: Sequence[int] = ()) -> list[str]:
    """All columns side by side."""
    return [e.op("Concat", *(_float(e, column) for column in columns), axis=1)]


# -- results ----------------------------------------------------------------------------------------------------------
def _transformed(e: Emit, scores: str, post_transform: str) -> str:
    if post_transform == "NONE":
        return scores
    if post_transform == "SOFTMAX":
        return str(e.op("Softmax", scores, axis=-1))
    if post_transform != "LOGISTIC":
        e.refuse(f"post_transform {post_transform!r}", "NONE, LOGISTIC or SOFTMAX")
    return str(e.op("Sigmoid", scores))


def _labels(e: Emit, numbers: Sequence[int], strings: Sequence[bytes]) -> tuple[str, int]:
    """The classes, and how many there are."""
    classes = np.array([s.decode() for s in strings], object) if strings else np.array(numbers, np.int64)
    return e.constant(classes), len(classes)


def _classified(e: Emit, scores: str, classes: str) -> str:
    return str(e.op("Gather", classes, e.op("ArgMax", scores, axis=1, keepdims=0)))


def _two(e: Emit, score: str, classes: str, positive: bool, post_transform: str) -> list[str]:
    """Class and scores of two classes of which the second alone has a score: a probability, or a number around 0."""
    above = e.op("Greater", score, _row(e, [0.5 if positive else 0.0]))
    label = e.op("Gather", classes, e.op("Cast", e.op("Squeeze", above, e.ints(1)), to=onnx.TensorProto.INT64))
    if positive:
        return [label, e.op("Concat", e.op("Sub", _row(e, [1.0]), score), score, axis=1)]
    both = e.op("Concat", e.op("Neg", score), score, axis=1)
    return [label, e.op("Sigmoid", both) if post_transform == "LOGISTIC" else both]


# -- linear models ----------------------------------------------------------------------------------------------------
def _linear(e: Emit, x: str, coefficients: Sequence[float], intercepts: Sequence[float], count: int) -> str:
    weights = e.constant(np.array(coefficients, np.float32).reshape(count, -1).T.copy())
    y = e.op("MatMul", _float(e, x), weights)
    return str(e.op("Add", y, _row(e, intercepts)) if len(intercepts) else y)


@fused("LinearRegressor", domain=DOMAIN)
def linear_regressor(
    e: Emit,
    x: str,
    *,
    coefficients: Sequence[float] = (),
    intercepts: Sequence[float] = (),
    post_transform: str = "NONE",
    targets: int = 1,
) -> list[str]:
    """``x W + b``."""
    return [_transformed(e, _linear(e, x, coefficients, intercepts, targets), post_transform)]


@fused("LinearClassifier", domain=DOMAIN)
def linear_classifier(
    e: Emit,
    x: str,
    *,
    coefficients: Sequence[float] = (),
    intercepts: Sequence[float] = (),
    classlabels_ints: Sequence[int] = (),
    classlabels_strings: Sequence[bytes] = (),
    multi_class: int = 0,
    post_transform: str = "NONE",
) -> list[str]:
    """The class of the largest score, and the scores."""
    classes, count = _labels(e, classlabels_ints, classlabels_strings)
    if len(intercepts) != count:
        e.refuse(f"{len(intercepts)} intercepts for {count} classes", "one for each class")
    scores = _linear(e, x, coefficients, intercepts, count)
    return [_classified(e, scores, classes), _transformed(e, scores, post_transform)]


# -- trees ------------------------------------------------------------------------------------------------------------
class _Forest:
    """Nodes of all trees in one row; ``at`` finds (tree, node) in it."""

    def __init__(self, e: Emit, attributes: dict[str, Any]) -> None:
        self.e, self.modes = e, [mode.decode() for mode in attributes["nodes_modes"]]
        trees, numbers = list(attributes["nodes_treeids"]), list(attributes["nodes_nodeids"])
        self.at = {key: i for i, key in enumerate(zip(trees, numbers, strict=True))}
        values = attributes["nodes_values_as_tensor"]
        self.values = (
            np.array(attributes["nodes_values"], np.float32) if values is None else onnx.numpy_helper.to_array(values)
        )
        self.features = np.array(attributes["nodes_featureids"], np.int64)
        self.tracks = np.array(attributes["nodes_missing_value_tracks_true"] or [0] * len(trees), bool)
        if odd := sorted({mode for mode in self.modes if mode != "LEAF" and mode not in _COMPARED}):
            e.refuse(f"mode {odd[0]!r}", f"LEAF, {', '.join(_COMPARED)}")
        leads = []
        for there in (attributes["nodes_truenodeids"], attributes["nodes_falsenodeids"]):
            leads.append([self._next(i, trees[i], n) for i, n in enumerate(there)])
        self.yes, self.no = np.array(leads[0], np.int64), np.array(leads[1], np.int64)
        pointed = {n for lead in leads for i, n in enumerate(lead) if n != i}
        self.roots = np.array([i for i in range(len(trees)) if i not in pointed], np.int64)
        if len(self.roots) != len(set(trees)):
            e.refuse(f"{len(self.roots)} roots of {len(set(trees))} trees", "one root each")

    def _next(self, here: int, tree: int, number: int) -> int:
        if self.modes[here] == "LEAF":
            return here
        if (tree, number) not in self.at:
            self.e.refuse(f"node {number} of tree {tree}, which is not there", "nodes of the same tree")
        return self.at[tree, number]

    def depth(self) -> int:
        """Steps from the roots to the deepest leaf."""
        level, depth = set(self.roots.tolist()), 0
        while any(self.modes[i] != "LEAF" for i in level):
            level, depth = {int(n) for i in level for n in (self.yes[i], self.no[i])}, depth + 1
            if depth > _DEEPEST:
                self.e.refuse(f"trees of more than {_DEEPEST} levels", "trees that end")
        return depth

    def leaves(self, x: str) -> str:
        """The leaf of each sample in each tree, [N, trees]."""
        e, op = self.e, self.e.op
        count = op("Concat", op("Shape", x, start=0, end=1), e.ints(1), axis=0)
        here = op(
            "Add", op("ConstantOfShape", count, value=onnx.numpy_helper.from_array(np.array([0]))), e.ints(*self.roots)
        )
        table = {name: e.constant(getattr(self, name)) for name in ("features", "values", "yes", "no", "tracks")}
        kinds = sorted({_COMPARED[mode] for mode in self.modes if mode != "LEAF"})
        kind = e.constant(np.array([kinds.index(_COMPARED[m]) if m != "LEAF" else 0 for m in self.modes], np.int64))
        turned = e.constant(np.array([mode == "BRANCH_NEQ" for mode in self.modes]))
        for _ in range(self.depth()):
            feature = op("GatherElements", x, op("Gather", table["features"], here), axis=1)
            value = op("Gather", table["values"], here)
            holds = op(kinds[0], feature, value)
            for number, other in enumerate(kinds[1:], 1):
                mine = op("Equal", op("Gather", kind, here), e.ints(number))
                rest = op("And", op("Not", mine), holds)
                holds = op("Or", op("And", mine, op(other, feature, value)), rest)
            if "BRANCH_NEQ" in self.modes:
                holds = op("Xor", holds, op("Gather", turned, here))
            if self.tracks.any():
                holds = op("Or", holds, op("And", op("IsNaN", feature), op("Gather", table["tracks"], here)))
            here = op("Where", holds, op("Gather", table["yes"], here), op("Gather", table["no"], here))
        return str(here)

    def sums(self, x: str, weights: np.ndarray, how: str, base: Any) -> str:
        """Sum what the leaves weigh, [N, K], over all trees."""
        op = self.e.op
        if how not in ("SUM", "AVERAGE") and weights.shape[1] > 1:
            self.e.refuse(f"aggregate_function {how!r} of several targets", "SUM or AVERAGE")
        kinds = {"SUM": "ReduceSum", "AVERAGE": "ReduceMean", "MIN": "ReduceMin", "MAX": "ReduceMax"}
        if how not in kinds:
            self.e.refuse(f"aggregate_function {how!r}", ", ".join(kinds))
        weights_of_leaves = op("Gather", self.e.constant(weights), self.leaves(x))  # [N, trees, K]
        y = op(kinds[how], weights_of_leaves, self.e.ints(1), keepdims=0)
        return str(op("Add", y, self.e.constant(np.array(base, weights.dtype))) if len(base) else y)


def _trees(e: Emit, attributes: dict[str, Any], prefix: str, count: int) -> tuple[_Forest, np.ndarray]:
    """The forest, and [nodes, count] weights of its leaves."""
    forest = _Forest(e, attributes)
    stored = attributes[f"{prefix}_weights_as_tensor"]
    amounts = (
        np.array(attributes[f"{prefix}_weights"], np.float32) if stored is None else onnx.numpy_helper.to_array(stored)
    )
    weights = np.zeros((len(forest.modes), count), amounts.dtype)
    keys = zip(attributes[f"{prefix}_treeids"], attributes[f"{prefix}_nodeids"], strict=True)
    for key, column, amount in zip(keys, attributes[f"{prefix}_ids"], amounts, strict=True):
        if key not in forest.at or not 0 <= column < count:
            e.refuse(f"a weight of node {key[1]} of tree {key[0]} for {column}", f"leaves, and numbers below {count}")
        weights[forest.at[key], column] += amount
    return forest, weights


_NODES = (
    *("falsenodeids", "featureids", "hitrates", "missing_value_tracks_true", "modes", "nodeids", "treeids"),
    *("truenodeids", "values"),
)
_TREE = frozenset(f"nodes_{name}" for name in _NODES) | {"nodes_hitrates_as_tensor", "nodes_values_as_tensor"}
_TREE |= {"post_transform", "base_values", "base_values_as_tensor"}


def _with_defaults(e: Emit, prefix: str, attributes: dict[str, Any], more: set[str]) -> dict[str, Any]:
    parts = {f"{prefix}_{name}" for name in ("ids", "nodeids", "treeids", "weights", "weights_as_tensor")}
    known = _TREE | parts | more
    if odd := sorted(set(attributes) - known):
        e.refuse(f"attribute {odd[0]!r}", f"one of {sorted(known)}")
    values = {name: None if name.endswith("_as_tensor") else () for name in known} | attributes
    base = values["base_values_as_tensor"]
    values["base"] = list(values["base_values"]) if base is None else onnx.numpy_helper.to_array(base).tolist()
    return values


def _asked(e: Emit, x: str, attributes: dict[str, Any]) -> str:
    """The samples in the dtype of the thresholds."""
    tensor = attributes["nodes_values_as_tensor"]
    return str(e.op("Cast", x, to=onnx.TensorProto.FLOAT if tensor is None else tensor.data_type))


@fused("TreeEnsembleRegressor", domain=DOMAIN)
def tree_ensemble_regressor(e: Emit, x: str, **attributes: Any) -> list[str]:
    """The sum (mean, least, largest) over all trees of what their leaves weigh."""
    values = _with_defaults(e, "target", attributes, {"aggregate_function", "n_targets"})
    forest, weights = _trees(e, values, "target", values["n_targets"] or 1)
    y = forest.sums(_asked(e, x, values), weights, values["aggregate_function"] or "SUM", values["base"])
    return [_transformed(e, _float(e, y), values["post_transform"] or "NONE")]


@fused("TreeEnsembleClassifier", domain=DOMAIN)
def tree_ensemble_classifier(e: Emit, x: str, **attributes: Any) -> list[str]:
    """The class of the largest sum of weights, and the sums."""
    values = _with_defaults(e, "class", attributes, {"classlabels_int64s", "classlabels_strings"})
    classes, count = _labels(e, values["classlabels_int64s"], values["classlabels_strings"])
    forest, weights = _trees(e, values, "class", count)
    kind, columns = values["post_transform"] or "NONE", sorted(set(values["class_ids"]))
    single = count == 2 and columns == [0]  # what exporters write of two classes: it is the second's score
    if len(values["base"]) not in (0, 1 if single else count):
        e.refuse(f"{len(values['base'])} base values", f"{1 if single else count}, or none")
    if single:
        weights = weights[:, :1]
    scores = _float(e, forest.sums(_asked(e, x, values), weights, "SUM", values["base"]))
    if single:
        return _two(e, scores, classes, bool((weights >= 0).all()), kind)
    return [_classified(e, scores, classes), _transformed(e, scores, kind)]
