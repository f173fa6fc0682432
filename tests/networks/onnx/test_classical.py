"""What scikit-learn exports, taken apart: each against ONNX Runtime's own kernel, on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from deep500.errors import NetworkError
from deep500.networks import Network
from tests.conftest import load_backend

runtime = pytest.importorskip("onnxruntime")
DOMAIN = "ai.onnx.ml"
RANDOM = np.random.default_rng(5)
X = RANDOM.standard_normal((7, 4)).astype(np.float32)


def forest(prefix: str, columns: int, modes: tuple[str, ...] = ("BRANCH_LEQ",), least: float = 0.0) -> dict[str, Any]:
    """Three trees of up to three levels, with weights for every column in every leaf."""
    words = ("treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids")
    words += ("missing_value_tracks_true",)
    nodes: dict[str, list[Any]] = {word: [] for word in words}
    leaves: dict[str, list[Any]] = {word: [] for word in ("treeids", "nodeids", "ids", "weights")}
    for tree in range(3):
        todo, count = [(0, 0)], 1
        while todo:
            number, level = todo.pop(0)
            leaf = level == 3 or (level > 1 and RANDOM.random() < 0.4)
            ways = (0, 0) if leaf else (count, count + 1)
            mode = "LEAF" if leaf else str(RANDOM.choice(modes))
            value = float(X[RANDOM.integers(7), number % 4])  # some samples lie on the threshold
            row = (tree, number, mode, int(RANDOM.integers(4)), value, *ways, int(RANDOM.integers(2)))
            for word, entry in zip(words, row, strict=True):
                nodes[word].append(entry)
            if not leaf:
                todo += [(count, level + 1), (count + 1, level + 1)]
                count += 2
            for column in range(columns) if leaf else ():
                for word, entry in zip(leaves, (tree, number, column, float(RANDOM.uniform(least, 1))), strict=True):
                    leaves[word].append(entry)
    return {f"nodes_{k}": v for k, v in nodes.items()} | {f"{prefix}_{k}": v for k, v in leaves.items()}


ALL = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
INTS, THREE = {"classlabels_int64s": [3, 5]}, {"classlabels_int64s": [2, 0, 7]}
HOLES = np.where(RANDOM.random((7, 4)) < 0.2, np.nan, X).astype(np.float32)
ROW = {"coefficients": RANDOM.standard_normal(8).tolist(), "intercepts": [0.1, -0.2]}
TWO = {"classlabels_ints": [3, 5]}
CASES: dict[str, tuple[str, list[np.ndarray], dict[str, Any]]] = {
    "scaler": ("Scaler", [X], {"offset": [0.1, 0.2, 0.3, 0.4], "scale": [1.0, 2.0, 3.0, 4.0]}),
    "scaler of one number": ("Scaler", [X], {"offset": [0.5], "scale": [2.0]}),
    "scaler of whole numbers": ("Scaler", [(X * 9).astype(np.int64)], {"offset": [0.5], "scale": [2.0]}),
    "columns": ("ArrayFeatureExtractor", [X, np.array([2, 0], np.int64)], {}),
    "binarizer": ("Binarizer", [X], {"threshold": 0.2}),
    **{f"normalizer {n}": ("Normalizer", [np.abs(X)], {"norm": n}) for n in ("MAX", "L1", "L2")},
    "imputer": ("Imputer", [HOLES], {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": np.nan}),
    "vectorizer": ("FeatureVectorizer", [X, X[:, :2]], {"inputdimensions": [4, 2]}),
    "linear regressor": ("LinearRegressor", [X], ROW | {"targets": 2}),
    **{
        f"linear classifier {kind}": ("LinearClassifier", [X], ROW | TWO | {"post_transform": kind})
        for kind in ("NONE", "SOFTMAX", "LOGISTIC")
    },
    "regressor": ("TreeEnsembleRegressor", [X], forest("target", 2) | {"n_targets": 2, "base_values": [1.0, 2.0]}),
    "regressor of all modes": ("TreeEnsembleRegressor", [X], forest("target", 1, ALL) | {"n_targets": 1}),
    "regressor of holes": ("TreeEnsembleRegressor", [HOLES], forest("target", 1) | {"n_targets": 1}),
    **{
        f"regressor {how}": (
            "TreeEnsembleRegressor", [X], forest("target", 1) | {"n_targets": 1, "aggregate_function": how}
        )
        for how in ("AVERAGE", "MIN", "MAX")
    },
    **{
        f"classifier of three {kind}": (
            "TreeEnsembleClassifier", [X], forest("class", 3) | THREE | {"post_transform": kind}
        )
        for kind in ("NONE", "SOFTMAX", "LOGISTIC")
    },
    "classifier of two": ("TreeEnsembleClassifier", [X], forest("class", 2) | INTS),
    "probability": ("TreeEnsembleClassifier", [X], forest("class", 1) | INTS),
    **{
        f"score {kind}": (
            "TreeEnsembleClassifier",
            [X],
            forest("class", 1, least=-1) | INTS | {"post_transform": kind, "base_values": [0.1]},
        )
        for kind in ("NONE", "LOGISTIC")
    },
}  # fmt: off


def model(name: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    kind, arrays, attributes = CASES[name]
    feeds = {f"x{i}": array for i, array in enumerate(arrays)}
    inputs = [
        helper.make_tensor_value_info(
            n, helper.np_dtype_to_tensor_dtype(a.dtype), ["N", *a.shape[1:]] if a.ndim == 2 else a.shape
        )
        for n, a in feeds.items()
    ]
    outputs = ["label", "scores"] if "Classifier" in kind else ["y"]
    node = helper.make_node(kind, list(feeds), outputs, domain=DOMAIN, name="learned", **attributes)
    results = [
        helper.make_tensor_value_info(n, onnx.TensorProto.INT64 if n == "label" else onnx.TensorProto.FLOAT, None)
        for n in outputs
    ]
    graph = helper.make_graph([node], "graph", inputs, results)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), feeds


@pytest.mark.filterwarnings("ignore::deep500.networks.onnx.load.DoubtfulParametersWarning")
@pytest.mark.parametrize("name", CASES)
def test_they_are_what_onnx_runtime_computes(name: str) -> None:
    made, feeds = model(name)
    session = runtime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    want = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))
    network = Network.from_onnx(made)
    assert not any(node.domain for node in network.nodes)
    got = load_backend("reference").from_model(network).inference(feeds)
    if name == "classifier of two":  # there ONNX Runtime answers 1, which is none of the classes
        want["label"] = np.array([3, 5])[want["scores"].argmax(1)]
    for key, value in want.items():
        assert np.asarray(got[key]).dtype == value.dtype
        np.testing.assert_allclose(got[key], value, rtol=2e-6, atol=2e-7, err_msg=key)


@pytest.mark.parametrize("name", ["scaler", "columns", "regressor of all modes", "classifier of three SOFTMAX"])
@pytest.mark.parametrize("backend", ["pytorch", "onnxruntime", "tensorflow", "jax"])
def test_every_backend_has_them(backend: str, name: str) -> None:
    made, feeds = model(name)
    network = Network.from_onnx(made)
    want = load_backend("reference").from_model(network).inference(feeds)
    got = load_backend(backend).from_model(network).inference(feeds)
    for key, value in want.items():
        np.testing.assert_allclose(np.asarray(got[key]), value, rtol=2e-6, atol=2e-7, err_msg=key)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes_truenodeids": [99]}, "node 99 of tree 0, which is not there"),
        ({"nodes_modes": ["BRANCH_MEMBER"]}, "mode 'BRANCH_MEMBER'; expected LEAF"),
        ({"nodes_truenodeids": [0]}, "roots of|more than 256 levels"),
        ({"target_ids": [4]}, "for 4; expected leaves, and numbers below 1"),
        ({"post_transform": "PROBIT"}, "post_transform 'PROBIT'"),
    ],
)
def test_trees_that_make_no_sense_are_refused(changes: dict[str, Any], message: str) -> None:
    attributes = forest("target", 1) | {"n_targets": 1}
    for name, value in changes.items():
        attributes[name] = value if isinstance(value, str) else [*value, *attributes[name][1:]]
    CASES["odd"] = ("TreeEnsembleRegressor", [X], attributes)
    with pytest.raises(NetworkError, match=rf"'learned' \(ai.onnx.ml.TreeEnsembleRegressor\): got .*{message}"):
        Network.from_onnx(model("odd")[0])
