"""`InputCheck`: whether inputs fit a compiled function; called at every step, so it must cost next to nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deep500.errors import InputError, nearest
from deep500.networks.execution.slicing import sources
from deep500.networks.graph import Graph
from deep500.tensors import TensorDescriptor, numpy_dtype


class InputCheck:
    """Checks the inputs of one compiled function; made once, called at every step.

    Example:
        >>> import numpy as np
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


def input_check(network: Graph, values: Sequence[str]) -> InputCheck:
    """The check of a run that computes these values: inputs on which none of them depends may be absent.

    Example:
        >>> net = Graph(); net.add_input("x", ("N", 3)); net.add_input("unread", ("N",))
        >>> net.add_node("Relu", ["x"], ["y"])
        >>> sorted(input_check(net, ["y"]).expected)
        ['x']
    """
    behind = sources(network.nodes, values)
    needed = {name: described for name, described in network.inputs.items() if name in behind}
    return InputCheck(needed, [name for name in network.inputs if name not in needed])


def _array_dtype(dtype: str | None) -> str | None:
    return None if dtype is None or "(" in dtype else numpy_dtype(dtype).name
