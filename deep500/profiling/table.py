"""The table on the terminal: a row per node, columns per framework, and below what no node explains."""

from __future__ import annotations

from collections.abc import Sequence

from deep500.measure.units import unit_for
from deep500.networks.execution.step_profile import BACKWARD, FORWARD, KernelPlace
from deep500.profiling.profile import FrameworkProfile, NodeRow, Profile, covered

_NAME = 36


def profile_table(profile: Profile) -> str:
    """The profile as text: times of each node forward and backward, their share of the step, and of the roof.

    Example:
        >>> import numpy as np
        >>> import deep500.frameworks.reference as d5ref
        >>> from deep500.networks import create
        >>> from deep500.profiling.measuring import profile_network
        >>> inputs = {"input": np.ones((2, 4), "float32")}
        >>> net = create("mlp", shape=(4,))
        >>> shown = profile_table(profile_network(net, inputs, {"reference": d5ref.from_model}, loss=None, steps=1))
        >>> "fc1" in shown and "(between kernels)" in shown
        True
    """
    factor, unit = unit_for(max(f.step.seconds for f in profile.frameworks) / 10)
    columns = ["fwd", "bwd", "step", "roof"] if profile.loss is not None else ["fwd", "step", "roof"]
    head = ["node", "operator", "MFLOP", *(column for _ in profile.frameworks for column in columns)]
    lines = [_row(profile, row, factor) for row in profile.rows]
    for name in profile.frameworks[0].outside:
        lines.append([name, "", "", *(cell for f in profile.frameworks for cell in _outside(profile, f, name, factor))])
    lines.append(["step", "", _million(profile.flops()), *_totals(profile, factor)])
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    above = _names(profile, widths, len(columns))
    rule = "-" * len(above)
    rows = [_line(line, widths) for line in lines]
    cut = len(profile.rows)
    body = [above, _line(head, widths), rule, *rows[:cut], rule, *rows[cut:]]
    return "\n".join([*body, "", f"fwd, bwd in {unit}", *(about(f) for f in profile.frameworks)])


def about(part: FrameworkProfile) -> str:
    """One line about a framework: its step, what is explained, what profiling costs, which nodes share a kernel."""
    factor, unit = unit_for(part.plain)
    shared: dict[str, list[str]] = {}
    for node, holder in part.fused.items():
        shared.setdefault(holder, []).append(node)
    notes = [f"{holder} holds {', '.join(nodes)}" for holder, nodes in shared.items()]
    busy = sum(kernel.seconds for kernel in part.step.kernels) / (covered(part.step.kernels) or 1.0)
    notes = [f"{busy:.2f} kernels ran at once, so that times add up to more"] * (busy > 1.01) + notes
    return (
        f"{part.framework} {part.version}: a step takes {factor * part.plain:.4g} {unit} without the profiler, "
        f"{part.cost} times that with it; nodes explain {part.explained:.1%}" + "".join(f"; {note}" for note in notes)
    )


def _row(profile: Profile, row: NodeRow, factor: float) -> list[str]:
    cells = [row.name if len(row.name) <= _NAME else f"{row.name[:17]}...{row.name[-16:]}", row.operator]
    cells.append(_million(row.flops()))
    for part in profile.frameworks:
        cells += _cells(profile, row, part, factor)
    return cells


def _cells(profile: Profile, row: NodeRow, part: FrameworkProfile, factor: float) -> list[str]:
    ahead, back = (part.cells.get(KernelPlace(row.name, phase)) for phase in (FORWARD, BACKWARD))
    times = [_time(ahead.seconds, factor) if ahead else "^" if row.name in part.fused else ""]
    times += [_time(back.seconds, factor) if back else ""] if profile.loss is not None else []
    spent = sum(cell.seconds for cell in (ahead, back) if cell)
    share = f"{spent / part.step.seconds:.1%}" if spent else ""
    roofs = [
        (profile.share_of_roof(row.work[phase], 1.0), cell)
        for phase, cell in ((FORWARD, ahead), (BACKWARD, back))
        if cell and phase in row.work
    ]
    least = [time for time, _ in roofs if time is not None]
    roof = f"{sum(least) / spent:.0%}" if spent and roofs and len(least) == len(roofs) else ""
    return [*times, share, roof]


def _outside(profile: Profile, part: FrameworkProfile, name: str, factor: float) -> list[str]:
    seconds = part.outside[name]
    blank = [""] if profile.loss is not None else []
    return [_time(seconds, factor), *blank, f"{seconds / part.step.seconds:.1%}", ""]


def _totals(profile: Profile, factor: float) -> list[str]:
    cells: list[str] = []
    for part in profile.frameworks:
        cells += [_time(part.step.seconds, factor), *([""] if profile.loss is not None else []), "100.0%", ""]
    return cells


def _time(seconds: float, factor: float) -> str:
    return f"{factor * seconds:.3f}"


def _million(count: int | None) -> str:
    return "?" if count is None else f"{count / 1e6:,.2f}" if count >= 1e6 or not count else f"{count / 1e6:.2g}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    parts = [c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
    return "  ".join(parts).rstrip()


def _names(profile: Profile, widths: Sequence[int], columns: int) -> str:
    """The line of frameworks, each above its columns."""
    text = " " * (sum(widths[:3]) + 6)
    for number, part in enumerate(profile.frameworks):
        span = widths[3 + number * columns : 3 + (number + 1) * columns]
        text += part.framework.center(sum(span) + 2 * (columns - 1), ".") + "  "
    return text.rstrip()
