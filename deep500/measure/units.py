"""The unit in which a number is read: SI prefixes."""

from __future__ import annotations

UNITS = ((1.0, "s"), (1e3, "ms"), (1e6, "µs"), (1e9, "ns"))
PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def unit_for(value: float, unit: str = "s") -> tuple[float, str]:
    """The unit in which a time, a number of bytes (``B``), of operations or of anything has one to three digits before
    the point: factor and name.

    Example:
        >>> unit_for(0.0021), unit_for(187_254_892, "B")
        ((1000.0, 'ms'), (1e-06, 'MB'))
    """
    if unit == "s":
        return next(
            ((factor, name) for factor, name in UNITS if abs(value) * factor >= 1), UNITS[-1] if value else UNITS[0]
        )
    return next(((1 / size, prefix + unit) for size, prefix in PREFIXES if abs(value) >= size), (1.0, unit))


def amount(value: float | None, unit: str, digits: int = 4) -> str:
    """A number with its unit, ``not measured`` for None.

    Example:
        >>> amount(187_254_892, "B"), amount(1.29e10, "FLOP"), amount(0.0021, "s"), amount(None, "s")
        ('187.3 MB', '12.9 GFLOP', '2.1 ms', 'not measured')
    """
    if value is None:
        return "not measured"
    factor, name = unit_for(value, unit)
    return f"{factor * value:.{digits}g} {name}"
