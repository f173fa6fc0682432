"""`Exported`: a file together with what its original makes of the same inputs, kept in a folder between runs."""

from __future__ import annotations

import hashlib
import importlib.metadata
import itertools
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.models.architectures.architecture import Architecture, Inputs
from tests.models.exporting import make_inputs, write
from tests.models.originals import NotComparable, loss_weights, original


@dataclass(frozen=True)
class Exported:
    """What the comparison of one model needs; every backend reads the same.

    Attributes:
        path: of the file.
        inputs: by the file's names.
        outputs: of the original, in evaluation mode and float32.
        parameters: of the original that train, in float32.
        gradients: in float64, of those parameters that the loss depends on; empty if there are none.
        reason: why there are no gradients.
        weights: of the loss, by the number of the output.
    """

    path: Path
    inputs: Inputs
    outputs: list[np.ndarray]
    parameters: dict[str, np.ndarray]
    gradients: dict[str, np.ndarray]
    reason: str
    weights: dict[int, np.ndarray]


def export(architecture: Architecture, folder: Path) -> Exported:
    """Export an architecture and run the original, or take what an earlier call left in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    version = importlib.metadata.version(architecture.collection)
    written = architecture.exporter + "-as-traced" * (not architecture.optimize)
    stem = f"{architecture.name}-{version}-{written}"
    path, data = folder / f"{stem}.onnx", folder / f"{stem}.npz"
    if not (path.is_file() and data.is_file()):
        inputs = make_inputs(architecture)
        model: Any = original(architecture, inputs)
        write(architecture, getattr(model, "module", None) or model.model, path)
        outputs = model.forward()
        weights = loss_weights(outputs, architecture.ragged)
        try:
            gradients, reason = model.gradients(weights), ""
        except NotComparable as error:
            gradients, reason = {}, str(error)
        groups: dict[str, Mapping[Any, np.ndarray]] = {
            "inputs": inputs, "outputs": dict(enumerate(outputs)), "parameters": model.parameters(),
            "gradients": gradients, "weights": weights, "reason": {"": np.array(reason)},
        }  # fmt: skip
        np.savez(data, **{f"{group} {name}": a for group, arrays in groups.items() for name, a in arrays.items()})
    return read(path, data)


def read(path: Path, data: Path) -> Exported:
    """What :func:`export` left."""
    groups: dict[str, dict[str, np.ndarray]] = defaultdict(dict)
    with np.load(data) as arrays:
        for key in arrays.files:
            group, _, name = key.partition(" ")
            groups[group][name] = arrays[key]
    weights = {int(i): w for i, w in groups["weights"].items()}
    reason = str(groups["reason"][""])
    outputs = [groups["outputs"][str(i)] for i in range(len(groups["outputs"]))]
    return Exported(path, groups["inputs"], outputs, groups["parameters"], groups["gradients"], reason, weights)


# -- whose parameter is whose ------------------------------------------------------------------------------------------
Match = dict[str, list[tuple[str, tuple[int, ...]]]]
"""By parameter of the original: arrays of the file, each with the order of axes that makes the one the other."""


def match(mine: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> Match:
    """Find parameters of the original in a file: by name, else by value, for exporters rename, transpose and copy them.

    Args:
        mine: arrays of the file that train.
        theirs: the original's. Where a parameter is used twice, a file may hold it twice: then it gets both.
    """
    by_value: dict[str, list[str]] = defaultdict(list)
    for name, array in mine.items():
        by_value[_digest(array)].append(name)
    found: Match = {}
    for name, array in theirs.items():
        candidates = [name] if array.size == 1 and name in mine else by_value.get(_digest(array), [])
        candidates = [c for c in candidates if c == name or c not in theirs]  # layers may be copies of each other
        pairs = [(candidate, order_of_axes(array, mine[candidate])) for candidate in candidates]
        found[name] = [(candidate, order) for candidate, order in pairs if order is not None]
    return found


def order_of_axes(source: np.ndarray, target: np.ndarray) -> tuple[int, ...] | None:
    """The first order of axes that turns one array into the other, up to axes of size 1 in front; None if none does."""
    for order in itertools.permutations(range(source.ndim)):
        turned = source.transpose(order)
        if turned.size == target.size and np.array_equal(turned.ravel(), target.ravel()):
            return order
    return None


def _digest(array: np.ndarray) -> str:
    """Equal for arrays that hold the same numbers in whatever order."""
    return hashlib.sha256(np.sort(array, axis=None).tobytes()).hexdigest()
