"""`Exchange`: what stands between an optimizer and the world that it trains in.

A step asks it five times, in this order (:meth:`deep500.training.optimizers.Optimizer.step`)::

    prepare   -> after_prepare()                 parameters are ready for the forward run
    backprop  -> backprop(inputs)                a loss becomes gradients
    scaling   -> all_finite(finite)              with loss scaling: does every process update?
    update    -> update()                        gradients become new parameters
    modified  -> agreed_gradients(names, ...)    those of this process become those of all, inside of the update

By itself an optimizer is its own exchange, and its world is one process. A scheme
(:class:`deep500.distributed.DistributedOptimizer`) supplies itself to the optimizer that it wraps: ``base.exchange``.
Whoever wants to see what passes stands in between likewise (:mod:`deep500.compare.replays`).
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np


@contextmanager
def undone(undo: Callable[[], object]) -> Iterator[None]:
    """Call ``undo`` when the context is left, also by an error; not if it is collected with what holds it.

    A trainer keeps the evaluation open after its last epoch, so that the network is the one that was judged. Nobody
    who still has the network may get another one because the trainer is gone.

    Example:
        >>> with undone(lambda: print("undone")):
        ...     print("inside")
        inside
        undone
    """
    try:
        yield
    except GeneratorExit:
        raise
    except BaseException:
        undo()
        raise
    undo()


class Exchange(abc.ABC):
    """Between an optimizer and its world; every method is that of one process unless it is overridden.

    Attributes:
        rank: number of this process among those that train together.
        exchanges_gradients: whether :meth:`agreed_gradients` does anything; backends then make no single call
            of backward and update.
        owned: names of the parameters that this process updates; None: all.
        passes_steps: whether its backprop and update are the optimizer's own, so that a backend may make them one call.
    """

    rank: int = 0
    exchanges_gradients: bool = False
    owned: frozenset[str] | None = None
    passes_steps: bool = False

    @abc.abstractmethod
    def backprop(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Forward and backward over one batch; return the outputs."""

    @abc.abstractmethod
    def update(self) -> None:
        """Apply the gradients that :meth:`backprop` left behind."""

    def agreed_gradients(self, names: Sequence[str], gradients: Sequence[Any]) -> Sequence[Any]:
        """Return what is applied instead of this process's gradients, before clipping and weight decay."""
        return gradients

    def transformed(self, transform: Any, names: Sequence[str], gradients: Sequence[Any]) -> Sequence[Any]:
        """The gradients after a transform of all of them together, of which this process may hold parts."""
        return list(transform(names, gradients))

    def all_finite(self, finite: bool) -> bool:
        """Whether the gradients of all processes are finite, if it is known of this one's."""
        return finite

    def after_prepare(self) -> None:  # noqa: B027 - optional
        """Hook between the preparation of parameters and the forward run."""

    def totals(self, values: np.ndarray) -> np.ndarray:
        """The sum of float64 values over all processes."""
        return values

    def evaluation(self) -> AbstractContextManager[None]:
        """Within it the network holds the parameters that a validation judges."""
        return nullcontext()


class Relay(Exchange):
    """Stands between an optimizer and its exchange, and passes everything on; a subclass watches, or answers itself.

    Args:
        exchange: what comes after it.

    Example:
        >>> from deep500.frameworks import reference
        >>> from deep500.networks import add_loss, create
        >>> from deep500.training.optimizers import GradientDescent
        >>> class Largest(Relay):
        ...     exchanges_gradients = True
        ...     def agreed_gradients(self, names, gradients):
        ...         self.largest = max(float(abs(gradient).max()) for gradient in gradients)
        ...         return super().agreed_gradients(names, gradients)
        >>> optimizer = GradientDescent(reference.from_model(add_loss(create("mlp", shape=(4,), classes=2))))
        >>> optimizer.exchange = watch = Largest(optimizer.exchange)
        >>> outputs = optimizer.step({"input": np.ones((2, 4), "float32"), "label": np.array([0, 1])})
        >>> watch.largest > 0
        True
    """

    def __init__(self, exchange: Exchange) -> None:
        self.beyond = exchange
        self.rank, self.owned = exchange.rank, exchange.owned
        self.exchanges_gradients = self.exchanges_gradients or exchange.exchanges_gradients

    def backprop(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return self.beyond.backprop(inputs)

    def update(self) -> None:
        self.beyond.update()

    def agreed_gradients(self, names: Sequence[str], gradients: Sequence[Any]) -> Sequence[Any]:
        return self.beyond.agreed_gradients(names, gradients)

    def transformed(self, transform: Any, names: Sequence[str], gradients: Sequence[Any]) -> Sequence[Any]:
        return self.beyond.transformed(transform, names, gradients)

    def all_finite(self, finite: bool) -> bool:
        return self.beyond.all_finite(finite)

    def after_prepare(self) -> None:
        self.beyond.after_prepare()

    def totals(self, values: np.ndarray) -> np.ndarray:
        return self.beyond.totals(values)

    def evaluation(self) -> AbstractContextManager[None]:
        return self.beyond.evaluation()
