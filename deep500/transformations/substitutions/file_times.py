"""The last question about an optimized file: which form of it is the fastest, and is that faster than what was given?

Candidates are timed as networks, at one opset, with what reading takes apart (fused operators of other domains) taken
apart in the original too. A runtime that opens files itself may run the original otherwise, and faster. The forms are:
the file with what changed, the network written anew, and what simplifiers that are installed make of the file.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from deep500.errors import UnsupportedOperator
from deep500.networks.execution.inputs import make_inputs
from deep500.networks.network import Network
from deep500.networks.onnx.dump import write_bytes
from deep500.registry import load_backend
from deep500.transformations.substitutions.cost import Remeasured, deployment, remeasure, work_hash
from deep500.transformations.substitutions.cost.clock import cpu_seconds
from deep500.transformations.substitutions.cost.ranking import in_turns, twins
from deep500.transformations.substitutions.delivery import Source
from deep500.transformations.substitutions.graph.importing import named
from deep500.transformations.substitutions.result import History, Optimized
from deep500.transformations.substitutions.simplifiers import simplified

OTHERS = 0.4
"""Share of the time that simplifiers may take; who began goes on."""
INSTANCES, BUILDING = 6, 0.5
"""So many sessions of a form at most, and the share of the time for timing that making them may take."""
MOST_TIMING = 5.0
"""Seconds of a set of sessions, in which a percent is seen."""
CLOSE = 0.01
"""The edited file is taken where the fastest is faster by less."""
FILE, EDITED, ANEW = "file", "edited", "written anew"
Write = Callable[[Network, History, Path], str]
"""Writes a result, as `delivery.deliver` does."""


def write_fastest(
    optimized: Optimized, source: Source, out: Path, write: Write, limit: float, others: bool = False, seed: int = 0
) -> tuple[Optimized, str]:
    """Write the fastest form of a result, or the file that was given where none is faster.

    A file with arrays beside it is not written anew: they would all be read.

    Args:
        optimized: a result; what was not measured is written as it is.
        source: the file that was given.
        out: where to write.
        write: writes a result.
        limit: seconds of CPU time for all of it.
        others: whether simplifiers take part.
        seed: of the inputs.

    Returns:
        What was written, and words for how.
    """
    if optimized.measured is None and (optimized.chosen is not None or not others):
        return optimized, write(optimized.network, optimized.history, out)
    until, failed, forms, words = cpu_seconds() + limit, dict[str, str](), dict[str, Path](), dict[str, str]()
    try:
        for name in (EDITED, ANEW)[: 2 - bool(source.outside)] if optimized.chosen is not None else ():
            forms[name] = _place(out, name)
            words[name] = write(optimized.network, _history(optimized, name), forms[name])
        if ANEW in forms and forms[EDITED].read_bytes() == forms[ANEW].read_bytes():
            forms.pop(ANEW).unlink()
        for name, data in simplified(source, failed, OTHERS * limit).items() if others else ():
            forms[name], words[name] = _place(out, name), f"the file is {name}'s"
            write_bytes([data], forms[name])
        winner, reason, timed = _winner(optimized, source, forms, until, seed)
        absent = "".join(f"\n{name} took no part: {text}" for name, text in failed.items())
        if winner is None:
            unchanged = optimized.chosen is None
            stays = replace(optimized, reason=reason) if unchanged else _stays(optimized, reason)
            return stays, write(stays.network, stays.history, out) + absent
        forms.pop(winner).replace(out)
    finally:
        for place in forms.values():
            place.unlink(missing_ok=True)
    how = (words[winner] if timed is None else f"{words[winner]}; {timed[winner]}") + absent
    if winner in (EDITED, ANEW):
        return replace(optimized, history=_history(optimized, winner)), how
    history = replace(optimized.history, steps=(), unchanged=False, unproved=(), fused=False)
    other: dict[str, Any] = {
        "history": history,
        "measured": timed,
        "chosen": winner,
        "equivalence": None,
        "after": None,
    }
    return replace(optimized, network=Network.from_onnx(out), reason="", **other), how


def _place(out: Path, name: str) -> Path:
    return out.with_name(f".{out.name}.{os.getpid()}.{name.replace(' ', '-')}")


def _history(optimized: Optimized, name: str) -> History:
    return replace(optimized.history, anew=name == ANEW)


def _winner(
    optimized: Optimized, source: Source, forms: Mapping[str, Path], until: float, seed: int
) -> tuple[str | None, str, Remeasured | None]:
    """The fastest form that is faster than the file beyond noise, or why there is none."""
    if not forms:
        return None, optimized.reason, None
    place = deployment(optimized.backend)
    from_file = getattr(load_backend(place.backend), "from_file", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of doubtful parameters, as when the file was read
        networks = {name: Network.from_onnx(path) for name, path in forms.items()}
    if EDITED in networks and work_hash(networks[EDITED]) == work_hash(optimized.network):
        networks.pop(ANEW, None)
        if from_file is None and len(networks) == 1:
            return EDITED, "", None  # it was timed as a network
    try:
        if from_file is not None:
            limit = min(MOST_TIMING, (until - cpu_seconds()) / 2)
            timed = _as_files(from_file, optimized, source, {name: forms[name] for name in networks}, limit, seed)
            faster = timed.faster
            if faster:  # sessions of one file lie some percent apart, by where their arrays lie: others decide as well
                best = {name: forms[name] for name in faster}
                again = _as_files(from_file, optimized, source, best, limit, seed + len(networks) + 1)
                faster = [name for name in faster if name in again.faster]
                timed = timed if faster else again
        else:
            every, sizes = {FILE: optimized.original, **networks}, source.numbers(optimized.original)
            limit = min(MOST_TIMING, until - cpu_seconds())
            options: dict[str, Any] = {"limit": limit, "clock": place.clock(), "failed": {}, "until": until}
            timed = remeasure(every, optimized.backend, sizes=sizes, seed=seed, **options)
            faster = timed.faster
    except UnsupportedOperator as error:
        return None, f"as a file it was not timed: {error}", None
    if not faster and from_file is None and optimized.chosen is not None and EDITED not in timed.seconds:
        return ANEW, "", None  # no time for more than what was timed as a network
    if not faster:
        faster_network = f"{optimized.chosen} is faster than the network, but not than the file"
        return None, f"{optimized.reason if optimized.chosen is None else faster_network}: {timed}", timed
    edited = EDITED in faster and timed[EDITED].ratio.median <= timed[faster[0]].ratio.median * (1 + CLOSE)
    return EDITED if edited else faster[0], "", timed


def _as_files(
    make: Callable[[Any], Any], optimized: Optimized, source: Source, forms: Mapping[str, Path], limit: float, seed: int
) -> Remeasured:
    network = optimized.original
    inputs = make_inputs(named(network), None, seed, source.numbers(network))

    def build(path: Path) -> Callable[[], object]:
        executor = make(str(path) if source.outside else path.read_bytes())
        run = partial(executor.inference, inputs)
        run()
        return run

    files, begin = {FILE: source.path, **forms}, cpu_seconds()
    # Sessions of one file lie some percent apart, by where their arrays lie: one of each would tell just that.
    seconds = BUILDING * limit / len(files)
    functions = {
        name: twins(partial(build, path), seed + n, INSTANCES, seconds) for n, (name, path) in enumerate(files.items())
    }
    return in_turns(functions, seed, limit - (cpu_seconds() - begin), clock=deployment(optimized.backend).clock())


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
