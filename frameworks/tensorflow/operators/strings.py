"""Strings, which TensorFlow has: joined and matched in the graph, split and normalised eagerly by Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from deep500.frameworks.tensorflow.dtypes import from_array
from deep500.frameworks.tensorflow.operators.table import op, value_of
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.attributes import Labels

Tensor = Any


def _texts(x: Tensor) -> np.ndarray:
    """Python's strings; they must be known now."""
    value = value_of(x)
    texts = [t.decode("utf-8") if isinstance(t, bytes) else str(t) for t in value.reshape(-1)]
    return np.array(texts, object).reshape(value.shape)


@op("StringConcat")
def string_concat(a: Tensor, b: Tensor) -> Tensor:
    shape = tf.broadcast_dynamic_shape(tf.shape(a), tf.shape(b))
    return tf.strings.join([tf.broadcast_to(a, shape), tf.broadcast_to(b, shape)])


@op("RegexFullMatch")
def regex_full_match(x: Tensor, *, pattern: str) -> Tensor:
    return tf.strings.regex_full_match(x, pattern)  # both sides mean RE2's syntax


@op("StringSplit", many=True)
def string_split(x: Tensor, *, delimiter: str | None = None, maxsplit: int | None = None) -> Any:
    """Parts in a new last axis, filled up with empty strings, and their numbers."""
    texts = _texts(x)
    parts = [t.split(delimiter or None, -1 if maxsplit is None else maxsplit) if t else [] for t in texts.reshape(-1)]
    most = max(map(len, parts), default=0)
    padded = [p + [""] * (most - len(p)) for p in parts]
    counts = np.array([len(p) for p in parts], np.int64).reshape(texts.shape)
    return from_array(np.array(padded, object).reshape(*texts.shape, most)), tf.constant(counts, tf.int64)


@op("StringNormalizer")
def string_normalizer(
    x: Tensor,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str | None = None,
    stopwords: Any = None,
) -> Tensor:
    """Without the stop words, in upper or lower case; [C] or [1, C]. Where nothing is left, one empty string is."""
    texts = _texts(x)
    change: Any = {"NONE": str, "UPPER": str.upper, "LOWER": str.lower}[case_change_action]
    same = str if is_case_sensitive else str.lower
    stop = {same(w) for w in stopwords or ()}
    words = [change(t) for t in texts.reshape(-1) if same(t) not in stop] or [""]
    return from_array(np.array(words, object).reshape([1, -1] if texts.ndim == 2 else [-1]))


@op("LabelEncoder", domain="ai.onnx.ml")
def label_encoder(x: Tensor, *, settings: Labels) -> Tensor:
    """A look-up table."""
    texts, s = _texts(x) if x.dtype == tf.string else value_of(x), settings
    keys: Any = next(k for k in (s.keys_tensor, s.keys_strings, s.keys_int64s, s.keys_floats) if k is not None)
    choices: list[tuple[Any, Any, Any]] = [
        (s.values_tensor, None if s.default_tensor is None else np.ravel(s.default_tensor)[0], None),
        (s.values_strings, s.default_string, object),
        (s.values_int64s, s.default_int64, np.int64),
        (s.values_floats, s.default_float, np.float32),
    ]
    values, default, dtype = next(choice for choice in choices if choice[0] is not None)
    dtype = np.asarray(values).dtype if dtype is None else dtype
    table = dict(zip(np.ravel(keys).tolist(), np.ravel(np.asarray(values, dtype)).tolist(), strict=True))
    return from_array(np.array([table.get(k, default) for k in texts.reshape(-1).tolist()], dtype).reshape(texts.shape))


@op("Binarizer", domain="ai.onnx.ml")
def binarizer(x: Tensor, *, threshold: float = 0.0) -> Tensor:
    return tf.cast(x > tf.cast(threshold, x.dtype), x.dtype)


@op("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(x: Tensor, indices: Tensor) -> Tensor:
    y = tf.gather(x, tf.reshape(indices, [-1]), axis=-1)
    return tf.reshape(y, [1, -1]) if x.shape.rank == 1 else y
