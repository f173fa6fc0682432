"""`BoundNetwork`: a network whose parameters are the live tensors of an executor."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np

from deep500.errors import InputError, UnsupportedOperator
from deep500.networks.drawing import check_drawn, hollow, names_of_undrawn
from deep500.networks.gradients.gradient_nodes import replace_gradient_nodes
from deep500.networks.graph import Graph
from deep500.networks.network import Network


class ShardedState(Protocol):
    """Parameters of which each process has a part; all processes call a method together."""

    def whole_state(self) -> dict[str, np.ndarray]:
        """Return what :meth:`BoundNetwork.state` does for parameters that are here."""

    def load_whole_state(self, state: Mapping[str, Any]) -> None:
        """Keep this process's part of a state; raises InputError if it is not of these parameters."""


class BoundNetwork(Network):
    """A network whose parameters live in an executor; made by backends from a plain network, which stays as it is
    unless it is given up (``copy=False``).

    Attributes:
        own_arrays: whether runs use the parameters' arrays themselves. Where they do not, because tensors are copies,
            no second copy is made: the arrays are those of the plain network, and only read.
    """

    own_arrays = True
    leaves_undrawn: ClassVar[bool] = False
    """Whether parameters may be without initial values until a scheme draws them."""
    part_shapes: Mapping[str, tuple[int, ...]] = {}  # of parameters that this process has parts of, by name
    sharded: ShardedState | None = None
    """Gathers the parameters where ranks have parts of them (a scheme supplies itself): states are of the whole."""

    def __init__(self, network: Graph, copy: bool = True) -> None:
        if not self.leaves_undrawn:
            check_drawn(network, f"{type(self).__name__}, whose runs need it")
        twin = replace_gradient_nodes(network)  # backends have no kernel for ONNX's Gradient
        twin = twin.copy(self.own_arrays) if copy else twin
        super().__init__(twin.name)
        self.take_over(twin)

    def bare(self) -> Network:  # type: ignore[override]  # a plain one, which needs no executor
        return Network(self.name)

    @abc.abstractmethod
    def fetch_tensors(self, names: Sequence[str]) -> list[Any]:
        """Live tensors, in the order asked for: parameters, gradients and outputs of the last run.

        Raises NetworkError for a name that is none of these (an inner value: declare it with ``add_output`` first).
        """

    @abc.abstractmethod
    def feed_tensor(self, name: str, value: Any) -> None:
        """Overwrite a parameter with an array or tensor of its shape (copied); raises InputError if it does not fit."""

    def assign_tensor(self, name: str, value: Any) -> None:
        """Like :meth:`feed_tensor` for a tensor of the framework's own that the caller gives up: need not copy."""
        self.feed_tensor(name, value)

    def release_tensor(self, name: str) -> None:
        """Let go of a parameter's memory until :meth:`assign_tensor` gives it some again; it reads as NaN meanwhile."""
        raise UnsupportedOperator(
            f"got {type(self).__name__} to let go of parameter {name!r}, whose backend cannot; expected one whose "
            "parameters are taken and given back: use 'reference' or 'pytorch'"
        )

    def leave_gradients(self, gradients: Mapping[str, Any]) -> None:
        """Put tensors, by parameter, in the place of the gradients of the last run; backends say where."""
        raise UnsupportedOperator(
            f"got gradients for {type(self).__name__}, which keeps none; expected a network that a training run left "
            "gradients in: use an executor that trains"
        )

    def weighted_sum(self, terms: Sequence[Sequence[Any]], weights: Sequence[float]) -> list[Any]:
        """``sum_i weights[i] * terms[i][j]`` for every j, new tensors of their dtypes; nothing waits for the device.

        Backends override it where one call for all is faster than one per tensor.
        """
        with np.errstate(invalid="ignore", over="ignore"):  # gradients that overflowed are found by who asks
            sums = [weights[0] * tensor for tensor in terms[0]]
            for term, weight in zip(terms[1:], weights[1:], strict=True):
                sums = [total + weight * tensor for total, tensor in zip(sums, term, strict=True)]
        return sums

    def concatenate(self, tensors: Sequence[Any]) -> Any:
        """Tensors in a row along their first axis; backends override it."""
        return np.concatenate(tensors)

    def get_params(self) -> list[str]:
        """Names of the trainable parameters."""
        return self.trainable()

    def state(self) -> dict[str, np.ndarray]:
        """All parameters, running statistics included, as arrays (copies)."""
        if self.sharded is not None:
            return self.sharded.whole_state()
        check_drawn(self, "its state")
        return {name: np.array(tensor) for name, tensor in zip(self.parameters, self._fetch_all(), strict=True)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Overwrite all parameters; the names must be exactly those of :meth:`state`."""
        if self.sharded is not None:
            self.sharded.load_whole_state(state)
            return
        check_drawn(self, "a state to load")
        if odd := sorted(state.keys() ^ self.parameters.keys()):
            raise InputError(
                f"got a state that differs in {odd[:4]}; expected the network's parameters: use the same network"
            )
        for name, value in state.items():
            self.feed_tensor(name, value)

    def _fetch_all(self) -> list[Any]:
        return [self.to_numpy(tensor) for tensor in self.fetch_tensors(list(self.parameters))]

    @staticmethod
    def to_numpy(tensor: Any) -> np.ndarray:
        """A tensor of the framework as an array; backends override it where ``np.asarray`` does not do."""
        return np.asarray(tensor)

    def to_tensor(self, array: np.ndarray) -> Any:
        """An array as a tensor of the framework's own on the device (a copy, same dtype); backends override it."""
        return np.array(array)

    def forget_results(self) -> None:
        """Let go of the outputs of the last run; a backend that keeps none has nothing to do."""

    def _hollow(self, name: str) -> np.ndarray:
        """NaN in the shape of a parameter, which takes no memory."""
        old = self.parameter(name).value
        return hollow(old.shape, old.dtype)

    def sync(self) -> None:
        if names_of_undrawn(self):  # which stay so
            drawn = [name for name, parameter in self.parameters.items() if parameter.undrawn is None]
            state = dict(zip(drawn, map(np.array, map(self.to_numpy, self.fetch_tensors(drawn))), strict=True))
        else:
            state = self.state()
        for name, value in state.items():
            self.parameter(name).value = value
