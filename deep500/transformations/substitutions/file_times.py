"""The last question about an optimized file: is it faster than the very file that was given, where that one runs?

Candidates are timed as networks, at one opset, with what reading takes apart (fused operators of other domains) taken
apart in the original too. A runtime that opens files itself may run the original otherwise, and faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from deep500.errors import UnsupportedOperator
from deep500.measure.comparison import FASTER
from deep500.networks.execution.inputs import make_inputs
from deep500.registry import load_backend
from deep500.transformations.substitutions.cost import deployment
from deep500.transformations.substitutions.cost.ranking import Remeasured, in_turns
from deep500.transformations.substitutions.delivery import SourceModel
from deep500.transformations.substitutions.graph.importing import named, stand_ins
from deep500.transformations.substitutions.result import Optimized


def judge_files(
    optimized: Optimized, source: SourceModel, path: Path, sizes: Mapping[str, int], seed: int, limit: float
) -> Optimized:
    """The result itself, or the original where the written file is not faster than the one that was given.

    Args:
        optimized: a result; what was not measured, or stayed, is not judged.
        source: the file that was given.
        path: the file that was written.
        sizes: numbers for symbolic sizes.
        seed: of the inputs.
        limit: seconds of timing.
    """
    make = (
        getattr(load_backend(deployment(optimized.backend).backend), "from_file", None) if optimized.measured else None
    )
    if make is None or optimized.chosen is None:
        return optimized
    try:
        timed = _timed(make, optimized, source, path, sizes, seed, limit)
    except UnsupportedOperator as error:
        return _stays(optimized, f"as a file it was not timed: {error}")
    compared = timed["result"]
    if compared.verdict == FASTER and compared.ratio.high is not None and compared.ratio.high < 1:
        return optimized
    return _stays(optimized, f"{optimized.chosen} is faster than the network, but not than the file: {compared}")


def _timed(
    make: Callable[[Any], Any],
    optimized: Optimized,
    source: SourceModel,
    path: Path,
    sizes: Mapping[str, int],
    seed: int,
    limit: float,
) -> Remeasured:
    network = named(optimized.original)
    inputs = make_inputs(network, None, seed, {**stand_ins(network, sizes), **sizes})
    original = str(source.path) if source.outside else source.data  # its name may be the result's by now
    functions = {}
    for name, file in (("file", original), ("result", path.read_bytes())):
        executor = make(file)
        functions[name] = partial(executor.inference, inputs)
        functions[name]()
    return in_turns(functions, seed, limit, clock=deployment(optimized.backend).clock())


def _stays(optimized: Optimized, reason: str) -> Optimized:
    return Optimized.unchanged(
        optimized.original,
        optimized.backend,
        reason,
        optimized.history.training,
        optimized.before,
        seconds=optimized.seconds,
        timed_out=optimized.timed_out,
        priced=optimized.priced,
    )
