"""From a ``flax.nnx`` module, or a JAX function with its tree of parameters, to an ONNX model, by jax2onnx.

Parameters are given to the traced function as inputs, so that none is folded or renamed. Modules of flax keep
normalization and dropout as operators, which follow the executor's mode; a plain function is converted as it evaluates.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx

from deep500.errors import InputError, NetworkError
from deep500.networks.objects import BATCH, Converted, is_pair, named_inputs
from deep500.networks.onnx.binding import bind_inputs, rename_values
from deep500.networks.onnx.converters import converter, converting, quiet

_ELSE = (
    "export an ONNX file elsewhere and pass that, or keep the function as it is in JAX alone: "
    "deep500.frameworks.jax.from_native"
)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Nothing to seed: programs of JAX take their keys as arguments, so a recipe's function takes ``seed``."""
    yield


def fingerprint(model: Any) -> str | None:
    """SHA-256 over names and values of a module's parameters; None for what has none."""
    if not _is_nnx(model):
        return None
    sha = hashlib.sha256()
    function = _of_module(model)
    for name, leaf in zip(function.names, function.leaves, strict=True):
        if not _is_key(leaf):
            array = np.ascontiguousarray(np.asarray(leaf))
            sha.update(f"{name}\0{array.dtype}\0{array.shape}\0".encode())
            sha.update(array.tobytes())
    return sha.hexdigest()


def convert(model: Any, example: Any) -> Converted:
    """Trace a module, or a function of parameters, and convert it.

    Raises:
        InputError: another kind of model, or no example inputs.
        MissingBackend: jax2onnx is not installed.
        NetworkError: the model cannot be traced or converted.
    """
    function = _of_module(model) if _is_nnx(model) else _of_pair(model)
    if example is None:
        raise InputError(
            f"got {function.name} without example inputs; expected arrays to trace it with, the batch as first axis: "
            "pass example="
        )
    inputs = named_inputs(example, function.arguments)

    def own(given: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return [np.asarray(leaf) for leaf in function(function.leaves, list(given.values()))]

    with converting(function.name, "a function that runs", _ELSE):
        own(inputs)
    places = [
        n for n, leaf in enumerate(function.leaves) if not _is_key(leaf) and jnp.issubdtype(leaf.dtype, jnp.inexact)
    ]
    proto = _to_onnx(function, places, inputs)
    names = frozenset(function.names[place] for place in places if function.names[place] in function.trained)
    return Converted(proto, names, inputs, own)


# -- what is called ----------------------------------------------------------------------------------------------------
@dataclass
class _Function:
    """A model as a function of the leaves of its tree and of a list of inputs, with a list of arrays as its result."""

    name: str
    names: list[str]
    leaves: list[Any]
    trained: set[str]
    arguments: list[str]
    call: Callable[[list[Any], list[Any]], Any]

    def __call__(self, leaves: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        return jax.tree_util.tree_leaves(self.call(list(leaves), list(inputs)))


def _of_pair(model: Any) -> _Function:
    if not is_pair(model):
        raise InputError(
            f"got {type(model).__name__} as a model of JAX; expected a flax.nnx module, or a pair of a function and "
            "its tree of parameters: pass (function, parameters), called function(parameters, *inputs)"
        )
    function, tree = model
    paths, structure = jax.tree_util.tree_flatten_with_path(tree)
    names, leaves = ["/".join(map(_key_name, path)) for path, _ in paths], [jnp.asarray(leaf) for _, leaf in paths]
    known = _parameters(function)
    options = {"training": False, "key": jax.random.key(0)}
    chosen = {name: value for name, value in options.items() if name in known}

    def call(leaves: list[Any], inputs: list[Any]) -> Any:
        return function(jax.tree_util.tree_unflatten(structure, leaves), *inputs, **chosen)

    arguments = [name for name in known[1:] if name not in options]
    return _Function(getattr(function, "__name__", "function"), names, leaves, set(names), arguments, call)


def _of_module(module: Any) -> _Function:
    nnx = importlib.import_module("flax.nnx")
    private = nnx.clone(module)
    _check_random(nnx, private)
    private.eval()
    graph, state = nnx.split(private)
    paths, structure = jax.tree_util.tree_flatten_with_path(state)
    names = ["/".join(map(_key_name, path)).removesuffix("/value") for path, _ in paths]
    leaves = [leaf for _, leaf in paths]
    flat = nnx.to_flat_state(nnx.state(private, nnx.Param))
    trained = {"/".join(map(str, path)) for path, _ in flat}

    def call(leaves: list[Any], inputs: list[Any]) -> Any:
        return nnx.merge(graph, jax.tree_util.tree_unflatten(structure, leaves))(*inputs)

    arguments = _parameters(type(module).__call__)[1:]
    return _Function(type(module).__name__, names, leaves, trained, arguments, call)


def _check_random(nnx: Any, module: Any) -> None:
    """Raise NetworkError for dropout inside of other layers, which the converter would leave out."""
    for path, part in nnx.iter_graph(module):
        rate = getattr(part, "dropout_rate", 0)
        if isinstance(rate, (int, float)) and rate > 0:
            raise NetworkError(
                f"{type(module).__name__}: got {'/'.join(map(str, path))} ({type(part).__name__}) with "
                f"dropout_rate={rate}, which no operator carries over; expected nnx.Dropout: set it to 0 and use that "
                "beside it, or train it as it is: deep500.frameworks.jax.from_native"
            )


def _is_nnx(model: Any) -> bool:
    return any(base.__module__.startswith("flax.nnx") for base in type(model).__mro__)


def _parameters(function: Any) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _key_name(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


# -- jax2onnx ----------------------------------------------------------------------------------------------------------
def _to_onnx(function: _Function, places: Sequence[int], inputs: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """The ONNX model, the floating leaves at these places as initializers of their names."""
    to_onnx = converter("jax2onnx", "JAX", "import-jax", _ELSE).to_onnx
    floating = [function.leaves[place] for place in places]

    def flat(*given: Any) -> tuple[Any, ...]:
        leaves = list(function.leaves)
        for place, value in zip(places, given, strict=False):
            leaves[place] = value
        return tuple(function(leaves, given[len(places) :]))

    specs = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in floating]
    dtypes = [jax.dtypes.canonicalize_dtype(array.dtype) for array in inputs.values()]
    specs += [
        jax.ShapeDtypeStruct((BATCH, *array.shape[1:]), dtype)
        for array, dtype in zip(inputs.values(), dtypes, strict=True)
    ]
    wide = any(spec.dtype == np.float64 for spec in specs)
    with converting(function.name, "a function that converts", _ELSE), quiet("jax2onnx"):
        proto = to_onnx(flat, specs, enable_double_precision=wide)
    given = [value.name for value in proto.graph.input]
    values = {name: function.names[place] for name, place in zip(given, places, strict=False)}
    names = values | dict(zip(given[len(places) :], inputs, strict=True))
    count = len(proto.graph.output)
    names |= {v.name: "output" if count == 1 else f"output_{n}" for n, v in enumerate(proto.graph.output)}
    rename_values(proto.graph, names)
    bind_inputs(proto, {function.names[place]: np.asarray(function.leaves[place]) for place in places})
    _follow_mode(proto.graph)
    _take_wide(proto.graph, inputs)
    return proto


def _follow_mode(graph: onnx.GraphProto) -> None:
    """Let dropout follow the executor's mode."""
    for node in graph.node:
        if node.op_type == "Dropout":
            del node.input[2:]


def _take_wide(graph: onnx.GraphProto, inputs: Mapping[str, np.ndarray]) -> None:
    """Let inputs have the dtype of the data where JAX narrows it."""
    casts = []
    for value in graph.input:
        wide = onnx.helper.np_dtype_to_tensor_dtype(inputs[value.name].dtype)
        kind = value.type.tensor_type
        if kind.elem_type != wide:
            narrow = f"{value.name}__narrow"
            rename_values(graph, {value.name: narrow})
            casts.append(onnx.helper.make_node("Cast", [narrow.removesuffix("__narrow")], [narrow], to=kind.elem_type))
            value.name, kind.elem_type = narrow.removesuffix("__narrow"), wide
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
