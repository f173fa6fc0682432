"""The results folder of one recipe run: ``<out>/<recipe>/<time>-<hash>/``.

=====================  ================================================================================================
``manifest.json``      what was run and in what: resolved recipe, seeds, data digests, versions, hardware, git state
``metrics.jsonl``      one line per seed and epoch, on the disk before the next epoch begins
``seeds.json``         the metrics' values of every seed that is finished
``samples/``           times of steps, epochs and validations; ``journal.jsonl`` says which bytes count
``checkpoints/``       ``seed-<seed>/epoch-<n>.safetensors``, the newest two per seed, or as many as the recipe says;
                       those of other ranks in ``rank-<r>``
``summary.json``       metrics with targets and verdicts; a run that has none is unfinished and can be resumed
``stats.json``         every figure that follows from the samples, see :mod:`deep500.results.stats`
``claims.json``        what the report claims, see :mod:`deep500.report.claims`
``scaling.json``       where there is a scaling table, see :mod:`deep500.results.scaling`
``ranks.json``         where there were several processes, see :mod:`deep500.results.ranks`
``rules.json``         what may be called a result, see :mod:`deep500.results.rules`
``report.html``        one self-contained page, made of the files above
``SHA256SUMS``         seals a finished run, see :mod:`deep500.results.verify`
=====================  ================================================================================================
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from deep500.errors import ResultsError
from deep500.results.checkpoint import KEEP, list_checkpoints, load_checkpoint, save_checkpoint
from deep500.results.files import append_line, read_json, read_lines, to_json, write_atomic, writing
from deep500.results.ranks import rank_of
from deep500.results.samples import SampleStore

SCHEMA = "deep500-results-1"
FORMAT = 3
"""Grows by one when a folder of a schema gets further facts; folders without it are of format 1, which lacks
``process`` and ``listening_seconds`` of an epoch's clock; format 2 lacks ``label_counts`` of the data,
``resident_bytes`` of the load and ``operations`` of the network."""
MANIFEST, METRICS, SEEDS = "manifest.json", "metrics.jsonl", "seeds.json"
SUMMARY, REPORT, SCALING = "summary.json", "report.html", "scaling.json"


class Record:
    """Reads and writes one results folder; make one with :meth:`create` or :meth:`open`.

    Args:
        path: the folder.
        rank: of this process; another than 0 writes its own checkpoints and nothing else.
    """

    def __init__(self, path: Path, rank: int = 0) -> None:
        self.path, self.rank = path, rank
        self.keep = KEEP  # checkpoints of a seed
        self.samples = SampleStore(path)

    # -- making and finding -----------------------------------------------------------------------------------------
    @classmethod
    def create(cls, base: Path, recipe: str, manifest: Mapping[str, Any]) -> Record:
        """Make the folder and write its manifest; raises ResultsError where that is not possible."""
        now = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
        stem = f"{now:%Y%m%d-%H%M%S}-{configuration_hash(manifest)[:8]}"
        number = 1
        while True:
            path = base / recipe / (stem if number == 1 else f"{stem}-{number}")
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    path.mkdir()
                    break
                except FileExistsError:
                    number += 1  # another run of the same recipe in the same second
        record = cls(path)
        about = {"schema": SCHEMA, "format": FORMAT, "recipe": recipe, "started": now.isoformat()}
        record.write_manifest({**about, **manifest})
        return record

    @classmethod
    def open(cls, path: Path) -> Record:
        """An existing results folder; raises ResultsError for a folder of another program or version."""
        record = cls(path)
        schema = record.manifest().get("schema")
        if schema != SCHEMA:
            raise ResultsError(
                f"{path}: got schema {schema!r}; expected {SCHEMA!r}: name a folder that this version of Deep500 "
                "wrote, or run the recipe again"
            )
        return record

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from writing here; the system releases the lock when this process ends, in whatever way.

        Raises:
            ResultsError: another process works on this run. (Where the file system has no locks there is no check.)
        """
        if self.rank:  # rank 0 has the lock
            yield
            return
        handle = os.open(self.path, os.O_RDONLY)
        try:
            with contextlib.suppress(ImportError):  # no fcntl, as on Windows
                import fcntl

                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise ResultsError(
                        f"{self.path}: got a run that another process is working on; expected one that was stopped; "
                        "wait for it, or stop it"
                    ) from error
                except OSError:
                    pass  # some network file systems cannot lock
            yield
        finally:
            os.close(handle)

    # -- manifest and summary ---------------------------------------------------------------------------------------
    def manifest(self) -> dict[str, Any]:
        """The description of the run."""
        return read_json(self.path / MANIFEST)

    def titles(self) -> dict[str, Any]:
        """The ``name`` (None without) and the ``tags`` of the run."""
        manifest = self.manifest()
        return {"name": manifest.get("name"), "tags": manifest.get("tags", [])}

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Replace the manifest."""
        if self.rank == 0:
            write_atomic(self.path / MANIFEST, to_json(manifest) + "\n")

    def summary(self) -> dict[str, Any] | None:
        """The run's outcome; None while it is unfinished."""
        return read_json(self.path / SUMMARY) if (self.path / SUMMARY).exists() else None

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Say what came out; from then on the run is finished."""
        write_atomic(self.path / SUMMARY, to_json(summary) + "\n")

    # -- epochs -----------------------------------------------------------------------------------------------------
    def epochs(self, seed: int | None = None) -> list[dict[str, Any]]:
        """The lines of ``metrics.jsonl``, those of one seed if given; a line that a crash cut short is left out."""
        lines = read_lines(self.path / METRICS)
        return [line for line in lines if seed is None or line["seed"] == seed]

    def add_epoch(self, seed: int, epoch: int, line: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """Record one finished epoch (counted from 1): first the line, then the checkpoint.

        In this order a crash between the two repeats the epoch; in the other it would lose the line.
        """
        if self.rank == 0:
            append_line(self.path / METRICS, {**line, "seed": seed, "epoch": epoch})
        save_checkpoint(self.checkpoints(seed), epoch, state, self.keep, gathers_only=self.rank > 0)

    def rewind(
        self, seed: int, choose: Callable[[list[int]], int | None] | None = None, in_turn: bool = False
    ) -> dict[str, Any] | None:
        """Go back to a checkpoint of the seed that can be read and forget what was recorded after it.

        Args:
            seed: whose.
            choose: picks one of these epochs, or None for none of them; the newest without it. Ranks choose together.
            in_turn: whether ranks hold parts of arrays, which are read when they are used, and if they are not in this
                rank's checkpoint from that of rank 0.

        Returns:
            the checkpoint's ``{"arrays", "values", "epoch"}``, or None if the seed must begin anew.
        """
        self.clear_left_overs()
        states: dict[int, dict[str, Any]] = {}
        for path in list_checkpoints(self.checkpoints(seed)):
            try:
                state = load_checkpoint(path, in_turn)
                states[state["epoch"]] = state
            except ResultsError:
                with writing(path):  # damaged: the one before is as good, a few epochs earlier
                    path.unlink()
        epochs = sorted(states)
        done = (choose(epochs) if choose else max(epochs, default=None)) or 0
        self.forget_after(seed, done)
        chosen = states.get(done)
        if chosen is not None and in_turn and self.rank:
            first = load_checkpoint(self.checkpoints(seed, 0) / f"epoch-{done}.safetensors", in_turn)
            chosen["arrays"] = {**first["arrays"], **chosen["arrays"]}
        return chosen

    def clear_left_overs(self) -> None:
        """Remove what a write that a crash cut short has left."""
        for left_over in self.path.rglob(".*.tmp"):
            with writing(left_over):
                left_over.unlink()

    def forget_after(self, seed: int, epoch: int) -> None:
        """Forget what was recorded of a seed after this number of epochs."""
        if self.rank:  # an asynchronous run takes another course when it is resumed
            for path in list_checkpoints(self.checkpoints(seed)):
                if int(path.stem.removeprefix("epoch-")) > epoch:
                    with writing(path):
                        path.unlink()
            return
        remaining = [line for line in self.epochs() if line["seed"] != seed or line["epoch"] <= epoch]
        ranks = [len(line.get("ranks") or ()) for line in remaining if line["seed"] == seed]

        def blocks(series: str) -> int:
            rank = rank_of(series)  # has one of each epoch in which there was such a rank
            return epoch if rank is None else sum(rank < count for count in ranks)

        self.samples.trim()
        self.samples.keep_blocks(seed, blocks)
        write_atomic(self.path / METRICS, "".join(to_json(line, indent=None) + "\n" for line in remaining))

    def seeds(self) -> dict[str, dict[str, Any]]:
        """Notes of :meth:`finish_seed`, by seed as text; empty while none is finished."""
        return read_json(self.path / SEEDS) if (self.path / SEEDS).exists() else {}

    def finished_seed(self, seed: int) -> dict[str, float | None] | None:
        """The metrics' values of a seed by name, None if it is not finished."""
        seeds = self.seeds()
        if str(seed) not in seeds:
            return None
        return {name: None if text is None else float(text) for name, text in seeds[str(seed)]["values"].items()}

    def seed_notes(self, seed: int) -> dict[str, dict[str, Any]]:
        """Return the notes of :meth:`finish_seed` on each metric of a seed besides its value, by name."""
        seeds = self.seeds()
        return seeds.get(str(seed), {}).get("notes", {})

    def finish_seed(
        self,
        seed: int,
        values: Mapping[str, float | None],
        stopped_by: str | None,
        notes: Mapping[str, Mapping[str, Any]] | None = None,
        wall_seconds: float | None = None,
        final: Mapping[str, float] | None = None,
    ) -> None:
        """Note a seed's values, why it ended before its last epoch if it did, what is behind the values, and how long
        its training lasted by the clock, all of it (None: it was resumed); and what the test data said at the end."""
        if self.rank:
            return
        seeds = self.seeds()
        entry = {
            "values": values,
            "stopped_by": stopped_by,
            "wall_seconds": wall_seconds,
            **({"notes": notes} if notes else {}),
            **({"final": final} if final else {}),
        }
        write_atomic(self.path / SEEDS, to_json({**seeds, str(seed): entry}) + "\n")

    def checkpoints(self, seed: int, rank: int | None = None) -> Path:
        """Return the folder of a rank's checkpoints of a seed, of this process's if none is given."""
        number, folder = self.rank if rank is None else rank, self.path / "checkpoints" / f"seed-{seed}"
        return folder / f"rank-{number}" if number else folder


def configuration_hash(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of what was run: the resolved recipe and the content of its file, where functions of its own are.

    Example:
        >>> one, other = ({"resolved": {}, "recipe_sha256": digest} for digest in ("aa", "bb"))
        >>> configuration_hash(one) == configuration_hash(other)
        False
    """
    return full_hash({"resolved": manifest["resolved"], "recipe_sha256": manifest.get("recipe_sha256")})


def full_hash(value: Any) -> str:
    """SHA-256 of a value's JSON (sorted keys, no blanks)."""
    return hashlib.sha256(to_json(value, indent=None).encode("utf-8")).hexdigest()


def spread(values: Sequence[float | None]) -> str:
    """Smallest and largest value as text, ``not measured`` without any.

    Example:
        >>> spread([0.5, 0.25]), spread([None])
        ('0.25 to 0.5', 'not measured')
    """
    known = [v for v in values if v is not None and not math.isnan(v)]
    return f"{min(known):.4g} to {max(known):.4g}" if known else "not measured"
