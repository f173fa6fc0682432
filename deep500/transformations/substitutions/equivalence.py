"""Whether a rewritten network computes what it did: in float64 on the reference backend, gradients too.

The history is replayed on the network's twin in float64, so that what differs is the mathematics and not the rounding
of weights that were computed beforehand; the written network is run as well, in its own precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from deep500.errors import NetworkError
from deep500.networks.dtype import to_dtype
from deep500.networks.execution.inputs import make_inputs
from deep500.networks.losses import gradient_name
from deep500.networks.network import Network
from deep500.registry import load_backend
from deep500.transformations.substitutions.graph.importing import Imported, import_network
from deep500.transformations.substitutions.graph.store import Graph
from deep500.transformations.substitutions.graph.writing import export_network

TOLERANCE = 1e-10
"""Largest relative error in float64, by norm."""


class NotEquivalent(NetworkError):
    """A rewritten network computes something else."""


@dataclass(frozen=True)
class Equivalence:
    """How far a rewritten network is from the original.

    Attributes:
        outputs: largest relative error of an output, by norm, in float64.
        gradients: likewise of a parameter's gradient; None where the network was not optimized for training, or draws
            random numbers, whose order rewriting may change.
        own: likewise of outputs in the network's own precision.
        sizes: the symbolic sizes that were tried.
    """

    outputs: float
    gradients: float | None
    own: float
    sizes: tuple[Mapping[str, int], ...]


def relative_error(got: Any, expected: Any) -> float:
    """Norm of the difference over the norm of what was expected; the difference's alone where that is 0.

    Elements that are infinite or not a number on one side alone are infinitely far apart.

    Example:
        >>> relative_error(np.ones(4), 2 * np.ones(4))
        0.5
    """
    got, expected = np.asarray(got), np.asarray(expected)
    if got.shape != expected.shape:
        return float("inf")
    if got.dtype.kind not in "fc" or not expected.size:
        return 0.0 if np.array_equal(got, expected) else float("inf")
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    scale = float(np.linalg.norm(np.where(same, 0.0, expected).ravel().astype(np.float64)))
    with np.errstate(invalid="ignore"):  # infinity less infinity, where both are the same
        error = float(np.linalg.norm(np.where(same, 0.0, got - expected).ravel().astype(np.float64)))
    whole = float(np.linalg.norm(np.nan_to_num(expected.ravel().astype(np.float64), posinf=0, neginf=0)))
    if not np.isfinite(error):
        return float("inf")  # and never not a number, which max() would lose
    return error / max(whole, scale) if max(whole, scale) else error


def check_equivalent(
    imported: Imported,
    retrace: Callable[[Imported], Graph],
    written: Network,
    seed: int = 0,
    given: Mapping[str, int] | None = None,
) -> Equivalence:
    """Compare the written network with the one that was imported.

    Args:
        imported: the original.
        retrace: rewrites the original's twin in float64 as the original was.
        written: the result.
        seed: of the inputs.
        given: numbers for symbolic sizes, which the network may need (a batch of a multiple of 4, say).

    Raises:
        NotEquivalent: an output or gradient differs by more than `TOLERANCE` in float64, or far more than rounding in
            the network's own precision; nothing of the result may then be used.
    """
    original = imported.network
    onnx.checker.check_model(written.to_onnx(), full_check=False)
    twin = to_dtype(original, "float64")
    again = import_network(twin, imported.training, imported.sizes)
    rewritten = export_network(again, retrace(again))
    sizes = _sizes(imported, given or {})
    outputs = max(_difference(twin, rewritten, choice, seed) for choice in sizes)
    own = max(_difference(original, written, choice, seed) for choice in sizes)
    random = any(node.is_random for node in original.nodes)
    gradients = None if random or not imported.training else _gradients(twin, rewritten, sizes[0], seed)
    limit = 1e-3
    if not (outputs <= TOLERANCE and own <= limit and (gradients is None or gradients <= TOLERANCE)):
        raise NotEquivalent(
            f"got relative errors {outputs:.3g} (outputs), {gradients} (gradients) in float64 and {own:.3g} in the "
            f"network's precision; expected at most {TOLERANCE:g}, and {limit:g}; keep the original and report this"
        )
    return Equivalence(outputs, gradients, own, tuple(sizes))


def _sizes(imported: Imported, given: Mapping[str, int]) -> list[dict[str, int]]:
    """Two choices of the symbolic sizes: what was rewritten must hold for others than it was rewritten with."""
    if not imported.sizes:
        return [{}]
    first = {**imported.sizes, **given}
    return [first, {name: 2 * size if name in given else size + 1 for name, size in first.items()}]


def _difference(original: Network, rewritten: Network, sizes: Mapping[str, int], seed: int) -> float:
    inputs = make_inputs(original, None, seed, sizes)
    backend = load_backend("reference")
    expected, got = (backend.from_model(network).inference(inputs) for network in (original, rewritten))
    return max(relative_error(got[name], expected[name]) for name in expected)


def _gradients(original: Network, rewritten: Network, sizes: Mapping[str, int], seed: int) -> float | None:
    """Largest relative error of gradients; None where the network has no loss."""
    losses = [name for name in original.outputs if original.descriptors()[name].shape == ()]
    if not losses:
        return None
    loss = "loss" if "loss" in losses else losses[0]
    inputs = make_inputs(original, None, seed, sizes)
    gradients = []
    for network in (original, rewritten):
        executor = load_backend("reference").from_model(network)
        executor.inference_and_backprop(inputs, loss)
        names = [gradient_name(trainable) for trainable in original.trainable()]
        gradients.append(executor.network.fetch_tensors(names))
    return max((relative_error(got, expected) for expected, got in zip(*gradients, strict=True)), default=0.0)
