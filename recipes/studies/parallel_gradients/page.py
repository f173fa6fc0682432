"""The page of documentation, written with the figures of a run: ``--page docs/parallel_gradients.md``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from deep500.results.files import write_atomic
from recipes.studies.parallel_gradients.measuring import AGREE, DIFFERENCES, DOT, WORST_PUBLISHED, Checked, TimedPoint
from recipes.studies.parallel_gradients.printing import EFFICIENCY, tables

TEMPLATE = Path(__file__).with_name("page.md")


def write_page(path: Path, heading: Sequence[str], checked: Sequence[Checked], timed: Sequence[TimedPoint]) -> Path:
    """Write the page; returns its path. Raises ResultsError if it cannot be written."""
    text = TEMPLATE.read_text(encoding="utf-8").format(
        worst=WORST_PUBLISHED,
        agree=AGREE,
        dot=DOT,
        differences=DIFFERENCES,
        efficiency=EFFICIENCY,
        heading="; ".join(heading) + ".",
        tables=tables(checked, timed),
    )
    write_atomic(path, text)
    return path
