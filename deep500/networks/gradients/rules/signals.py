"""Rules of Fourier transforms: linear maps, whose gradient is the product with the conjugate transpose of their matrix.

Of Y = F X, with F[k, t] = exp(-2 pi i k t / n), it is dX = F^H dY, n times the inverse transform of dY. The pairs of
real and imaginary parts in an axis of size 2 are numbers of their own here, and the real part is all of a real input.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deep500.networks.gradients.rules.context import GradContext, Value
from deep500.networks.gradients.rules.registry import gradient_rule


@gradient_rule("DFT", blocked=(1,))
def dft(g: GradContext) -> Sequence[Value | None]:
    """Both ways, real and complex, of all or of half of the frequencies, cut or filled up to a length."""
    x, y, dy, length = g.input(0), g.output(), g.grad(), g.optional(1)
    place = g.constant_of(2) if g.optional(2) else np.array(-2)
    if place is None:
        g.refuse("its axis is not known when the network is built")
    axis = int(place) % g.rank(x)
    onesided, inverse = bool(g.attribute("onesided")), bool(g.attribute("inverse"))
    if inverse:
        dx = g("DFT", dy, None, g.optional(2), onesided=int(onesided)) / g.count(y, [axis])
        if onesided:
            (size,) = g.static(y, [axis]) or g.refuse("half a spectrum needs a known size of what comes of it")
            dx = dx * g.array(multiplicity(size).reshape(-1, *[1] * (g.rank(y) - axis - 1)))
    else:
        whole = length
        if onesided and whole is None:
            whole = g("Squeeze", g.sizes(x, [axis]), g.ints(0))
        factor = g.count(x, [axis]) if length is None else _number(g, length)
        dx = g("DFT", dy, whole if onesided else None, g.optional(2), inverse=1) * factor
    if length is not None:  # the input was cut, or filled up with zeros
        dx = g("Slice", dx, g.ints(0), g.sizes(x, [axis]), g.ints(axis))
        there = g("Shape", dx, start=axis, end=axis + 1)
        dx = g("Pad", dx, g("Concat", g.ints(0), g.sizes(x, [axis]) - there, axis=0), None, g.ints(axis))
    if (g.dims(x) or ())[-1] != 2:
        dx = g("Slice", dx, g.ints(0), g.sizes(x, [g.rank(x) - 1]), g.ints(-1))
    return [dx]


def _number(g: GradContext, length: Value) -> Value | float:
    known = g.known(length)
    return g.cast(length) if known is None else float(known)


def multiplicity(size: int) -> np.ndarray:
    """How often each frequency of half a spectrum stands in the whole of that size: twice, or once.

    Example:
        >>> multiplicity(4).tolist(), multiplicity(5).tolist()
        ([1.0, 2.0, 1.0], [1.0, 2.0, 2.0])
    """
    times = np.full(size // 2 + 1, 2.0)
    times[0] = 1
    times[size // 2] -= size % 2 == 0
    return times
