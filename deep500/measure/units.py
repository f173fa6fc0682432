"""The unit in which a time is read."""

from __future__ import annotations

UNITS = ((1.0, "s"), (1e3, "ms"), (1e6, "µs"), (1e9, "ns"))


def unit_for(seconds: float) -> tuple[float, str]:
    """The unit in which a time has one to three digits before the point: factor and name.

    Example:
        >>> unit_for(0.0021)
        (1000.0, 'ms')
    """
    return next(
        ((factor, name) for factor, name in UNITS if abs(seconds) * factor >= 1), UNITS[-1] if seconds else UNITS[0]
    )
