"""Checks of an optimizer's saved state, and how much of it there will be."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from deep500.errors import InputError, nearest
from deep500.training.optimizers.counting import COUNT
from deep500.training.optimizers.updates import Updates


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
        if name not in names and (not key.startswith(COUNT) or name not in parameters):
            raise InputError(
                f"got optimizer state {key!r}; expected '<slot>/<parameter>': {nearest(name, names)} "
                "Load the state of the same network"
            )
        if key.startswith(COUNT):
            continue
        shape = optimizer.slot_shape(slot, name, parameters[name].value.shape)
        if np.shape(array) not in (shape, ()):
            raise InputError(
                f"optimizer state {key!r}: got shape {np.shape(array)}; expected {shape}: load the state of the "
                "same network"
            )
        yield slot, name, np.asarray(array)


def arrays_of_training(optimizer: Any) -> int:
    """How many arrays of its size training holds for a parameter: itself, its gradient and what an update remembers.

    Args:
        optimizer: by an update rule; one update of a single element is made in a copy of it.

    Example:
        >>> from deep500.frameworks import reference
        >>> from deep500.networks import add_loss, create
        >>> from deep500.training.optimizers import AdamOptimizer, GradientDescent
        >>> executor = reference.from_model(add_loss(create("mlp", shape=(4,), classes=2)))
        >>> arrays_of_training(GradientDescent(executor)), arrays_of_training(AdamOptimizer(executor))
        (2, 4)
    """
    if not (names := optimizer.parameter_names()):
        return 2
    trial, name = copy.copy(optimizer), names[0]
    trial.updates, trial.coming, trial.steps = Updates(), optimizer.next_numbers(), 1
    dtype = optimizer.network.parameters[name].value.dtype
    trial.update_rule(*(optimizer.network.to_tensor(np.ones(1, dtype)) for _ in range(2)), name)
    return 2 + sum(map(bool, trial.state.values()))
