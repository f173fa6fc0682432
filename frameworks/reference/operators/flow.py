"""Nodes that decide where gradients flow. Gradients are nodes here, so there is nothing to do."""

from __future__ import annotations

from typing import Any

from deep500.frameworks.reference.operators.table import op
from deep500.operators.registry import DOMAIN


@op("StopGradient", domain=DOMAIN)
def stop_gradient(x: Any) -> Any:
    """The value itself."""
    return x


@op("CustomGradient", domain=DOMAIN)
def custom_gradient(*inputs: Any, values: int, arguments: int, backward: Any) -> Any:
    """The values themselves."""
    return inputs[:values]
