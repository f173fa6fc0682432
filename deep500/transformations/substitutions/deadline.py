"""The seconds that optimizing a network may take, and which of them are kept for the check of its result.

Seconds are those of CPU time (`cost.clock`): what is found does not depend on what else the machine does.
"""

from __future__ import annotations

from collections.abc import Callable

from deep500.transformations.substitutions.cost import OutOfTime
from deep500.transformations.substitutions.cost.clock import cpu_seconds

Progress = Callable[[float, float, float, str], None]
"""Called with seconds so far, the best and the first predicted seconds (0: none yet), and what is being done."""
Stop = Callable[[], bool]
"""Asked now and then whether to end early."""
LAST = 5.0
"""Seconds, beside those of the check, to write and time what a search had when it was stopped."""
KEPT = 2.0
"""Most time of a result's check, in multiples of what computing the original's answers took: it computes as much, and
writes the constants in two precisions."""


class Deadline:
    """A budget of seconds that runs.

    Args:
        budget: seconds from now.
        progress: told what begins.
        stop: whether to come to an end early, with what there is.

    Attributes:
        budget: as given.
        kept: seconds at the end that belong to the check of the result.

    Example:
        >>> deadline = Deadline(60.0)
        >>> deadline.keep_for_check(5.0)
        >>> 49 < deadline.left() <= 50 < deadline.left(with_kept=True)
        True
    """

    def __init__(self, budget: float, progress: Progress | None = None, stop: Stop | None = None) -> None:
        self.budget, self.reserved, self._progress, self._stop = budget, 0.0, progress, stop
        self.began = cpu_seconds()
        self._prices = 0.0, 0.0

    def spent(self) -> float:
        """Seconds since the beginning."""
        return cpu_seconds() - self.began

    def keep_for_check(self, seconds: float) -> None:
        """Keep the time of a check, where the original's answers took some seconds."""
        self.reserved = KEPT * seconds

    def extend(self, seconds: float) -> None:
        """Let some seconds be left at least, however many are spent."""
        self.budget = max(self.budget, self.spent() + seconds)

    def left(self, with_kept: bool = False) -> float:
        """Seconds that are left, those kept for the check not counted unless asked for; 0 if none."""
        if self._stop is not None and self._stop():
            self.budget, self._stop = min(self.budget, self.spent() + self.reserved + LAST), None
        return max(self.budget - self.spent() - (0.0 if with_kept else self.reserved), 0.0)

    def check(self, what: str = "", needs: float = 0.0) -> None:
        """Say what begins.

        Args:
            what: words for it.
            needs: seconds that it and what must follow will take, as far as one can tell.

        Raises:
            OutOfTime: there is less left, and what is about to begin must not.
        """
        left = self.left(with_kept=True)
        if left <= needs:
            enough = f"about {needs:.2g} s" if needs else "some"
            raise OutOfTime(f"got {left:.2g} of {self.budget:g} s for {what}; expected {enough}; raise the budget")
        self.tell(what)

    def tell(self, what: str, best: float | None = None, first: float | None = None) -> None:
        """Report what is being done, with the best and the first price, if these are new."""
        if best is not None and first is not None:
            self._prices = best, first
        if self._progress is not None:
            self._progress(self.spent(), *self._prices, what)
