"""Dynamic loss scaling: float16 gradients that would vanish are computed larger, and divided again in float32.

A network that :func:`deep500.transformations.mixed_precision.mixed_precision` made for float16 has the input
:data:`SCALE` and the value :data:`SCALED`, their product; its gradients are those of the latter. An optimizer divides
them by the scale before anything else looks at them. Micikevicius et al. 2018, arXiv 1710.03740, section 3.2; rule and
names of the numbers are those of PyTorch's ``GradScaler``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from deep500.errors import InputError
from deep500.networks.execution.bound import BoundNetwork
from deep500.networks.losses import SCALE as SCALE
from deep500.networks.losses import SCALED as SCALED
from deep500.tensors import total


class LossScaling:
    """The scale, and when it changes: an update whose gradients are not finite is left out, and the scale shrinks;
    after ``growth_interval`` updates in a row that were finite it grows.

    To look costs one wait for the device in every step, as an update that is left out must be known before the next.

    Args:
        init_scale: first scale, > 0; powers of two change no digit of a gradient.
        growth_factor: > 1.
        backoff_factor: in (0, 1).
        growth_interval: number of updates, at least 1.

    Attributes:
        scale: at present.
        good: finite updates since the scale changed.
        skipped: updates left out so far.

    Raises:
        InputError: a number out of its range.

    Example:
        >>> scaling = LossScaling(8.0, growth_interval=2)
        >>> [scaling.note(finite) or scaling.scale for finite in (False, True, True)]
        [4.0, 4.0, 8.0]
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
    ) -> None:
        for name, value, fits in (
            ("init_scale > 0", init_scale, 0 < init_scale < math.inf),
            ("growth_factor > 1", growth_factor, 1 < growth_factor < math.inf),
            ("backoff_factor in (0, 1)", backoff_factor, 0 < backoff_factor < 1),
            ("growth_interval >= 1", growth_interval, growth_interval >= 1),
        ):
            if not fits:
                raise InputError(f"got {value!r}; expected {name}: choose another number")
        self.scale, self.growth_factor, self.backoff_factor = float(init_scale), growth_factor, backoff_factor
        self.growth_interval, self.good, self.skipped = growth_interval, 0, 0

    def passes(
        self, network: BoundNetwork, gradients: Sequence[str], agree: Callable[[bool], bool] | None = None
    ) -> bool:
        """Whether the gradients, by name, are all finite; the scale moves accordingly.

        ``agree`` tells from this rank's answer that of all ranks, whose scales stay the same so.
        """
        # zero times a finite number is 0, else NaN; the sum stays on the device, one number is waited for
        with np.errstate(invalid="ignore"):
            zero = sum(total(gradient * 0) for gradient in network.fetch_tensors(gradients))
        finite = bool(network.to_numpy(zero) == 0)
        finite = finite if agree is None else agree(finite)
        self.note(finite)
        return finite

    def note(self, finite: bool) -> None:
        """Take in whether an update's gradients were finite."""
        if not finite:
            self.scale, self.good, self.skipped = self.scale * self.backoff_factor, 0, self.skipped + 1
            return
        self.good += 1
        if self.good == self.growth_interval:
            self.scale, self.good = self.scale * self.growth_factor, 0

    def state(self) -> dict[str, Any]:
        """From which :meth:`load_state` goes on; JSON can hold it."""
        return {"scale": self.scale, "good": self.good, "skipped": self.skipped}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state`."""
        self.scale, self.good, self.skipped = float(state["scale"]), int(state["good"]), int(state["skipped"])

    def __repr__(self) -> str:
        return f"LossScaling({self.scale:g})"
