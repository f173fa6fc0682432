"""Results of optimizing a network: the network, how it came about, and what was measured and checked."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from deep500.errors import DataError, InputError
from deep500.networks.hashing import structure_hash
from deep500.networks.network import Network
from deep500.reading import LARGEST, NO_OTHER, declare, number, read_json, word
from deep500.transformations.substitutions.cost import Remeasured
from deep500.transformations.substitutions.equivalence import Equivalence
from deep500.transformations.substitutions.graph.importing import Imported
from deep500.transformations.substitutions.operators.specification import specification_hash
from deep500.transformations.substitutions.search.backtracking import State
from deep500.transformations.substitutions.search.moves import AppliedRule

FORMAT = "deep500-substitutions"
HISTORY = declare(
    {
        "format": word(FORMAT),
        "network": str,
        "specification": str,
        "training": bool,
        "sizes": {str: number(0, LARGEST, whole=True)},
        "steps": [[str, [str]]],
        "unchanged?": bool,
        "unproved?": [str],
        "anew?": bool,
        "fused?": bool,
        "*": NO_OTHER,
    }
)
"""Format of a history's file; :class:`History` says what it means."""


REFUSED = 3
"""Neighbourhoods that were not merged, of which the summary tells."""


def write_text(text: str, path: str | Path) -> None:
    """Write a file; InputError where that cannot be."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as problem:
        raise InputError(
            f"got {problem.strerror or problem} while writing {path}; expected a folder that can be written"
        ) from problem


@dataclass(frozen=True)
class History:
    """Steps by which a network was rewritten, so that they can be done again.

    Attributes:
        network: hash of the structure that it holds for; weights may be others.
        specification: hash of the operator specifications.
        training: whether parameters were left as they are.
        sizes: numbers that stood for symbolic sizes.
        steps: rules at their places, one after the other.
        unchanged: the network stays as it was, its nodes included; without steps alone it is written anew.
        unproved: ids of the rules among the steps that nobody has proved.
        anew: a file is written anew, as that was faster, instead of being edited where something changed.
        fused: attention and rotary positions are one operator each, where they were found.
    """

    network: str
    specification: str
    training: bool
    sizes: Mapping[str, int]
    steps: tuple[AppliedRule, ...] = ()
    unchanged: bool = False
    unproved: tuple[str, ...] = ()
    anew: bool = False
    fused: bool = False

    @classmethod
    def from_search(cls, imported: Imported, state: State, unproved: Collection[str] = ()) -> History:
        """Steps by which a search came from a network to a state; ``unproved`` are ids of rules without a proof."""
        used = {step.rule[:16] for step in state.history}
        return cls(
            structure_hash(imported.network),
            specification_hash(),
            imported.training,
            dict(imported.sizes),
            state.history,
            unproved=tuple(sorted(used & set(unproved))),
            fused=state.fused,
        )

    def check(self, network: Network) -> None:
        """Raise InputError unless the history is of a network of this structure, under today's specifications."""
        got, expected = structure_hash(network), self.network
        if got != expected or self.specification != specification_hash():
            raise InputError(
                f"got a network {got[:12]} under specifications {specification_hash()}; expected {expected[:12]} under "
                f"{self.specification}, which the history is of: optimize the network anew"
            )

    def to_json(self) -> str:
        """The history as text."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1)

    def save(self, path: str | Path) -> None:
        """Write the history to a file; InputError where that cannot be."""
        write_text(self.to_json() + "\n", path)

    @classmethod
    def load(cls, path: str | Path) -> History:
        """Read a history.

        Raises:
            DataError: the file is absent, damaged, or no history.

        Example:
            >>> import tempfile, pathlib
            >>> history = History("0" * 64, "0" * 16, False, {"N": 2}, (AppliedRule("a", ("b", "c")),))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     history.save(pathlib.Path(folder) / "history.json")
            ...     History.load(pathlib.Path(folder) / "history.json") == history
            True
        """
        do = "name a file that 'deep500 optimize --history' wrote, or write one of an older layout anew"
        fields = read_json(path, HISTORY, links=True, error=DataError, do=do)
        del fields["format"]
        fields["steps"] = tuple(AppliedRule(rule, tuple(place)) for rule, place in fields["steps"])
        fields["unproved"] = tuple(fields.get("unproved", ()))
        return cls(**fields)


@dataclass(frozen=True)
class Optimized:
    """An optimized network.

    Attributes:
        original: what was given.
        network: what to run: same inputs, same outputs, by the same names.
        backend: what it was optimized for.
        history: how it came about; see `replay_history`.
        before, after: predicted seconds, opaque operators excluded; None where nothing was searched.
        seconds: of search, measuring of operators included.
        timed_out: whether the budget ended it.
        priced: states that were priced.
        measured: candidates timed beside the original, from end to end; None: not measured.
        chosen: the candidate that was taken; None: the original stayed.
        equivalence: how far the result is from the original.
        reason: why the original stayed.
        refused: neighbourhoods that were not merged, and what stopped it: a price, or that there is no rule.
    """

    original: Network
    network: Network
    backend: str
    history: History
    before: float | None = None
    after: float | None = None
    seconds: float = 0.0
    timed_out: bool = False
    priced: int = 0
    measured: Remeasured | None = field(default=None, repr=False)
    chosen: str | None = None
    equivalence: Equivalence | None = None
    reason: str = ""
    refused: tuple[str, ...] = ()

    @classmethod
    def unchanged(
        cls,
        network: Network,
        backend: str,
        reason: str,
        training: bool = False,
        before: float | None = None,
        **facts: Any,
    ) -> Optimized:
        """The original as it is, with other facts of the search."""
        history = History(structure_hash(network), specification_hash(), training, {}, unchanged=True)
        same = network.copy(arrays=False)  # which are exchanged, and never written into
        return cls(network, same, backend, history, before, before, reason=reason, **facts)

    @property
    def ratio(self) -> float | None:
        """Median of (time of the result / time of the original); 1 where the original stayed; None: not measured."""
        if self.measured is None:
            return None
        return 1.0 if self.chosen is None else self.measured[self.chosen].ratio.median

    def __str__(self) -> str:
        lines = [f"{len(self.original.nodes)} -> {len(self.network.nodes)} operators for {self.backend}"]
        if self.before is not None and self.after is not None:
            lines.append(f"predicted: {1e3 * self.before:.4g} ms -> {1e3 * self.after:.4g} ms (opaque ones excluded)")
        ended = ", ended by the budget" if self.timed_out else ""
        lines.append(
            f"search: {self.seconds:.2f} s{ended}, {self.priced} states priced, {len(self.history.steps)} steps"
        )
        lines += [f"not merged: {text}" for text in self.refused[:REFUSED]]
        if self.measured is None:
            lines.append("measured: not measured")
        elif self.chosen is not None:
            lines.append(f"measured: {self.measured[self.chosen]}")
        if self.equivalence is not None:
            lines.append(f"checked: {self.equivalence}")
        if self.history.fused:
            lines.append("each attention is one operator, by the body that ONNX gives it")
        if self.history.unproved:
            lines.append(f"NOT PROVED: rules {', '.join(self.history.unproved)} were applied without a proof")
        if self.chosen is None:
            lines.append(f"the network stays as it was: {self.reason}")
        return "\n".join(lines)
