"""LibriSpeech (Panayotov et al. 2015): read English, where its official archives have been unpacked."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deep500.errors import MissingDataset
from deep500.training.data.catalog import DatasetInfo, Pair, Search, register_dataset
from deep500.training.data.soundfolder import LETTERS, SETTINGS, librispeech


@dataclass(frozen=True)
class LibriSpeech(DatasetInfo):
    """A folder ``LibriSpeech`` in one of the folders searched; 6 GB and more, so it is never fetched.

    Options: ``train`` and ``test``, names of parts in it, and the settings of
    :class:`~deep500.training.data.audio.LogMel`. Licence: CC BY 4.0. Speakers of the parts differ.
    """

    @property
    def options(self) -> tuple[str, ...]:
        return (*list(inspect.signature(self._load).parameters)[1:3], *SETTINGS)

    def load(self, search: Search, seed: int, **options: Any) -> Pair:
        return self._load(search, **options)

    def _load(
        self,
        search: Search,
        train: Sequence[str] = ("train-clean-100",),
        test: Sequence[str] = ("test-clean",),
        **settings: Any,
    ) -> Pair:
        folders = [root / "LibriSpeech" for root in search.roots]
        place = next((folder for folder in folders if folder.is_dir()), None)
        if place is None:
            raise MissingDataset(
                f"got no data set {self.name!r}: no {' and no '.join(map(str, folders))}; expected the folder that the "
                "official archives unpack to, from https://www.openslr.org/12: unpack them there"
            )
        return librispeech(place, train, **settings), librispeech(place, test, **settings)


LIBRISPEECH = register_dataset(
    LibriSpeech(
        "librispeech",
        LETTERS.classes,
        (2450, 80),
        (28539, 2620),
        "read English with transcripts, 16 kHz, as log-mel features; 100 hours and 5 hours, where they lie on disk",
        licence="CC BY 4.0, Panayotov et al. (2015), from LibriVox's recordings",
    )
)
