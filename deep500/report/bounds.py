"""Plots of what is possible: the roofline, and time and efficiency over the number of processes with their bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from deep500.measure.statistics import Interval
from deep500.measure.units import unit_for
from deep500.report.figures import Figure
from deep500.report.plot import BOTTOM, TOP, Axis, Plot, place_names, room_for
from deep500.results.ranks import Rank, Ranks
from deep500.results.scaling import MEASURED, PREDICTED, WEAK, Scaling, ScalingPoint

RATES = ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1.0, "FLOP/s"))


def roofline_figure(claims: Sequence[Mapping[str, Any]]) -> Figure | None:
    """Rates of work whose bytes were counted, under the measured roofs, on logarithmic axes; None without any.

    Args:
        claims: of type ``rate``, with ``flops`` per second, ``counted_flops``, ``bytes`` and ``roofs``: ``flops`` and
            ``bandwidth`` per second, as measured.
    """
    points = [c for c in claims if c.get("type") == "rate" and c.get("bytes") and c.get("roofs")]
    if not points:
        return None
    peak, bandwidth = (max(float(c["roofs"][key]) for c in points) for key in ("flops", "bandwidth"))
    factor, unit = next((1 / size, name) for size, name in RATES if peak >= size or size == 1.0)
    intensity = np.array([c["counted_flops"] / c["bytes"] for c in points])
    rates = factor * np.array([c["flops"] for c in points])
    ridge = peak / bandwidth
    low, high = min(ridge, intensity.min()) / 4, max(ridge, intensity.max()) * 4
    shares = [c["flops"] / min(peak, bandwidth * i) for c, i in zip(points, intensity, strict=True)]
    names = [str(c.get("name", f"rate {n}"))[:24] for n, c in enumerate(points, 1)]
    text = ", ".join(f"{name} {share:.0%} of its roof" for name, share in zip(names, shares, strict=True))
    roof = factor * np.minimum(peak, bandwidth * np.array([low, ridge, high]))
    plot = Plot(
        Axis(low, high, "operations per byte moved", log=True),
        Axis(min(rates.min(), roof.min()) / 2, 2 * factor * peak, unit, log=True),
        f"roofline with {len(points)} points: {text}",
    )
    plot.line([low, ridge, high], roof, 7, "thick")
    for colour, (x, y, name) in enumerate(zip(intensity, rates, names, strict=True)):
        plot.points([x], [y], colour, 9)
        plot.note(name, float(x), float(y), before=bool(x > (low * high) ** 0.5))
    return Figure.from_plot(
        "How close to what the machine can do?",
        plot,
        f"line: measured roofs, {factor * peak:.4g} {unit} and {bandwidth / 1e9:.4g} GB/s; {text}; observations",
        len(points),
    )


def scaling_figures(scaling: Scaling | None) -> list[Figure]:
    """Time per step, and efficiency, over the number of processes, with ideal, Amdahl's and measured bounds."""
    if scaling is None or not scaling.entries:
        return []
    factor, unit = unit_for(scaling.base.seconds.median)
    top = max(e.ranks for e in scaling.entries)
    counts = np.unique(np.geomspace(1, max(top, scaling.base.ranks), 40))
    weak = scaling.mode == WEAK
    # what one process's share of the work takes: the same for weak scaling, less and less for strong
    alone = scaling.base.seconds.median * (scaling.base.ranks if not weak else 1)

    def ideal(p: np.ndarray) -> np.ndarray:
        return np.full_like(p, alone) if weak else alone / p

    times = _plot(scaling, factor, f"time per step ({unit})", lambda e: e.seconds, log=True)
    shares = _plot(scaling, 100.0, "efficiency (%)", scaling.efficiency, log=False)
    times.line(counts, factor * ideal(counts), kind="guide")
    shares.line(counts, np.full_like(counts, 100.0), kind="guide")
    for colour, scheme in enumerate(scaling.schemes):
        serial = scaling.serial_share(scheme)
        if serial is not None:
            slower = counts / (counts - serial * (counts - 1)) if weak else serial * counts + 1 - serial
            times.line(counts, factor * ideal(counts) * slower, colour, "thin")
            shares.line(counts, 100 / slower, colour, "thin")
    for bound in scaling.bounds:
        times.line(bound.ranks, factor * np.array(bound.seconds), 7, "thick")
    caption = _caption(scaling)
    n = min(e.seconds.n for e in scaling.entries)
    level = scaling.base.seconds.level if any(e.seconds.low is not None for e in scaling.entries) else None
    return [
        Figure.from_plot("How long does a step take on more processes?", times, caption, n, level),
        Figure.from_plot("How much of every process is used?", shares, caption, n, level),
    ]


def _plot(
    scaling: Scaling, factor: float, name: str, interval_of: Callable[[ScalingPoint], Interval], *, log: bool
) -> Plot:
    """The points of one of both plots: measured ones large, with their interval; predicted ones small."""
    ends = [end for e in scaling.entries for end in interval_of(e) if end is not None]
    if log:
        ends += [bound for b in scaling.bounds for bound in b.seconds]
        ends += [scaling.base.seconds.median / (1 if scaling.mode == WEAK else max(e.ranks for e in scaling.entries))]
    else:
        ends += [0.0, 1.0]
    ranks = tuple(sorted({scaling.base.ranks, *(e.ranks for e in scaling.entries)}))
    edge = 1.15
    text = "; ".join(f"{e.scheme} on {e.ranks}: {factor * interval_of(e).median:.4g}" for e in scaling.entries[:12])
    plot = Plot(
        Axis(1 / edge, max(2, ranks[-1]) * edge, "processes", log=True, at=tuple(map(float, ranks))),
        Axis.around(factor * np.array(ends), name, log=log),
        f"{name} over processes: {text}",
        "y" if log else "",
    )
    for colour, scheme in enumerate(scaling.schemes):
        for kind, size in ((MEASURED, 8), (PREDICTED, 4)):
            points = [e for e in scaling.entries if e.scheme == scheme and e.kind == kind]
            if points:
                plot.points([e.ranks for e in points], [factor * interval_of(e).median for e in points], colour, size)
            for entry in points:
                _, low, high = interval_of(entry)
                if low is not None:
                    plot.line([entry.ranks] * 2, [factor * low, factor * high], colour, "whisker")
    plot.legend([scheme[:18] for scheme in scaling.schemes])
    return plot


def _caption(scaling: Scaling) -> str:
    serial = [
        f"{100 * s:.3g} % for {name}" for name in scaling.schemes if (s := scaling.serial_share(name)) is not None
    ]
    kinds = {e.kind for e in scaling.entries}
    parts = [f"{scaling.mode} scaling; dashed: ideal"]
    parts += [f"thin: Amdahl's bound, serial share {', '.join(serial)}"] if serial else []
    parts += [f"thick grey: {', '.join(bound.name for bound in scaling.bounds)}"] if scaling.bounds else []
    parts += ["large: measured, with interval where there is one"] if MEASURED in kinds else []
    parts += ["small: predicted"] if PREDICTED in kinds else []
    n = [e.seconds.n for e in scaling.entries if e.kind == MEASURED]
    parts += [f"n = {min(n)} to {max(n)}" if min(n) < max(n) else f"n = {n[0]}"] if n else []
    return "; ".join(parts)


def scaling_rows(scaling: Scaling | None) -> list[dict[str, Any]]:
    """The table behind the plots."""
    if scaling is None:
        return []
    return [
        {
            "ranks": e.ranks,
            "global_batch": e.global_batch,
            "scheme": e.scheme,
            "kind": e.kind,
            "seconds": e.seconds,
            "efficiency": scaling.efficiency(e),
            "speedup": scaling.efficiency(e).median * e.ranks,
            "quality": e.quality,
        }
        for e in scaling.entries
    ]


def ranks_figure(ranks: Ranks | None) -> Figure | None:
    """Every rank's time per step beside the others'; None for one process or none."""
    if ranks is None or len(ranks.ranks) < 2:
        return None
    factor, unit = unit_for(ranks.ranks[0].seconds.median)
    names = place_names([f"rank {rank.rank}" for rank in ranks.ranks])
    ends = [factor * end for rank in ranks.ranks for end in rank.seconds if end is not None]
    slowest = max(ranks.ranks, key=_median)
    plot = Plot(
        Axis.around(ends, f"time per step ({unit})"),
        Axis(-len(names) + 0.5, 0.5, "", labels=names),
        f"time per step of {len(names)} ranks, slowest: rank {slowest.rank} with "
        f"{factor * slowest.seconds.median:.4g} {unit}",
        height=TOP + BOTTOM + 22 * len(names),
        left=room_for(names),
    )
    for place, rank in enumerate(ranks.ranks):
        middle, low, high = rank.seconds
        if low is not None:
            plot.line([factor * low, factor * high], [-place, -place], 0, "whisker")
        plot.points([factor * middle], [-place], 0, 7)
    n = min(rank.seconds.n for rank in ranks.ranks)
    caption = f"n = {n}; line: interval where there is one"
    return Figure.from_plot("Do the processes take equally long?", plot, caption, n, ranks.ranks[0].seconds.level)


def _median(rank: Rank) -> float:
    return rank.seconds.median
