"""Models of Keras and scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.models.architectures.architecture import Architecture, Inputs, noise, offline


def _mobile() -> Any:
    offline()
    import keras

    return keras.applications.MobileNetV2(input_shape=(64, 64, 3), alpha=0.35, weights=None, classes=10)


def _dense() -> Any:
    offline()
    import keras
    from keras import layers

    words = keras.Input((16,), dtype="int32", name="words")
    states = layers.LSTM(16, return_sequences=True)(layers.Embedding(100, 12)(words))
    seen = layers.MultiHeadAttention(2, 8)(states, states)
    return keras.Model(
        words, layers.Dense(5)(layers.GlobalAveragePooling1D()(layers.LayerNormalization()(states + seen)))
    )


def _table(rows: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((rows, 8)).astype(np.float32)
    return features, (features[:, 0] * features[:, 1] + features[:, 2] > 0).astype(np.int64)


def _perceptron() -> Any:
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), MLPClassifier((16, 8), max_iter=30, random_state=0)).fit(*_table())


def _forest() -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(10, max_depth=5, random_state=0).fit(*_table())


def _words(rng: np.random.Generator) -> Inputs:
    return {"words": rng.integers(0, 100, (4, 16)).astype(np.int32)}


OTHERS = (
    Architecture(
        "keras_mobilenet_v2", "keras", "convolutions, channels last", _mobile, noise(images=(4, 64, 64, 3)), "keras"
    ),
    Architecture("keras_lstm", "keras", "embedding, LSTM, attention", _dense, _words, "keras"),
    Architecture(
        "sklearn_mlp", "scikit-learn", "scaler and perceptron", _perceptron, noise(features=(32, 8)), "sklearn"
    ),
    Architecture("sklearn_forest", "scikit-learn", "random forest", _forest, noise(features=(32, 8)), "sklearn"),
)
