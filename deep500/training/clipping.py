"""Gradient transforms that need all gradients at once, for an optimizer's ``gradient_transform``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from deep500.errors import InputError
from deep500.tensors import total


class ClipGradientNorm:
    """Scale all gradients so that their common Euclidean norm is at most ``max_norm`` (Pascanu et al. 2013).

    ``g <- g * min(1, max_norm / (|g| + 1e-6))``, as PyTorch's ``clip_grad_norm_``. It is plain arithmetic on the
    framework's tensors: nothing waits for the device.

    Args:
        max_norm: the largest norm that is left as it is, > 0.

    Example:
        >>> import numpy as np
        >>> clipped = ClipGradientNorm(5.0)(["a", "b"], [np.array([6.0]), np.array([8.0])])
        >>> [g.round(3).tolist() for g in clipped]
        [[3.0], [4.0]]
    """

    def __init__(self, max_norm: float) -> None:
        if not 0 < max_norm < math.inf:
            raise InputError(f"got max_norm={max_norm!r}; expected a finite number > 0: choose another")
        self.max_norm = float(max_norm)

    def __call__(self, names: Sequence[str], gradients: Sequence[Any]) -> list[Any]:
        """The gradients, scaled."""
        if not gradients:
            return []
        factor = self.factor(sum(total(gradient * gradient) for gradient in gradients) ** 0.5)
        return [gradient * factor for gradient in gradients]

    def factor(self, norm: Any) -> Any:
        """Factor of gradients that have this norm together."""
        ratio = (norm + 1e-6) / self.max_norm
        excess = ((ratio - 1) + abs(ratio - 1)) / 2  # max(ratio - 1, 0), and exactly 0 where nothing is to be done
        return 1 / (1 + excess)

    def __repr__(self) -> str:
        return f"ClipGradientNorm({self.max_norm:g})"
