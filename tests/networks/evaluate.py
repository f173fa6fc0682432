"""Run a plain network once on the reference backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from deep500.frameworks.reference import Executor
from deep500.networks.network import Network


def evaluate(network: Network, feeds: Mapping[str, np.ndarray], outputs: Sequence[str]) -> list[np.ndarray]:
    """Values of a network in the given order, whether or not they are declared outputs."""
    results = Executor(network).inference(feeds, list(outputs))
    return [np.asarray(results[name]) for name in outputs]
