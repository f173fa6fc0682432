"""`Stream`: the random numbers of one executor, out of generators that belong to the whole process."""

from __future__ import annotations

from typing import ClassVar

import torch


class Stream:
    """Of several executors that were seeded, such as those of ranks that are threads, each goes on where it stopped,
    whoever has drawn since. One that never was takes what comes.

    Args:
        device: on which its executor draws.

    Attributes:
        drawing: the stream that the generators are in.

    Example:
        >>> first, second = Stream(torch.device("cpu")), Stream(torch.device("cpu"))
        >>> first.seed(1); alone = torch.rand(2).tolist()
        >>> first.seed(1); begin = torch.rand(1).tolist()
        >>> second.seed(2); other = torch.rand(5)
        >>> first.take(); begin + torch.rand(1).tolist() == alone
        True
    """

    drawing: ClassVar[Stream | None] = None

    def __init__(self, device: torch.device) -> None:
        self.device, self.seeded = device, False
        self._state: tuple[torch.Tensor, torch.Tensor | None] | None = None

    def seed(self, number: int) -> None:
        """Begin anew."""
        self.take()
        self.seeded = True
        torch.manual_seed(number)

    def take(self) -> None:
        """Let the generators go on with this stream."""
        before = Stream.drawing
        if before is self:
            return
        if before is not None:
            before._state = before._now()
        Stream.drawing = self
        if self._state is not None:
            torch.set_rng_state(self._state[0])
            if self._state[1] is not None:
                torch.cuda.set_rng_state(self._state[1], self.device)

    def _now(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        cuda = self.device.type == "cuda"
        return torch.get_rng_state(), torch.cuda.get_rng_state(self.device) if cuda else None
