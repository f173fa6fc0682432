"""Parameters whose initial values are drawn where they will live.

Within :func:`undrawn`, models of the zoo are made without their initial values: each trainable parameter is hollow, NaN
in its shape that takes no memory, and remembers the call that draws it. Who shares a network out (``FSDP``) then lets
that call draw one parameter after the other and keeps of each what it is to hold: the bits are those of the whole, as
they come from one generator in the order of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from deep500.errors import InputError, NetworkError

if TYPE_CHECKING:
    from deep500.networks.protos import ReadableNetwork

Take: TypeAlias = Callable[[str, np.ndarray], Any]
"""A function that is handed initial values, each with its parameter's name, and keeps what it needs of them."""
Call: TypeAlias = tuple[str, Callable[[Take], Any]]
"""A call that makes a model: in words (of equal ones, equal values), and to make it again."""


class Undrawn(NamedTuple):
    """The initial value of a parameter, one of those that a call draws.

    Attributes:
        about: the call in words.
        run: makes the model again, hands every initial value over and lets go of it.
        name: that the parameter has there.
    """

    about: str
    run: Callable[[Take], Any]
    name: str

    def __str__(self) -> str:
        return f"{self.name} of {self.about}"


_LATER: ContextVar[bool] = ContextVar("deep500_undrawn", default=False)


@contextmanager
def undrawn() -> Iterator[None]:
    """Within it :func:`~deep500.networks.create` makes networks without initial values, for ``scheme=FSDP`` on PyTorch,
    whose ranks draw their rows: no rank ever holds all parameters. A recipe with that scheme does so by itself.

    Such a network can be edited, run by PyTorch's executor once it is shared out, and nothing else.

    Example:
        >>> from deep500.networks import create
        >>> with undrawn():
        ...     network = create("mlp", shape=(4,), hidden=(3,), classes=2)
        >>> network.parameters["fc1.weight"].value.shape, names_of_undrawn(network)[:2]
        ((3, 4), ['fc1.weight', 'fc1.bias'])
        >>> drawn = dict()
        >>> draw(network, drawn.__setitem__)
        >>> all((drawn[n] == p.value).all() for n, p in create("mlp", shape=(4,), hidden=(3,), classes=2).parameters.items())
        True
    """  # noqa: E501
    token = _LATER.set(True)
    try:
        yield
    finally:
        _LATER.reset(token)


def draws_later() -> bool:
    """Whether :func:`undrawn` is in force."""
    return _LATER.get()


def hollow(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """NaN in this shape, which takes no memory.

    Example:
        >>> array = hollow((1000, 1000), np.dtype("float32"))
        >>> array.shape, array.strides, float(array[3, 4])
        ((1000, 1000), (0, 0), nan)
    """
    return np.broadcast_to(np.array(np.nan, dtype), shape)


def names_of_undrawn(network: ReadableNetwork) -> list[str]:
    """The parameters without initial values."""
    return [name for name, parameter in network.parameters.items() if parameter.undrawn is not None]


def check_drawn(network: ReadableNetwork, what: str) -> None:
    """Raise InputError for parameters without initial values where something needs them.

    Args:
        network: whose parameters.
        what: needs them, for the message.
    """
    names = names_of_undrawn(network)
    if names:
        raise InputError(
            f"got parameter {names[0]!r}, whose initial value is not drawn, for {what}; expected values: make the "
            "network outside of undrawn(), or share it out first, by FSDP on PyTorch"
        )


def draw_for_good(network: ReadableNetwork, take: Take) -> None:
    """Like :func:`draw`, for who holds the values from here on: the network's parameters count as drawn."""
    draw(network, take)
    for parameter in network.parameters.values():
        parameter.undrawn = None


def draw(network: ReadableNetwork, take: Take) -> None:
    """Draw initial values one after the other.

    Args:
        network: stays as it is.
        take: is handed the value of each parameter that has none, by the network's name for it.

    Raises:
        NetworkError: a call that does not draw the same parameters a second time.
    """
    calls: dict[Call, dict[str, list[str]]] = {}
    for name, parameter in network.parameters.items():
        if parameter.undrawn is not None:
            about, run, original = parameter.undrawn
            calls.setdefault((about, run), {}).setdefault(original, []).append(name)
    for (about, run), missing in calls.items():

        def hand_over(key: str, array: np.ndarray, names: dict[str, list[str]] = missing) -> None:
            for name in names.pop(key, ()):
                take(name, array)

        run(hand_over)
        if missing:
            raise NetworkError(
                f"got no initial value of {sorted(missing)[:3]} from {about}; expected those of its first call: let a "
                "model be a function of its arguments and its seed alone"
            )
