"""Sequences are Python lists, an empty optional is None."""

from __future__ import annotations

from typing import Any

import numpy as np

from deep500.frameworks.reference.operators.table import OPS
from deep500.networks.execution.sequences import enter_sequences


def _number(position: Any, default: int = 0) -> int:
    return default if position is None else int(np.ravel(position)[0])


enter_sequences(OPS, _number, np.asarray)
