"""One protocol for everything that wants to know what a loop is doing.

A listener derives from :class:`Event` and overrides what it needs. The regions nest::

    run > epoch > batch > {io, forward, backward, forward_backward, communication, update}
          epoch > validation > validation_batch
                         io > collection > inference

Every region has a ``before_`` and an ``after_`` hook that gets one argument: the :class:`deep500.training.run.Run`
(or whatever object the loop publishes; executors publish themselves). An executor that cannot tell forward from
backward (one compiled graph does both) reports ``forward_backward`` alone, so that no time is invented. A
task that makes its data by acting reports that as ``collection``, and what the network takes there as ``inference``.

Requirement of the seam: a hook without listeners costs one attribute look-up and one test of an empty tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

REGIONS = (
    "run",
    "epoch",
    "validation",
    "validation_batch",
    "batch",
    "io",
    "collection",
    "inference",
    "forward",
    "backward",
    "forward_backward",
    "communication",
    "update",
)
HOOKS = tuple(f"{when}_{region}" for region in REGIONS for when in ("before", "after"))


class StopTraining(Exception):
    """Raised by a listener to end the run cleanly after the current batch, in a recipe after the epoch: a request."""


class Event:
    """A listener; every hook does nothing until overridden."""

    def before_run(self, run: Any) -> None: ...
    def after_run(self, run: Any) -> None: ...
    def before_epoch(self, run: Any) -> None: ...
    def after_epoch(self, run: Any) -> None: ...
    def before_validation(self, run: Any) -> None: ...
    def after_validation(self, run: Any) -> None: ...
    def before_validation_batch(self, run: Any) -> None: ...
    def after_validation_batch(self, run: Any) -> None: ...
    def before_batch(self, run: Any) -> None: ...
    def after_batch(self, run: Any) -> None: ...
    def before_io(self, run: Any) -> None: ...
    def after_io(self, run: Any) -> None: ...
    def before_collection(self, source: Any) -> None: ...
    def after_collection(self, source: Any) -> None: ...
    def before_inference(self, source: Any) -> None: ...
    def after_inference(self, source: Any) -> None: ...
    def before_forward(self, source: Any) -> None: ...
    def after_forward(self, source: Any) -> None: ...
    def before_backward(self, source: Any) -> None: ...
    def after_backward(self, source: Any) -> None: ...
    def before_forward_backward(self, source: Any) -> None: ...
    def after_forward_backward(self, source: Any) -> None: ...
    def before_communication(self, source: Any) -> None: ...
    def after_communication(self, source: Any) -> None: ...
    def before_update(self, source: Any) -> None: ...
    def after_update(self, source: Any) -> None: ...


class Events:
    """A set of listeners, sorted by hook, so that ``events.before_batch`` is a tuple of just those who listen.

    Use: ``if events.before_batch: events.emit(events.before_batch, run)``.

    Example:
        >>> class Count(Event):
        ...     n = 0
        ...     def after_batch(self, run): self.n += 1
        >>> count = Count(); events = Events([count])
        >>> events.emit(events.after_batch, None); count.n, events.before_batch
        (1, ())
    """

    __slots__ = ("listeners", *HOOKS)

    def __init__(self, listeners: Iterable[Event] = ()) -> None:
        self.listeners = tuple(listeners)
        for hook in HOOKS:
            overriding = (listener for listener in self.listeners if _overrides(listener, hook))
            setattr(self, hook, tuple(getattr(listener, hook) for listener in overriding))

    def __getattr__(self, name: str) -> tuple[Callable[[Any], None], ...]:  # only reached when a slot is missing
        raise AttributeError(f"got event hook {name!r}; expected one of {', '.join(HOOKS)}")

    @staticmethod
    def emit(hooks: tuple[Callable[[Any], None], ...], source: Any) -> None:
        """Call each hook in the order in which the listeners were given."""
        for hook in hooks:
            hook(source)


def _overrides(listener: Any, hook: str) -> bool:
    hooks = getattr(type(listener), hook, None)
    return (hooks is not None and hooks is not getattr(Event, hook)) or hook in getattr(listener, "__dict__", {})


SILENT = Events()
"""Events of loops without listeners."""
