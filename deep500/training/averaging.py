"""Exponential moving average of a network's weights, by which it is judged instead of its newest ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from deep500.errors import InputError
from deep500.networks.execution.bound import BoundNetwork
from deep500.networks.execution.executor import GraphExecutor


class WeightAverage:
    """``a <- decay a + (1 - decay) w`` after every update; ``a = w`` after the first.

    Polyak and Juditsky 1992 average the iterates; the exponential form is that of TensorFlow's
    ``ExponentialMovingAverage`` and of PyTorch's ``AveragedModel`` with ``get_ema_multi_avg_fn``, to which this is
    equal. As it begins with the weights after the first update, and not with zeros, there is no bias to correct; the
    early weights count for ``decay ** t`` after t further updates.

    Trainable parameters are averaged; running statistics are not (they are averages already), and a validation uses
    the network's present ones, as with ``AveragedModel(use_buffers=False)``.

    Args:
        executor: whose network's weights are averaged.
        decay: in (0, 1): 0.999 remembers about 1000 updates.
        parts: an optimizer whose ranks hold parts of weights (``joins_parts``), which are averaged; all ranks then call
            :meth:`evaluation` and :meth:`state` together.

    Attributes:
        count: updates taken in so far.

    Raises:
        InputError: a decay out of its range.

    Example:
        >>> from deep500.frameworks import reference
        >>> from deep500.networks import add_loss, create
        >>> executor = reference.from_model(add_loss(create("mlp", shape=(4,), hidden=(3,), classes=2)))
        >>> average = WeightAverage(executor, 0.9)
        >>> average.update()
        >>> bias = executor.network.fetch_tensors(["fc2.bias"])[0]
        >>> executor.network.feed_tensor("fc2.bias", bias + 1)
        >>> average.update()
        >>> with average.evaluation():
        ...     [f"{value:.3f}" for value in executor.network.fetch_tensors(["fc2.bias"])[0] - bias]
        ['0.100', '0.100']
    """

    def __init__(self, executor: GraphExecutor, decay: float, parts: Any = None) -> None:
        if isinstance(decay, bool) or not isinstance(decay, (int, float)) or not 0 < decay < 1:
            raise InputError(f"got ema={decay!r}; expected a number between 0 and 1, such as 0.999: choose another")
        self.executor, self.decay, self.count = executor, float(decay), 0
        self._averages: dict[str, Any] = {}
        self._parts = parts

    @property
    def network(self) -> BoundNetwork:
        """The executor's."""
        return self.executor.network

    def update(self, fetch: Callable[[Sequence[str]], list[Any]] | None = None) -> None:
        """Take in the network's present weights, or those that ``fetch(names)`` returns; waits for no device."""
        network, old, averages = self.network, self._averages, dict[str, Any]()
        fetch = network.fetch_tensors if fetch is None else fetch
        names = network.trainable() if self._parts is None else self._parts.names_here()
        known = [name for name in names if name in old]
        fresh = [name for name in names if name not in old]  # all at first, later those of an edit
        if known:
            terms = [[old[name] for name in known], fetch(known)]
            averages.update(zip(known, network.weighted_sum(terms, [self.decay, 1 - self.decay]), strict=True))
        if fresh:
            averages.update(zip(fresh, network.weighted_sum([fetch(fresh)], [1.0]), strict=True))
        self._averages = averages
        self.count += 1

    @contextmanager
    def evaluation(self, in_parts: bool = False) -> Iterator[None]:
        """Inside, the network holds the averages (before the first update its own weights).

        Args:
            in_parts: whether it holds this rank's parts, now and inside.
        """
        network, names = self.network, list(self._averages)
        before = network.weighted_sum([network.fetch_tensors(names)], [1.0]) if names else []
        put = network.feed_tensor if in_parts else network.assign_tensor
        if in_parts:
            for name, tensor in self._averages.items():
                put(name, tensor)
        else:
            self.apply()
        try:
            yield
        finally:
            for name, tensor in zip(names, before, strict=True):
                put(name, tensor)

    def apply(self) -> None:
        """Overwrite the network's weights with their averages, for good: to export them, say."""
        network, whole = self.network, self._whole()
        copies = network.weighted_sum([list(whole.values())], [1.0]) if whole else []
        for name, tensor in zip(whole, copies, strict=True):
            network.assign_tensor(name, tensor)

    def state(self, in_turn: bool = False) -> dict[str, Any]:
        """The averages as arrays by parameter, and their ``"count"``.

        Args:
            in_turn: whether averages of which ranks hold parts are each gathered when it is read
                (:class:`~deep500.tensors.LaterArray`).
        """
        if in_turn and self._parts is not None:
            arrays = {f"weight/{n}": array for n, array in self._parts.joined_in_turn(self._averages).items()}
        else:
            arrays = {f"weight/{n}": np.array(self.network.to_numpy(t)) for n, t in self._whole().items()}
        return {"count": np.asarray(self.count, np.int64), **arrays}

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from :meth:`state`; raises InputError if it is of another network."""
        arrays = {name.removeprefix("weight/"): array for name, array in state.items() if name.startswith("weight/")}
        parameters = self.network.parameters
        odd = [n for n, a in arrays.items() if n not in parameters or parameters[n].value.shape != a.shape]
        if "count" not in state or odd:
            raise InputError(
                f"got averages that do not fit ({odd[:3] or 'no count'}); expected those of this network's parameters: "
                "load what state() returned for it"
            )
        self.count = int(state["count"])
        self._averages = {}
        for name, array in arrays.items():
            tensors = {name: self.network.to_tensor(np.asarray(array))}
            self._averages.update(tensors if self._parts is None else self._parts.divided(tensors))

    def _whole(self) -> dict[str, Any]:
        return self._averages if self._parts is None else self._parts.joined(self._averages)
