"""`Replica`: an optimizer with this rank's copy of the network, in the pieces that schemes exchange."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from deep500.distributed.buckets import Buckets
from deep500.errors import InputError, nearest
from deep500.training.optimizers.base import Optimizer


class Replica(Optimizer):
    """An optimizer around this rank's own, and parameters as live tensors, as arrays and in buckets.

    Args:
        base_optimizer: computes gradients and updates; hyper-parameters are its.
    """

    around: ClassVar[Mapping[str, Callable[..., Any]]] = {}

    def __init__(self, base_optimizer: Optimizer) -> None:
        self.base_optimizer = base_optimizer
        super().__init__(base_optimizer.executor, base_optimizer.loss)
        self.batch_weights = base_optimizer.batch_weights
        self.loss_scaling, self.accumulate = base_optimizer.loss_scaling, base_optimizer.accumulate
        self._buckets_of: dict[Hashable, Buckets] = {}

    # -- the base optimizer's -----------------------------------------------------------------------------------------
    def backprop(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """This rank's forward and backward run."""
        return self.base_optimizer.backprop(inputs)

    def update(self) -> None:
        """The base optimizer's, with the gradients of this rank's last run."""
        self.base_optimizer.update()

    @property
    def passes_steps(self) -> bool:  # type: ignore[override]
        """Whether the scheme leaves both to the base optimizer."""
        return type(self).backprop is Replica.backprop and type(self).update is Replica.update

    @property
    def judges_other(self) -> bool:  # type: ignore[override]
        """Whether the base optimizer does."""
        return self.base_optimizer.judges_other

    def judged_tensors(self, names: Sequence[str]) -> list[Any]:
        """The base optimizer's."""
        return self.base_optimizer.judged_tensors(names)

    @property
    def hyperparameters(self) -> tuple[str, ...]:  # type: ignore[override]
        """Those of the base optimizer."""
        return self.base_optimizer.hyperparameters

    def set_parameter(self, name: str, value: Any) -> None:
        """Change one of the base optimizer's."""
        self.base_optimizer.set_parameter(name, value)

    def get_parameters(self) -> dict[str, Any]:
        """The base optimizer's."""
        return self.base_optimizer.get_parameters()

    def initial_parameter(self, name: str) -> Any:
        """The base optimizer's."""
        return self.base_optimizer.initial_parameter(name)

    # -- parameters ---------------------------------------------------------------------------------------------------
    def parameters(self) -> list[Any]:
        """Live tensors of the parameters that the loss depends on."""
        return list(self.network.fetch_tensors(self.parameter_names()))

    def set_parameters(self, tensors: Sequence[Any]) -> None:
        """Give those parameters new tensors."""
        for name, tensor in zip(self.parameter_names(), tensors, strict=True):
            self.network.assign_tensor(name, tensor)

    def arrays(self, tensors: Sequence[Any]) -> list[np.ndarray]:
        """Tensors as arrays, sharing their memory where the framework allows: read them, do not write."""
        to_numpy = self.network.to_numpy
        return [to_numpy(tensor) for tensor in tensors]

    def tensors(self, arrays: Sequence[np.ndarray]) -> list[Any]:
        """Arrays as new tensors of the framework, copied."""
        to_tensor = self.network.to_tensor
        return [to_tensor(array) for array in arrays]

    def laid_out(self, what: Hashable, arrays: Sequence[np.ndarray]) -> Buckets:
        """Buckets for arrays that are exchanged again and again, made once: allocating them anew in every step can cost
        more than the sums. What they hold is overwritten by the next exchange under the same name."""
        buckets = self._buckets_of.get(what)
        if buckets is None or not buckets.fits(arrays):
            buckets = self._buckets_of[what] = Buckets.like(arrays)
        return buckets

    def all_arrays(self) -> list[np.ndarray]:
        """Every floating-point parameter that has a value, running statistics included, as an array."""
        return self.arrays(self.network.fetch_tensors(self.floating()))

    def set_all(self, arrays: Sequence[np.ndarray]) -> None:
        """Overwrite what :meth:`all_arrays` returned."""
        self.feed_arrays(self.floating(), arrays)

    def made_up(self, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Zeros like the inputs, two samples of them: some frameworks refuse to normalise a batch of one. Labels are
        such that they count."""
        arrays = {n: v if isinstance(v, np.ndarray) else self.network.to_numpy(v) for n, v in inputs.items()}
        zeros = {name: np.zeros((2, *array.shape[1:]), array.dtype) for name, array in arrays.items()}
        return self.batch_weights.counting(zeros)

    def floating(self) -> list[str]:
        """Names of the floating-point parameters that have values, running statistics included."""
        known = self.network.parameters.items()
        return [name for name, p in known if p.value.dtype.kind not in "biuOSU" and p.undrawn is None]

    def running_statistics(self) -> list[str]:
        """Those of them that are not trained: running statistics."""
        return [name for name in self.floating() if not self.network.parameters[name].trainable]

    @contextmanager
    def same_statistics(self) -> Iterator[None]:
        """Leave running statistics as they were before what runs inside the block."""
        names = self.running_statistics()
        before = [np.array(array) for array in self.arrays(self.network.fetch_tensors(names))]
        yield
        self.feed_arrays(names, before)

    def feed_arrays(self, names: Sequence[str], arrays: Sequence[np.ndarray]) -> None:
        """Overwrite parameters."""
        for name, array in zip(names, arrays, strict=True):
            self.network.feed_tensor(name, array)

    @contextmanager
    def communicating(self) -> Iterator[None]:
        """Report what runs inside the block to listeners as communication."""
        events = self.executor.events
        if events.before_communication:
            events.emit(events.before_communication, self)
        yield
        if events.after_communication:
            events.emit(events.after_communication, self)

    def slots(self, slot: str, state: Mapping[str, np.ndarray], shaped: bool = True) -> dict[str, np.ndarray]:
        """Return what a state holds under ``"<slot>/<parameter>"``, by parameter, as copies.

        Raises:
            InputError: no such parameter, or (``shaped``) not of its shape.
        """
        parameters, slots = self.network.parameters, {}
        for key, array in state.items():
            kind, _, name = key.partition("/")
            if kind != slot:
                continue
            if name not in parameters:
                raise InputError(
                    f"got {slot} of {name!r}; expected a parameter: {nearest(name, parameters)} Load the state of the "
                    "same network"
                )
            want = parameters[name].value.shape
            if shaped and array.shape != want:
                raise InputError(
                    f"got {slot} of {name!r} with shape {array.shape}; expected {want}: load the state of the same "
                    "network"
                )
            slots[name] = np.array(array)
        return slots
