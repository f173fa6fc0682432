"""The seal of a results folder: the checksum of every file, and the statistics that a run computes before it seals."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from deep500.errors import ResultsError
from deep500.reading import open_regular
from deep500.results.files import largest, read_json, read_lines, regular_files, to_json, write_atomic, writing
from deep500.results.quiet import disturbed, lower_series
from deep500.results.record import MANIFEST, METRICS
from deep500.results.samples import SampleStore
from deep500.results.stats import STATS, compute

SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"
ATTESTATION, REQUEST, STAMP = "attestation.dsse.json", "SHA256SUMS.tsq", "SHA256SUMS.tsr"
BESIDE = (SUMS, SIGNATURE, ATTESTATION, REQUEST, STAMP)
"""The seal, and what is about it."""


def write_stats(path: Path) -> None:
    """Compute ``stats.json`` from the samples and the manifest."""
    write_atomic(path / STATS, stats_of(path))


def stats_of(path: Path) -> str:
    """The text of ``stats.json``, computed from the samples and the manifest."""
    manifest = read_json(path / MANIFEST)
    curve = read_lines(path / METRICS)
    stats = compute(SampleStore(path), manifest.get("series", {}), curve)
    return to_json(lower_series(stats, disturbed(curve, manifest))) + "\n"


def seal(path: Path) -> None:
    """Write the checksum of every file below a results folder; raises ResultsError for a link, a pipe or a device."""
    lines = [f"{digest_of_file(path / name)}  {name}\n" for name in sealed_files(path)]
    write_atomic(path / SUMS, "".join(lines))


def sealed_files(path: Path) -> list[str]:
    """Names of the files that the seal is over."""
    return [name for name in regular_files(path) if name not in BESIDE]


def digest_of_file(path: Path) -> str:
    """SHA-256 of a regular file that is not too large."""
    digest = hashlib.sha256()
    with writing(path), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > (most := largest(path)):
            raise ResultsError(f"{path}: got {size} bytes; expected at most {most}: restore the file, or remove it")
        while piece := file.read(2**20):
            digest.update(piece)
    return digest.hexdigest()
