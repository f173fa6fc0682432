"""`Updates`: what a three-step optimizer remembers, where rules run parameter by parameter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

State: TypeAlias = dict[str, dict[str, Any]]
"""Slot -> parameter -> tensor."""


class Updates:
    """The third step of a `ThreeStepOptimizer` where rules run parameter by parameter.

    Attributes:
        refusal: why the last step ran so; "" if it did not.
        state: what is remembered between steps.
    """

    def __init__(self) -> None:
        self.refusal = "this backend compiles no updates"
        self.state: State = {}

    def apply(self, optimizer: Any, names: Sequence[str], gradients: Sequence[Any] | None = None) -> bool:
        """Update these parameters of the network, with these gradients or those of the last run.

        Returns:
            whether it was done; else the rule has to run parameter by parameter.
        """
        return False

    def run(self, optimizer: Any, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
        """Run the network forward and backward and update all parameters, in one; None where that is not possible."""
        return None

    def arrays(self, to_numpy: Callable[[Any], np.ndarray]) -> State:
        """Copies of the state as arrays: slot -> parameter -> array."""
        return {slot: {name: np.array(to_numpy(t)) for name, t in some.items()} for slot, some in self.state.items()}
