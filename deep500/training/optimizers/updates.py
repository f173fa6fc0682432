"""`Updates`: what a three-step optimizer remembers, where rules run parameter by parameter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

State: TypeAlias = dict[str, dict[str, Any]]
"""State of an optimizer: slot -> parameter -> tensor."""


class Updates:
    """The third step of a `ThreeStepOptimizer` where rules run parameter by parameter, and the state.

    Attributes:
        refusal: why the last step ran so; "" if it did not.
    """

    def __init__(self) -> None:
        self.refusal = "this backend compiles no updates"
        self.state: State = {}

    def apply(self, optimizer: Any, names: Sequence[str], gradients: Sequence[Any] | None = None) -> bool:
        """Update these parameters, with these gradients or those of the last run; False if their rule has to run."""
        return False

    def run(self, optimizer: Any, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
        """Run the network and update all parameters, in one; None where that is not possible."""
        return None

    def arrays(self, to_numpy: Callable[[Any], np.ndarray]) -> State:
        """Copies of the state as arrays."""
        return {slot: {name: np.array(to_numpy(t)) for name, t in some.items()} for slot, some in self.state.items()}
