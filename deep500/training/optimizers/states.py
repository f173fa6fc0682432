"""Checks of an optimizer's saved state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from deep500.errors import InputError, nearest


def checked_slots(optimizer: Any, state: Mapping[str, np.ndarray]) -> Iterator[tuple[str, str, np.ndarray]]:
    """For :meth:`load_state_dict`: slot, parameter and array of each entry; a scalar stands for a full array.

    Raises:
        InputError: no step, no such parameter, or not of its shape.
    """
    if "step" not in state:
        raise InputError("got optimizer state without 'step'; expected what state_dict() returned: load that")
    names, parameters = set(optimizer.parameter_names()), optimizer.network.parameters
    if absent := sorted(optimizer.numbers.keys() - state.keys()):
        raise InputError(
            f"got optimizer state without {absent[0]!r}; expected that of {type(optimizer).__name__}: load "
            "the state of the same optimizer"
        )
    for key, array in state.items():
        if key == "step" or key in optimizer.numbers:
            continue
        slot, _, name = key.partition("/")
        if name not in names:
            raise InputError(
                f"got optimizer state {key!r}; expected '<slot>/<parameter>': {nearest(name, names)} "
                "Load the state of the same network"
            )
        shape = optimizer.slot_shape(slot, name, parameters[name].value.shape)
        if np.shape(array) not in (shape, ()):
            raise InputError(
                f"optimizer state {key!r}: got shape {np.shape(array)}; expected {shape}: load the state of the "
                "same network"
            )
        yield slot, name, np.asarray(array)
