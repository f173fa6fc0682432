"""`Traffic`: how much a rank communicated, by kind of call."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class CallCount:
    """One kind of call.

    Attributes:
        calls: how often.
        messages: arrays handed in (a neighbour exchange hands in several).
        payload_bytes: bytes of tensors.
        control_bytes: bytes of bookkeeping: weights, lengths, agreements.
        seconds: spent inside, waiting included.
    """

    calls: int = 0
    messages: int = 0
    payload_bytes: int = 0
    control_bytes: int = 0
    seconds: float = 0.0


class Traffic:
    """Counters of one rank, per kind of call. They count what was handed in, not what a library makes of it on a wire.

    Args:
        whole: of the ranks that these are a part of; it counts the same calls.

    Example:
        >>> traffic = Traffic()
        >>> traffic.add("all_reduce", 400, 4)
        >>> traffic.payload_bytes, traffic.messages
        (400, 1)
    """

    def __init__(self, whole: Traffic | None = None) -> None:
        self.kinds: dict[str, CallCount] = {}
        self.whole = whole

    def add(self, kind: str, payload: int, control: int, messages: int = 1) -> None:
        """Count one call, also in the whole."""
        if self.whole is not None:
            self.whole.add(kind, payload, control, messages)
        count = self.kinds.setdefault(kind, CallCount())
        count.calls += 1
        count.messages += messages
        count.payload_bytes += payload
        count.control_bytes += control

    def wait(self, kind: str, seconds: float) -> None:
        """Add time spent in calls of a kind."""
        if self.whole is not None:
            self.whole.wait(kind, seconds)
        self.kinds.setdefault(kind, CallCount()).seconds += seconds

    @property
    def payload_bytes(self) -> int:
        """Bytes of tensors, all kinds together."""
        return sum(count.payload_bytes for count in self.kinds.values())

    @property
    def messages(self) -> int:
        """Arrays handed in, all kinds together."""
        return sum(count.messages for count in self.kinds.values())

    @property
    def seconds(self) -> float:
        """Time spent communicating, waiting included."""
        return sum(count.seconds for count in self.kinds.values())

    def reset(self) -> None:
        """Reset to 0."""
        self.kinds.clear()

    def as_dict(self) -> dict[str, Any]:
        """The counters as JSON can hold them."""
        return {kind: asdict(count) for kind, count in sorted(self.kinds.items())}
