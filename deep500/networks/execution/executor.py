"""`GraphExecutor`: a network compiled for a device, and `BoundNetwork`: the same network with live tensors.

Requirements of the seam, for those who write a backend:

* ``inference`` runs in evaluation mode, ``inference_and_backprop`` in training mode: BatchNormalization uses the
  batch's statistics and updates its running ones, Dropout drops. Running variance is the *unbiased* one, as PyTorch
  keeps it; normalisation always uses the biased one. (A node with an explicit ``training_mode=1`` means what ONNX
  says, always.)
* Results are the framework's own tensors on the device, keyed by the network's names. Nothing waits for the device.
* Inputs may be NumPy arrays or the framework's tensors. They are checked by name, dtype and shape at every call.
* A run needs only the inputs on which what it computes depends: the outputs that it returns, and in training the loss.
  To miss one of those, or to give an unknown one, is an InputError. Any other may be absent, and is not checked
  (:func:`input_check`).
* Editing ``executor.network`` recompiles before the next run: compare ``network.version``.
* Gradients are those of one run, under ``gradient_name(parameter)``; they never accumulate. A trainable parameter that
  the loss does not reach has zeros, and is not in ``network.gradient(loss)``: optimizers leave it alone.
* What cannot run is *one* UnsupportedOperator naming every offending node, raised while the executor is built.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Protocol

import numpy as np

from deep500.devices import Device, to_device
from deep500.errors import InputError, PlanError, UnsupportedOperator, nearest
from deep500.events import SILENT, Events
from deep500.networks.execution.slicing import sources
from deep500.networks.gradients.gradient_nodes import replace_gradient_nodes
from deep500.networks.network import Network
from deep500.tensors import TensorDescriptor, numpy_dtype


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
    sharded: ShardedState | None = None
    """Gathers the parameters where ranks have parts of them (a scheme supplies itself): states are of the whole."""

    def __init__(self, network: Network, copy: bool = True) -> None:
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
        return {name: np.array(tensor) for name, tensor in zip(self.parameters, self._fetch_all(), strict=True)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Overwrite all parameters; the names must be exactly those of :meth:`state`."""
        if self.sharded is not None:
            self.sharded.load_whole_state(state)
            return
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
        return np.broadcast_to(np.array(np.nan, old.dtype), old.shape)

    def sync(self) -> None:
        for name, value in self.state().items():
            self.parameter(name).value = value


class RecomputedRegion(Protocol):
    """A part of the forward pass that runs again: its name, and the values that its nodes write."""

    @property
    def name(self) -> str: ...
    @property
    def values(self) -> tuple[str, ...]: ...


class Recomputation(Protocol):
    """What an executor needs of a checkpointing plan; :mod:`deep500.transformations.recomputation` makes them.

    Attributes:
        regions: those that run again in the backward pass instead of being kept, outermost first.
        batch: the number of samples for which the plan holds.
        loss: the scalar that is differentiated.
    """

    @property
    def regions(self) -> Sequence[RecomputedRegion]: ...
    @property
    def batch(self) -> int: ...
    @property
    def loss(self) -> str: ...
    def check(self, network: Network, batch: int) -> None:
        """Raise PlanError unless the plan was made for this network and batch size."""


class GraphExecutor(abc.ABC):
    """A network compiled for a device. Every backend's ``Executor`` derives from it.

    What only some executors can do (count memory, time nodes, report gradients early) is in
    :mod:`deep500.networks.execution.capabilities`.

    Attributes:
        network: the :class:`BoundNetwork`.
        device: where it runs.
        events: who listens to ``forward``, ``backward``, ... (:data:`deep500.events.SILENT` by default).
        backend: name of the backend, as :func:`deep500.registry.load_backend` takes it.
        precision: how float32 is computed, see :mod:`deep500.networks.execution.precision`.
        deterministic: whether only kernels were allowed that give the same bits every time.
        checkpointing: the plan under which training runs compute values again; see :meth:`set_checkpointing`.
        seed: the last one that randomness was restarted with.
        choices: arguments, and attributes of the same names, that another executor like this one is made with.
    """

    backend: str = "?"
    network: BoundNetwork
    checkpointing: Recomputation | None = None
    precision: str = "ieee"
    deterministic: bool = False
    seed: int = 0
    choices: ClassVar[tuple[str, ...]] = ()

    def __init__(self, device: Device | str | None = None) -> None:
        self.device = to_device(device)
        self.events: Events = SILENT

    @abc.abstractmethod
    def inference(self, inputs: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Run forward in evaluation mode.

        Args:
            inputs: arrays or tensors by input name.
            outputs: values to return; the network's outputs if None. Inputs that they do not depend on may be absent.

        Returns:
            tensors of the framework by name.

        Raises:
            InputError: unknown or missing input, wrong dtype or shape.
        """

    @abc.abstractmethod
    def inference_and_backprop(self, inputs: Mapping[str, Any], loss: str = "loss") -> dict[str, Any]:
        """Run forward in training mode, then backward from ``loss``, a scalar.

        Inputs on which neither the loss nor an output of the network depends may be absent.

        Returns the network's outputs and the loss; gradients are fetched by name from ``network.fetch_tensors``.
        """

    def set_checkpointing(self, plan: Recomputation | None) -> None:
        """Compute values of the forward pass again in the backward pass, as a plan says, instead of keeping them.

        Outputs, gradients, running statistics and random draws stay those of the run without a plan; inference never
        changes. Training calls must have the plan's batch size and loss, others are a PlanError.

        Args:
            plan: from :func:`deep500.plan_checkpointing` or a plan file; None ends it.

        Raises:
            PlanError: it is no plan, or was made for another network.
            UnsupportedOperator: this backend cannot follow plans.

        Example:
            >>> import deep500.frameworks.reference as d5ref
            >>> from deep500.networks import add_loss, create
            >>> from deep500.transformations.recomputation import plan_network
            >>> executor = d5ref.from_model(add_loss(create("resnet", depth=8)))
            >>> executor.set_checkpointing(plan_network(executor.network, 0.9, batch=2))
            >>> len(executor.checkpointing.regions) > 0
            True
        """
        if plan is not None:
            if not all(hasattr(plan, part) for part in ("regions", "batch", "loss", "check")):
                raise PlanError(
                    f"got {type(plan).__name__} to follow; expected a CheckpointingPlan or None: make one with "
                    "plan_checkpointing, or read it with load_plan"
                )
            plan.check(self.network, plan.batch)
        if plan is not self.checkpointing:
            self._forget_training()
            self.checkpointing = plan

    @contextmanager
    def rehearsal(self) -> Iterator[GraphExecutor]:
        """An executor like this one, of a copy of its network: what it runs leaves no trace in this one.

        Example:
            >>> import deep500.frameworks.reference as d5ref
            >>> from deep500.networks import add_loss, create
            >>> executor = d5ref.from_model(add_loss(create("mlp", shape=(4,))))
            >>> with executor.rehearsal() as twin:
            ...     twin.backend, twin is executor
            ('reference', False)
        """
        yield self.like(self.network.copy())

    def like(self, network: Network) -> GraphExecutor:
        """An executor of the same backend with the same choices, on the same device, for another network.

        Example:
            >>> import deep500.frameworks.reference as d5ref
            >>> from deep500.networks import create
            >>> executor = d5ref.from_model(create("mlp", shape=(4,)))
            >>> other = executor.like(create("mlp", shape=(5,)))
            >>> other.backend, other.network.inputs["input"].shape
            ('reference', ('N', 5))
        """
        kind: Any = type(self)
        made: GraphExecutor = kind(network, self.device, **{name: getattr(self, name) for name in self.choices})
        return made

    def _forget_training(self) -> None:
        """Drop compiled training runs, so that the next one follows ``self.checkpointing``; backends implement it."""
        raise UnsupportedOperator(
            f"got a checkpointing plan for backend {self.backend!r}; expected a backend that computes values again: "
            "use 'reference', or leave the plan out"
        )

    def _check_planned(self, inputs: Mapping[str, Any], loss: str) -> None:
        """Raise PlanError unless a training call is the one that the plan was made for; backends call it first."""
        plan = self.checkpointing
        if plan is None:
            return
        if loss != plan.loss:
            raise PlanError(f"got loss {loss!r}; expected {plan.loss!r}, for which the checkpointing plan was made")
        for name, described in self.network.inputs.items():
            shape = getattr(inputs.get(name), "shape", ())
            for want, size in zip(described.shape or (), shape, strict=False):
                if isinstance(want, str) and size != plan.batch:  # with_batch gives all symbols this size
                    raise PlanError(
                        f"input {name!r}: got {size} for {want!r}; expected {plan.batch}, the batch size for which the "
                        "checkpointing plan was made: plan again, or end it with set_checkpointing(None)"
                    )

    @abc.abstractmethod
    def reseed(self, seed: int) -> None:
        """Restart the randomness of Dropout and its like, so that what follows is a function of ``seed``.

        Backends call ``super().reseed(seed)``: executors of stages draw by the seed of the whole network's.
        """
        self.seed = seed

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait until the device has finished its work."""


class InputCheck:
    """Checks the inputs of one compiled function; made once, called at every step.

    Example:
        >>> check = InputCheck({"x": TensorDescriptor("float32", ("N", 3))})
        >>> check({"x": np.zeros((2, 3), "float32")})
    """

    def __init__(self, expected: Mapping[str, TensorDescriptor], also_known: Sequence[str] = ()) -> None:
        self.expected = {n: (d, _array_dtype(d.dtype)) for n, d in expected.items()}
        self.ignored = frozenset(also_known)
        self._accepted: list[Any] | None = None  # names, dtypes and shapes of the last inputs that were right

    def __call__(self, inputs: Mapping[str, Any]) -> None:
        """Raise :class:`InputError` for an unknown or missing name, a wrong dtype or a wrong shape."""
        try:
            signature = [(name, value.dtype, value.shape) for name, value in inputs.items()]
        except AttributeError:  # a sequence, an optional value, or no array at all
            signature = None
        if signature is not None and signature == self._accepted:
            return  # the usual case of every step but the first: microseconds count here
        for name in inputs:
            if name not in self.expected and name not in self.ignored:
                raise InputError(f"got input {name!r}; expected {list(self.expected)}: {nearest(name, self.expected)}")
        symbols: dict[str, int] = {}
        for name, (descriptor, dtype) in self.expected.items():
            if name not in inputs:
                raise InputError(f"got no input {name!r}; expected {list(self.expected)}: add it to the dict")
            value = inputs[name]
            self._check_one(name, value, descriptor, dtype, symbols)
        self._accepted = signature

    @staticmethod
    def _check_one(
        name: str, value: Any, descriptor: TensorDescriptor, dtype: str | None, symbols: dict[str, int]
    ) -> None:
        if "(" in (descriptor.dtype or ""):  # a sequence or an optional value: a list, an array or None
            return
        shape = getattr(value, "shape", None)
        if shape is None:
            raise InputError(
                f"input {name!r}: got {type(value).__name__}; expected an array: convert it with np.asarray"
            )
        got = getattr(value.dtype, "name", None) or str(value.dtype).rpartition(".")[2]  # torch's have no name
        if not getattr(value.dtype, "isnative", True):
            got = f"{got} in another byte order"
        if dtype is not None and got != dtype:
            raise InputError(f"input {name!r}: got dtype {got}; expected {dtype}: convert it with .astype({dtype!r})")
        if not descriptor.accepts(tuple(shape)):
            raise InputError(f"input {name!r}: got shape {tuple(shape)}; expected {descriptor}: reshape it")
        for want, size in zip(descriptor.shape or (), shape, strict=False):
            if isinstance(want, str) and symbols.setdefault(want, size) != size:
                raise InputError(
                    f"input {name!r}: got size {size} for {want!r}; expected {symbols[want]}, as before it: "
                    "give all inputs the same one"
                )


def input_check(network: Network, values: Sequence[str]) -> InputCheck:
    """The check of a run that computes these values: inputs on which none of them depends may be absent.

    Example:
        >>> net = Network(); net.add_input("x", ("N", 3)); net.add_input("unread", ("N",))
        >>> net.add_node("Relu", ["x"], ["y"])
        >>> sorted(input_check(net, ["y"]).expected)
        ['x']
    """
    behind = sources(network.nodes, values)
    needed = {name: described for name, described in network.inputs.items() if name in behind}
    return InputCheck(needed, [name for name in network.inputs if name not in needed])


def _array_dtype(dtype: str | None) -> str | None:
    return None if dtype is None or "(" in dtype else numpy_dtype(dtype).name
