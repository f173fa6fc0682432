"""How many updates each parameter has had, where that is not how many the optimizer has made."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

COUNT = "own_steps/"
"""Before a parameter's name, the key of its count in a state."""


class OwnCounts:
    """OwnCounts of parameters that began to train later than the optimizer, or paused: ``torch.optim`` counts for each.

    Rules that depend on ``steps``, such as corrections of a bias, see the parameter's there.

    Attributes:
        late: by how many updates a parameter is behind the optimizer, without those that are not.

    Example:
        >>> counts = OwnCounts()
        >>> counts.change(["head"], 0)
        >>> counts.change(["head", "backbone"], 3)
        >>> counts.late, counts.arrays(5)
        ({'backbone': 3}, {'own_steps/backbone': array(2)})
    """

    def __init__(self) -> None:
        self.late: dict[str, int] = {}
        self._names: frozenset[str] | None = None
        self._paused: dict[str, int] = {}  # counts of those that do not train now

    def change(self, names: Collection[str], steps: int) -> None:
        """Note which parameters train after this many updates."""
        now, before = frozenset(names), self._names
        self._names = now
        if before is None:
            return
        for name in before - now:
            self._paused[name] = steps - self.late.pop(name, 0)
        for name in now - before:
            if behind := steps - self._paused.pop(name, 0):
                self.late[name] = behind

    def arrays(self, steps: int) -> dict[str, np.ndarray]:
        """The part of a state that these are."""
        counts = {**self._paused, **{name: steps - behind for name, behind in self.late.items()}}
        return {f"{COUNT}{name}": np.asarray(count, np.int64) for name, count in counts.items()}

    def load(self, state: Mapping[str, np.ndarray], steps: int) -> None:
        """Go on from a state with :meth:`arrays`; whom it does not name has the optimizer's count."""
        counts = {key.removeprefix(COUNT): int(count) for key, count in state.items() if key.startswith(COUNT)}
        training = self._names or frozenset()
        self.late = {name: steps - count for name, count in counts.items() if name in training and count != steps}
        self._paused = {name: count for name, count in counts.items() if name not in training}
