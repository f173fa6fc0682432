"""Plots as small SVG elements that take their colours and fonts from the page around them.

Written here and not drawn by matplotlib for three reasons: one thousand points cost ten kilobytes instead of sixty, so
that fifty series fit on a page; colours are CSS classes, so that the same plot is legible on light, dark and paper; and
the page's script can read a sample's value back from the path, since places are exact to a hundredth of a pixel.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from deep500.errors import InputError

WIDTH, HEIGHT = 400, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 10, 12, 44
FINE = 100
"""Places are whole hundredths of a pixel."""


@dataclass(frozen=True)
class Axis:
    """One axis: its range, whether it is logarithmic, and what stands beside it.

    Attributes:
        low, high: the range, in the unit that is shown; ``low < high``, and ``low > 0`` where it is logarithmic.
        name: what it is and its unit.
        log: logarithmic.
        whole: values are whole numbers (samples, epochs).
        labels: names of places, instead of numbers: the axis has categories, between which nothing can be drawn.
        at: where numbers stand, instead of round ones.

    Example:
        >>> [text for _, text in Axis(0, 10, "epoch").ticks()]
        ['0', '2', '4', '6', '8', '10']
        >>> [text for _, text in Axis(0.5, 2000, "ms", log=True).ticks()]
        ['1', '10', '100', '1,000']
    """

    low: float
    high: float
    name: str
    log: bool = False
    whole: bool = False
    labels: tuple[tuple[float, str], ...] = ()
    at: tuple[float, ...] = ()

    @classmethod
    def around(cls, values: Any, name: str, **more: Any) -> Axis:
        """The axis that holds all values, with a margin of 4 %."""
        low, high = float(np.min(values)), float(np.max(values))
        if more.get("log"):
            edge = max(1.05, (high / low) ** 0.04)
            return cls(low / edge, high * edge, name, **more)
        edge = 0.04 * (high - low) or 0.04 * abs(high) or 1.0
        return cls(low - edge, high + edge, name, **more)

    def share(self, values: Any) -> np.ndarray:
        """Return where values lie, 0 at ``low`` and 1 at ``high``."""
        values = np.asarray(values, np.float64)
        if self.log:
            return np.log(np.maximum(values, 1e-300) / self.low) / math.log(self.high / self.low)
        return (values - self.low) / (self.high - self.low)

    def ticks(self) -> list[tuple[float, str]]:
        """Round values within the range, and how they are written."""
        if self.labels:
            return list(self.labels)
        if self.at:
            return [(value, _short(value)) for value in self.at]
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            width = math.log10(self.high / self.low)
            steps = (1,) if width > 3 else (1, 3) if width > 1.7 else (1, 2, 5)
            every = max(1, len(decades) // 6)
            places = [s * 10.0**d for d in decades if d % every == 0 for s in steps]
            places = [value for value in places if self.low <= value <= self.high]
            if len(places) > 1:
                return [(value, _short(value)) for value in places]
        rough = (self.high - self.low) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * s for s in (1, 2, 5, 10) if power * s >= rough * 0.999)
        step = max(1.0, step) if self.whole else step
        values = np.arange(math.ceil(self.low / step), math.floor(self.high / step) + 1) * step
        return [(float(value), _short(float(value))) for value in values]


def _short(value: float) -> str:
    if 0 < abs(value) < 1e-3:
        mantissa, _, exponent = f"{value:.3e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:,.0f}" if abs(value) >= 1000 and abs(value) < 1e7 else f"{value + 0.0:.4g}"


class Plot:
    """A plot with two axes, to which marks are added.

    Args:
        x, y: the axes.
        about: the alternative text, for readers who cannot see the plot.
        toggle: ``"x"`` or ``"y"``: the script offers a logarithmic scale on this axis.
        height: in pixels of a plot that is 400 wide.
        left: room for the labels of y.

    Attributes:
        drawn: what kinds of marks it holds: ``scatter``, ``line``, ``ecdf``, ``bar``; guides and intervals are none.
    """

    def __init__(self, x: Axis, y: Axis, about: str, toggle: str = "", height: int = HEIGHT, left: int = LEFT) -> None:
        self.x, self.y, self.about, self.toggle, self.height, self.left = x, y, about, toggle, height, left
        self.drawn: dict[str, None] = {}
        self._marks: list[str] = []
        self._texts: list[str] = []

    def points(self, x: Any, y: Any, colour: int = 0, size: float = 2.5) -> None:
        """Unconnected dots."""
        self.drawn["scatter"] = None
        steps = self._steps(x, y)
        path = "".join(f"m{dx}{dy:+d}h0".replace("+", " ") for dx, dy in steps)
        self._path(path, f"c{colour % 8} dots", f' stroke-width="{size:g}"')

    def line(self, x: Any, y: Any, colour: int = 0, kind: str = "", stairs: bool = False) -> None:
        """A line through values that are ordered; ``stairs`` where what lies between two of them is known.

        Args:
            kind: ``"thin"``, ``"thick"``, ``"bar"``, ``"whisker"`` or ``"guide"``.

        Raises:
            InputError: it would join categories (rule R12).
        """
        for axis, values in ((self.x, x), (self.y, y)):
            if axis.labels and np.ptp(np.rint(np.asarray(values, np.float64))) > 0 and kind != "guide":
                raise InputError(f"got a line from {axis.labels[0][1]!r} to another category; expected points or bars")
        if kind in ("", "thin", "thick") and not (self.x.labels or self.y.labels):  # else it stays within one category
            self.drawn["ecdf" if stairs else "line"] = None
        (bx, by), *steps = self._steps(x, y)
        if stairs:
            path = "".join(f"h{dx}v{dy}" for dx, dy in steps)
        else:
            path = "l" + " ".join(f"{dx} {dy}" for dx, dy in steps) if steps else "h0"
        self._path(f"m{bx} {by}{path}", f"c{colour % 8} line {kind}".strip())

    def band(self, x: Any, low: Any, high: Any, colour: int = 0) -> None:
        """A shaded area between two curves."""
        self.area(np.concatenate([x, np.asarray(x)[::-1]]), np.concatenate([low, np.asarray(high)[::-1]]), colour)

    def area(self, x: Any, y: Any, colour: int = 0) -> None:
        """A shaded area within a closed outline."""
        (bx, by), *steps = self._steps(x, y)
        path = f"m{bx} {by}l" + " ".join(f"{dx} {dy}" for dx, dy in steps) + "z"
        self._marks.append(f'<path class="c{colour % 8} band" transform="scale(.01)" d="{path}"/>')

    def shade(self, begin: float, end: float) -> None:
        """Shade a range of x over the whole height."""
        a, b = (float(v) for v in self._across([begin, end]) / FINE)
        self._marks.append(
            f'<rect class="shade" x="{a:.1f}" y="{TOP}" width="{max(0.8, b - a):.1f}" '
            f'height="{self.height - TOP - BOTTOM}"/>'
        )

    def bar(self, y: float, begin: float, end: float, colour: int = 0, thick: float = 18) -> None:
        """A horizontal bar from 0; raises InputError where it begins elsewhere, or 0 is not in sight (rule R12)."""
        if begin != 0 or not self.x.low <= 0 <= self.x.high:
            raise InputError(f"got a bar from {begin:g} on an axis from {self.x.low:g}; expected it to begin at 0")
        self.drawn["bar"] = None
        a, b = (float(v) for v in self._across([begin, end]) / FINE)
        middle = float(self._down([y])[0]) / FINE
        self._marks.append(
            f'<rect class="c{colour % 8} fill" x="{a:.1f}" y="{middle - thick / 2:.1f}" '
            f'width="{max(0.5, b - a):.1f}" height="{thick:g}"/>'
        )

    def rule(self, *, x: float | None = None, y: float | None = None) -> None:
        """A guide over the whole width or height."""
        if x is not None:
            self.line([x, x], [self.y.low, self.y.high], kind="guide")
        if y is not None:
            self.line([self.x.low, self.x.high], [y, y], kind="guide")

    def note(self, text: str, x: float | None = None, y: float | None = None, before: bool = False) -> None:
        """A text within the plot: in its upper right corner, or behind a place, or before it."""
        if x is None or y is None:
            place = f'x="{WIDTH - RIGHT - 4}" y="{TOP + 13 + 15 * len(self._texts)}" text-anchor="end"'
        else:
            a, b = float(self._across([x])[0]) / FINE, float(self._down([y])[0]) / FINE
            place = (
                f'x="{a - 8:.1f}" y="{b + 4:.1f}" text-anchor="end"' if before else f'x="{a + 6:.1f}" y="{b + 4:.1f}"'
            )
        self._texts.append(f"<text {place}>{escape(text)}</text>")

    def legend(self, names: Sequence[str]) -> None:
        """Names of the colours 0, 1, ... in a row above the plot, in further ones below it where they are many."""
        at, down, row = float(self.left + 2), 0, []
        letters, room = sum(map(len, names)), WIDTH - self.left - RIGHT
        gap, wide = (
            (22, 7.0) if 22 * len(names) + 7 * letters <= room else (16, 6.0)
        )  # close together where they are many
        for colour, name in enumerate(names):
            if colour and at + 11 + wide * len(name) > WIDTH - RIGHT:
                at, down = float(self.left + 2), down + 15
            row.append(
                f'<circle class="c{colour % 8} fill" cx="{at + 4:g}" cy="{6 + down}" r="4"/>'
                f'<text x="{at + 11:g}" y="{10 + down}">{escape(name)}</text>'
            )
            at += gap + wide * len(name)
        self._texts += row

    def markup(self) -> Markup:
        """The SVG element; the same bytes every time."""
        axes = {"x": _facts(self.x), "y": _facts(self.y), "toggle": self.toggle}
        box = f"{self.left} {TOP} {WIDTH - self.left - RIGHT} {self.height - TOP - BOTTOM}"
        inner = (
            f'<svg x="{self.left}" y="{TOP}" width="{WIDTH - self.left - RIGHT}" height="{self.height - TOP - BOTTOM}"'
        )
        return Markup(
            f'<svg class="plot" role="img" viewBox="0 0 {WIDTH} {self.height}" aria-label="{escape(self.about)}" '
            f'data-axes="{escape(json.dumps(axes))}">{self._frame()}'
            f'{inner} viewBox="{box}">{"".join(self._marks)}</svg>{"".join(self._texts)}</svg>'
        )

    def _frame(self) -> str:
        bottom, right = self.height - BOTTOM, WIDTH - RIGHT
        parts = ['<g class="ticks x">']
        for value, text in self.x.ticks():
            at = float(self._across([value])[0]) / FINE
            parts.append(
                f'<path d="M{at:.1f} {TOP}V{bottom}"/><text x="{at:.1f}" y="{bottom + 15}">{escape(text)}</text>'
            )
        parts.append('</g><g class="ticks y">')
        for value, text in self.y.ticks():
            at = float(self._down([value])[0]) / FINE
            parts.append(
                f'<path d="M{self.left} {at:.1f}H{right}"/>'
                f'<text x="{self.left - 5}" y="{at + 4:.1f}">{escape(text)}</text>'
            )
        middle = (TOP + bottom) / 2
        parts.append(
            f'</g><text class="name" x="{(self.left + right) / 2:g}" y="{self.height - 8}">'
            f'{escape(self.x.name)}</text><text class="name" transform="translate(12 {middle:g})rotate(-90)">'
            f"{escape(self.y.name)}</text>"
        )
        return "".join(parts)

    def _path(self, path: str, kind: str, more: str = "") -> None:
        self._marks.append(f'<path class="{kind}" transform="scale(.01)"{more} d="{path}"/>')

    def _across(self, values: Any) -> np.ndarray:
        return np.rint((self.left + self.x.share(values) * (WIDTH - self.left - RIGHT)) * FINE).astype(np.int64)

    def _down(self, values: Any) -> np.ndarray:
        return np.rint((self.height - BOTTOM - self.y.share(values) * (self.height - TOP - BOTTOM)) * FINE).astype(
            np.int64
        )

    def _steps(self, x: Any, y: Any) -> list[tuple[int, int]]:
        """From 0, 0 to the first place, and from each place to the next."""
        return list(
            zip(np.diff(self._across(x), prepend=0).tolist(), np.diff(self._down(y), prepend=0).tolist(), strict=True)
        )


def place_names(names: Sequence[str]) -> tuple[tuple[float, str], ...]:
    """Labels for rows from the top down, at 0, -1, -2, ...; long names are cut."""
    return tuple((float(-place), name if len(name) <= 16 else f"{name[:15]}…") for place, name in enumerate(names))


def room_for(names: Sequence[tuple[float, str]]) -> int:
    """Return how many pixels such labels need."""
    return 24 + 7 * max((len(name) for _, name in names), default=0)


def _facts(axis: Axis) -> list[Any]:
    return [axis.low, axis.high, int(axis.log), axis.name, int(axis.whole), int(bool(axis.labels))]
