"""Tables as text, and what has been published, for context."""

from __future__ import annotations

from collections.abc import Sequence

from deep500.report.recomputation import choice_row, sentence
from deep500.results.recomputation import RecomputationRecord
from recipes.studies.recomputation_profile.ways import FREE, SLIGHT

HEAD = ("way", "run again", "peak, predicted", "peak, measured", "off by", "time, predicted", "time, measured", "step")
PUBLISHED = """\
Published, of other programs on other machines, for context only (nothing here is compared with them): placement of
checkpoints alone brought the adjoint of MITgcm's streamice from 7.0 to 2.4 times its primal (Hascoet et al. 2024, arXiv
2405.15590, second-hand); on a 1 degree ocean of MITgcm, switching off the checkpoints of 33 of 116 callees by profile
made it 1.47 to 1.50 times as fast for 6 % more memory."""


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells, the first column to the left, others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [[row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))] for row in rows]
    return "\n".join("  ".join(line).rstrip() for line in lines)


def ways_table(record: RecomputationRecord) -> str:
    """Every way with what was predicted and measured; notes below."""
    rows = [choice_row(choice, record.choices[0], record.time_unit) for choice in record.choices]
    lines = [sentence(record), aligned([HEAD, *(row[:8] for row in rows)])]
    lines += [f"  {row[0]}: {row[8]}" for row in rows if row[8]]
    return "\n".join([*lines, *filter(None, [guided_line(record)])])


def guided_line(record: RecomputationRecord) -> str:
    """Say how much faster than everything recomputed the guide's ways are; empty without those."""
    ways = {choice.label: choice for choice in record.choices}
    if "everything" not in ways:
        return ""
    base, compared = ways["everything"], []
    for label in (FREE, SLIGHT):
        way = ways[label]
        if way.predicted_time and base.predicted_time and base.measured_time and way.measured_time:
            compared.append(
                f"{label}: {base.predicted_time / way.predicted_time:.2f} times as fast as predicted, "
                f"{base.measured_time.median / way.measured_time.median:.2f} times as measured"
            )
    return "From everything recomputed to " + "; ".join(compared)


def profile_table(record: RecomputationRecord, most: int = 12) -> str:
    """The profile in its groups, up to ``most`` lines; the rest is in the files."""
    text = str(record.profile).split("\n")
    shown, rest = text[: most + 4], len(text) - most - 4
    return "\n".join(shown + [f"... and {rest} lines more, in recomputation.json and on the page"] * (rest > 0))
