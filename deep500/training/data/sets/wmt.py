"""Parallel texts as WMT packs them, where they lie on disk: ``PART.SOURCE`` beside ``PART.TARGET``, line by line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deep500.errors import DataError, MissingDataset
from deep500.tasks.tokens import Words
from deep500.training.data.catalog import DatasetInfo, Pair, Search, register_dataset
from deep500.training.data.text import Pairs, read_wmt

KINDS = ("characters", "words")


@dataclass(frozen=True)
class ParallelTexts(DatasetInfo):
    """A folder ``wmt`` in one of the folders searched; it is never fetched.

    Options: ``train`` and ``test``, names of parts; ``source`` and ``target``, their languages, which the files end in;
    ``tokens``, ``"characters"`` or ``"words"`` (between spaces) of both parts; ``longest``, of tokens of either side:
    longer pairs are left out, and the provenance counts them.
    """

    @property
    def options(self) -> tuple[str, ...]:
        return tuple(list(inspect.signature(self._load).parameters)[1:])

    def load(self, search: Search, seed: int, **options: Any) -> Pair:
        return self._load(search, **options)

    def _load(
        self,
        search: Search,
        train: str = "train",
        test: str = "newstest2014",
        source: str = "en",
        target: str = "de",
        tokens: str = "characters",
        longest: int = 128,
    ) -> Pair:
        folders = [root / "wmt" for root in search.roots]
        place = next((folder for folder in folders if folder.is_dir()), None)
        if place is None:
            raise MissingDataset(
                f"got no data set {self.name!r}: no {' and no '.join(map(str, folders))}; expected a folder with "
                f"{train}.{source}, {train}.{target}, {test}.{source} and {test}.{target}, a sentence a line: put the "
                "files of https://www.statmt.org/wmt14 there, or set DATA_ROOT (it is not fetched)"
            )
        if tokens not in KINDS or longest < 1:
            raise DataError(f"got tokens={tokens!r}, longest={longest}; expected one of {KINDS}, and at least 1 token")
        split: Callable[[str], list[str]] = list if tokens == "characters" else _words
        every = [read_wmt(place, part, source, target) for part in (train, test)]
        short = [[pair for pair in part if max(len(split(side)) for side in pair) <= longest] for part in every]
        separator = "" if tokens == "characters" else " "
        sides = [
            Words(sorted({token for part in short for pair in part for token in split(pair[side])}), separator)
            for side in (0, 1)
        ]
        lengths = (longest + 1, longest + 1)
        parts = [
            Pairs(
                pairs,
                *sides,
                lengths=lengths,
                name=self.name,
                provenance=f"{place}, {part} ({len(whole) - len(pairs)} pairs of more than {longest} tokens left out)",
            )
            for part, whole, pairs in zip((train, test), every, short, strict=True)
        ]
        return parts[0], parts[1]


def _words(text: str) -> list[str]:
    return text.split(" ")


register_dataset(
    ParallelTexts(
        "wmt",
        0,
        (129,),
        (4_500_000, 3_003),
        "sentences in two languages (Bojar et al. 2014), where they lie on disk",
        licence="each corpus has terms of its own; WMT's organisers give theirs for research",
    )
)
