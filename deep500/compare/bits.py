"""``deep500 bits``: the first step, value and operator at which two runs, models or backends part, to the last bit.

Runs are trained again from their recipes, which needs no more of them than their folders, on as many ranks as they had.
At the first step after which parameters, gradients or loss differ, both sides begin once more with the parameters that
they had in common: the forward pass is compared value by value in the order of the network, rank by rank, then
gradients from the end backwards, then what ranks made of them together, then the update. What is named has inputs of
the same bits, so the fault is its own. Runs on different numbers of ranks are compared by the samples of all ranks.

Differences are counted in units in the last place: how many floating-point numbers lie between two (Goldberg 1991, What
every computer scientist should know about floating-point arithmetic, section 1.2).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deep500.compare.checks import relative
from deep500.compare.first_difference import FUSED, chunks, values_of
from deep500.compare.replays import AFTER, BEFORE, EXCHANGED, INPUT, OWN, VALUE, Replay, interleaved, needed, run_again
from deep500.compare.subject import Candidate
from deep500.compare.traces import as_arrays
from deep500.errors import ComparisonError
from deep500.networks.execution.inputs import batch_symbol, make_inputs
from deep500.networks.losses import gradient_name
from deep500.networks.network import Network
from deep500.progress import numbered
from deep500.recipe.ranks import scheme_of


@dataclass(frozen=True)
class Parting:
    """The place where two sides part.

    Attributes:
        step: training steps from 1 on; None for models.
        where: in words: the value and its operator, a gradient, a parameter after the update, or an input.
        index: of the element that differs most.
        first, second: this element on both sides.
        ulps: its distance in units in the last place; None where there is none: NaN, whole numbers.
        elements, of: how many elements differ, of how many.
        rank: on which rank, of runs that several ranks trained; None: on all of them, or of one process.
    """

    step: int | None
    where: str
    index: tuple[int, ...]
    first: Any
    second: Any
    ulps: int | None
    elements: int
    of: int
    rank: int | None = None

    def __str__(self) -> str:
        place = [] if self.step is None else [f"step {self.step}"]
        place += [] if self.rank is None else [f"rank {self.rank}"]
        at = f"{', '.join(place)}: " if place else ""
        far = "" if self.ulps is None else f", {self.ulps} unit{'' if self.ulps == 1 else 's'} in the last place apart"
        return (
            f"{at}{self.where}, element {list(self.index)}: {self.first} against {self.second}{far}; "
            f"{self.elements} of {self.of} elements differ"
        )


@dataclass
class BitsVerdict:
    """The outcome of a comparison.

    Attributes:
        parting: where two sides part; None if nowhere.
        steps: over how many it goes.
        compared: in words.
        notes: on it.
        growth: of the step in which they part, all that is computed, in its order, with its largest difference over
            its largest value (0 for zeros of both signs); None where every bit is the same.
    """

    parting: Parting | None
    steps: int
    compared: str
    notes: list[str]
    growth: list[tuple[str, float | None]] = field(default_factory=list)

    def __str__(self) -> str:
        text = f"the same bits: {self.compared}" if self.parting is None else str(self.parting)
        return "\n".join([text, *self.notes])

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        parting = None if self.parting is None else asdict(self.parting)
        for name in ("first", "second") if parting else ():
            assert parting is not None
            parting[name] = str(parting[name])
        return {"same": self.parting is None, "parting": parting, "steps": self.steps, "notes": self.notes}


def ulps(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Count the numbers of their dtype between two arrays' elements, the later one included; as whole numbers.

    Args:
        first, second: of one shape and one of float16, float32, float64; NaN counts like the numbers beyond infinity.

    Example:
        >>> a = np.array([1.0, -0.0, 1.0], "float32")
        >>> ulps(a, np.array([np.nextafter(np.float32(1), np.float32(2)), 0.0, 1.0], "float32")).tolist()
        [1, 0, 0]
    """
    places = []
    for array in (first, second):
        whole = np.ascontiguousarray(array).view(f"i{array.dtype.itemsize}").astype(object)
        lowest = -(1 << 8 * array.dtype.itemsize - 1)
        places.append(np.where(whole < 0, lowest - whole, whole))  # both zeros are 0, and order is that of the numbers
    return np.abs(places[0] - places[1])


def apart(
    first: np.ndarray, second: np.ndarray, where: str, step: int | None = None, rank: int | None = None
) -> Parting | None:
    """Describe how two arrays differ, None if they have the same bits (the zeros of both signs are two)."""
    if first.shape != second.shape or first.dtype != second.dtype:
        a, b = (f"{array.dtype}{list(array.shape)}" for array in (first, second))
        return Parting(step, where, (), a, b, None, max(first.size, second.size), max(first.size, second.size), rank)
    differs = _bits(first) != _bits(second)
    count = int(differs.sum())
    if not count:
        return None
    if first.dtype in (np.float16, np.float32, np.float64):
        places = np.flatnonzero(differs)
        far = ulps(first.reshape(-1)[places], second.reshape(-1)[places])
        worst = int(places[int(np.argmax(far))])
        distance = None if np.isnan(first.flat[worst]) or np.isnan(second.flat[worst]) else int(far.max())
    else:
        worst, distance = int(np.flatnonzero(differs)[0]), None
    index = tuple(int(i) for i in np.unravel_index(worst, first.shape)) if first.ndim else ()
    return Parting(step, where, index, first.flat[worst], second.flat[worst], distance, count, first.size, rank)


def _bits(array: np.ndarray) -> np.ndarray:
    if array.dtype == object:
        return array.reshape(-1)
    raw = np.ascontiguousarray(array).reshape(-1)
    return raw.view(np.uint8).reshape(raw.size, raw.dtype.itemsize).copy().view(f"V{raw.dtype.itemsize}")[:, 0]


# -- models ---------------------------------------------------------------------------------------------------------
def compare_networks(
    networks: Sequence[Network], candidates: Sequence[Candidate], feeds: Mapping[str, Any] | None = None, seed: int = 0
) -> BitsVerdict:
    """Find where two networks, or one on two backends, part: outputs in evaluation mode on drawn inputs, and gradients.

    Args:
        networks: two, whose values are matched by name; the same one twice for two backends.
        candidates: how each side is built.
        feeds: inputs; made up by ``seed`` if None.

    Raises:
        ComparisonError: they have no value in common.
    """
    feeds = make_inputs(networks[0], 2 if batch_symbol(networks[0]) else None, seed) if feeds is None else feeds
    common = [(node, value) for node, value in values_of(networks[0].nodes) if networks[1].producer(value) is not None]
    if not common:
        raise ComparisonError("got networks without a value of the same name; expected some: compare two forms of one")
    parting, growth = _judged(_forward(networks, candidates, feeds))
    compared = f"{len(common)} values of two networks"
    return BitsVerdict(parting, 0, compared, _strangers(networks), growth)


def _strangers(networks: Sequence[Network]) -> list[str]:
    """Return the nodes that only one of them has: matched are values of one name."""
    names = [{value for _, value in values_of(network.nodes)} for network in networks]
    alone = [len(names[0] - names[1]), len(names[1] - names[0])]
    return [f"not compared: {alone[0]} and {alone[1]} values that only one of them has"] if any(alone) else []


Pair = tuple[str, int | None, np.ndarray, np.ndarray]
"""A thing in words, the rank that has it (None: all, or the only one), and its array on both sides."""


def _forward(networks: Sequence[Network], candidates: Sequence[Candidate], feeds: Mapping[str, Any]) -> Iterator[Pair]:
    """The values in evaluation mode, in the order of the first network."""
    executors = [candidate.build(network) for candidate, network in zip(candidates, networks, strict=True)]
    for chunk in chunks(networks[0]):
        values = [value for _, value in values_of(chunk) if networks[1].producer(value) is not None]
        seen = [
            as_arrays(executor, executor.inference(needed(network, feeds), values))
            for executor, network in zip(executors, networks, strict=True)
        ]
        for node, value in values_of(chunk):
            if value in values:
                where = f"forward, value {value!r} of node {node.name!r} ({node.op_type})"
                yield where, None, seen[0][value], seen[1][value]


def _judged(pairs: Iterable[Pair], step: int | None = None) -> tuple[Parting | None, list[tuple[str, float | None]]]:
    """The first of them that has not the same bits, and how far apart each one is; all are looked at."""
    parting: Parting | None = None
    growth = list[tuple[str, float | None]]()
    for where, rank, first, second in pairs:
        same = (
            first.shape == second.shape and first.dtype == second.dtype and bool((_bits(first) == _bits(second)).all())
        )
        if not same:
            parting = parting or apart(first, second, where, step, rank)
        growth.append((where if rank is None else f"rank {rank}: {where}", None if same else relative(second, first)))
    return parting, growth


# -- runs -----------------------------------------------------------------------------------------------------------
def compare_replays(
    first: Replay, second: Replay, steps: int | None = None, again: Callable[..., None] = run_again
) -> BitsVerdict:
    """Train both again and tell where they part.

    Args:
        first, second: the sides; on different numbers of ranks their schemes must keep ranks the same.
        steps: to compare at most; None: all of them.
        again: trains a side on all of its ranks, as :func:`~deep500.compare.replays.run_again`.

    Raises:
        ComparisonError: numbers of ranks that cannot be compared.
    """
    _check_numbers(first, second)
    sides, notes = (first, second), list[str]()
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place) / name for name in ("first", "second")]
        traces = []
        for side, folder in numbered("training run", list(zip(sides, folders, strict=True))):
            again(side, folder, most=steps)
            ranks = [json.loads((folder / f"rank-{rank}.json").read_text("utf-8")) for rank in range(side.ranks)]
            notes += [*side.left_out(), *side.not_as_recorded(ranks[0]["epochs"])]
            traces.append([rank["steps"] for rank in ranks])
        lengths = [len(ranks[0]) for ranks in traces]
        step = _first_step(traces, min(lengths))
        if step is None:
            if lengths[0] != lengths[1]:
                notes.append(f"one side has {lengths[0]} steps, the other {lengths[1]}")
            return BitsVerdict(None, min(lengths), _compared(sides, min(lengths)), notes)
        for side, folder in numbered(f"looking into step {step}, run", list(zip(sides, folders, strict=True))):
            again(side, folder, step=step)
        parting, growth = _judged(_within(sides, folders), step)
        if parting is None:
            parting = Parting(step, f"in the step as a whole ({FUSED})", (), None, None, None, 0, 0)
        return BitsVerdict(parting, step, f"{step - 1} steps before", notes, growth)


def _check_numbers(first: Replay, second: Replay) -> None:
    for side in (first, second) if first.ranks != second.ranks else ():
        scheme = scheme_of(side.plan.values)
        if side.ranks > 1 and not scheme.consistent:
            raise ComparisonError(
                f"{side.name}: got a run of {side.ranks} ranks by {scheme.__name__}, which each have parameters of "
                f"their own, against one of {(first.ranks + second.ranks) - side.ranks}; expected as many ranks, or a "
                "scheme that keeps them the same: compare runs of one number"
            )


def _compared(sides: Sequence[Replay], steps: int) -> str:
    what = f"{steps} steps: inputs, gradients, parameters"
    if max(side.ranks for side in sides) == 1:
        return what
    schemes = [side.scheme for side in sides]
    return f"{what}; {schemes[0]}" if schemes[0] == schemes[1] else f"{what}; {' against '.join(schemes)}"


def _first_step(traces: Sequence[Sequence[Sequence[Mapping[str, str]]]], steps: int) -> int | None:
    """The first step in which a rank differs; on different numbers of ranks, in which what all have together does."""
    alike = len(traces[0]) == len(traces[1])
    for step in range(steps):
        seen = [[rank[step] for rank in ranks] for ranks in traces]
        if not alike:
            seen = [[{part: ranks[0][part] for part in (EXCHANGED, AFTER)}] for ranks in seen]
        if seen[0] != seen[1]:
            return step + 1
    return None


class _StepArrays:
    """The arrays that the ranks of one side left of a step."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self.ranks = [np.load(folder / f"rank-{rank}.npz", allow_pickle=False) for rank in range(ranks)]
        about = json.loads((folder / "rank-0.json").read_text("utf-8"))
        shares = [[arrays[key] for key in arrays.files if key.startswith(f"{INPUT}/")] for arrays in self.ranks]
        self.shares = [len(inputs[0]) for inputs in shares]
        self.nodes, self.readers = about["nodes"], about["readers"]

    def array(self, part: str, name: str, rank: int | None = None) -> np.ndarray | None:
        """An array of a rank, or (None) of the samples of all ranks; None where there is none."""
        chosen = self.ranks if rank is None else [self.ranks[rank]]
        arrays = [there[f"{part}/{name}"] for there in chosen if f"{part}/{name}" in there]
        if len(arrays) < len(chosen):
            return None
        if rank is not None:
            return arrays[0]
        of_samples = all(a.shape[:1] == (count,) for a, count in zip(arrays, self.shares, strict=True))
        return interleaved(arrays) if of_samples else None

    def names(self, part: str) -> list[str]:
        """Of the arrays of a part, on rank 0."""
        return [key.partition("/")[2] for key in self.ranks[0].files if key.startswith(f"{part}/")]


def _within(sides: Sequence[Replay], folders: Sequence[Path]) -> Iterator[Pair]:
    """All that both sides have of a step, causes before what follows from them."""
    first, second = (_StepArrays(folder, side.ranks) for folder, side in zip(folders, sides, strict=True))
    alike = len(first.ranks) == len(second.ranks)
    ranks: list[int | None] = [None] if not alike else [*range(len(first.ranks))]
    together = sides[0].scheme if alike else " against ".join(side.scheme for side in sides)
    for part, name, where in _in_order(first, several=len(first.ranks) + len(second.ranks) > 2, together=together):
        if part == OWN and not alike:
            continue  # of other samples
        for rank in ranks if part not in (BEFORE, EXCHANGED, AFTER) or alike else [0]:
            a, b = first.array(part, name, rank), second.array(part, name, rank)
            if a is not None and b is not None:
                yield where, rank if len(first.ranks) > 1 and alike else None, a, b


def _in_order(side: _StepArrays, several: bool, together: str) -> Iterator[tuple[str, str, str]]:
    """Part, name and words of everything in a step, causes before what follows from them."""
    for name in side.names(INPUT):
        yield INPUT, name, f"input {name!r}"
    for name in side.names(BEFORE):
        yield BEFORE, name, f"parameter before it {name!r}"
    for node, operator, values in side.nodes:
        for value in values:
            yield VALUE, value, f"forward, value {value!r} of node {node!r} ({operator})"
    for name in sorted(side.names(OWN), key=lambda name: -side.readers.get(name, (0, ""))[0]):
        reader = side.readers.get(name, (0, repr(name)))[1]
        yield OWN, name, f"backward, {gradient_name(name)!r}: the first gradient of {reader}"
    for name in side.names(EXCHANGED) if several else ():
        yield EXCHANGED, name, f"gradients of all ranks together, {gradient_name(name)!r}: {together}"
    for name in side.names(AFTER):
        yield AFTER, name, f"update of parameter {name!r}"
