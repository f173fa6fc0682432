"""From a ``flax.nnx`` module, or a JAX function with its tree of parameters, to an ONNX model, by jax2onnx.

Parameters are given to the traced function as inputs, so that none is folded or renamed. Modules of flax keep
normalization and dropout as operators, which follow the executor's mode; a plain function is converted as it evaluates.

jax2onnx takes functions with derivatives of their own for what they compute. While it lowers a model, some of its
plugins are exchanged for ours, which write ``StopGradient`` and ``CustomGradient`` nodes (:class:`_Derivatives`).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import onnx
from jax.interpreters import partial_eval

from deep500.errors import InputError, NetworkError
from deep500.networks.flow import CUSTOM, STOP
from deep500.networks.node import graphs_of
from deep500.networks.objects import Axes, Converted, free_axes, is_pair, named_inputs
from deep500.networks.onnx.binding import bind_inputs, rename_values
from deep500.networks.onnx.converters import converter, converting, quiet, unchanged
from deep500.operators.registry import DOMAIN

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


def convert(model: Any, example: Any, dynamic_axes: Mapping[str, Any]) -> Converted:
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
    axes = free_axes(inputs, dynamic_axes)

    def run(arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return [np.asarray(leaf) for leaf in function(function.leaves, list(arrays.values()))]

    with converting(function.name, "a function that runs", _ELSE):
        results = run(inputs)
    if _is_nnx(model):
        _check_writes(model, inputs)
    places = [
        n for n, leaf in enumerate(function.leaves) if not _is_key(leaf) and jnp.issubdtype(leaf.dtype, jnp.inexact)
    ]
    proto = _to_onnx(function, places, inputs, axes)
    names = frozenset(function.names[place] for place in places if function.names[place] in function.trained)
    training = _of_module(model, training=True) if _is_nnx(model) else function

    def differentiate(
        arrays: Mapping[str, np.ndarray], cotangents: Sequence[np.ndarray | None]
    ) -> dict[str, np.ndarray]:
        return _gradients(training, sorted(names), list(arrays.values()), cotangents)

    return Converted(proto, names, inputs, results, run, differentiate, axes=axes)


def _gradients(
    function: _Function, names: Sequence[str], arrays: Sequence[np.ndarray], cotangents: Sequence[np.ndarray | None]
) -> dict[str, np.ndarray]:
    """The function's own gradients with respect to these leaves."""
    places = [function.names.index(name) for name in names]

    def call(trained: list[Any]) -> list[Any]:
        leaves = list(function.leaves)
        for place, value in zip(places, trained, strict=True):
            leaves[place] = value
        return [result for result in function(leaves, arrays) if jnp.issubdtype(result.dtype, jnp.inexact)]

    results, pull = jax.vjp(call, [function.leaves[place] for place in places])
    floating = [array for array in cotangents if array is not None and jnp.issubdtype(array.dtype, jnp.inexact)]
    (gradients,) = pull([jnp.asarray(array, r.dtype) for array, r in zip(floating, results, strict=True)])
    return {name: np.asarray(gradient) for name, gradient in zip(names, gradients, strict=True)}


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
    trained = {n for n in names if n.startswith("params/")} or set(names)  # linen keeps statistics beside parameters
    return _Function(getattr(function, "__name__", "function"), names, leaves, trained, arguments, call)


def _of_module(module: Any, training: bool = False) -> _Function:
    nnx = importlib.import_module("flax.nnx")
    private = _training(nnx, module) if training else nnx.clone(module)
    if not training:
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


def _training(nnx: Any, module: Any) -> Any:
    """A copy in training mode, its dropout off."""
    private = nnx.clone(module)
    private.train()
    for path, part in nnx.iter_graph(private):
        if isinstance(part, nnx.Dropout):
            part.deterministic = True
            if part.broadcast_dims:
                raise NetworkError(
                    f"{type(module).__name__}: got {'/'.join(map(str, path))} (Dropout) with broadcast_dims="
                    f"{part.broadcast_dims}, which the converter leaves out; expected none: multiply by dropped ones"
                )
    return private


def _check_writes(module: Any, inputs: Mapping[str, np.ndarray]) -> None:
    """Raise NetworkError where a module draws or writes in training what no operator carries over."""
    nnx = importlib.import_module("flax.nnx")
    private = _training(nnx, module)
    parts = {tuple(map(str, path)): part for path, part in nnx.iter_graph(private)}
    graph, state = nnx.split(private)
    written: list[tuple[str, ...]] = []

    def run(state: Any, arrays: list[Any]) -> Any:
        merged = nnx.merge(graph, state)
        before, result, after = _values(nnx, merged), merged(*arrays), _values(nnx, merged)
        written.extend(path for path, value in before.items() if after.get(path) is not value)
        return result

    with converting(type(module).__name__, "a module that runs in training mode", _ELSE):
        jax.eval_shape(run, state, list(inputs.values()))
    for path in written:
        owner = next(path[:n] for n in range(len(path), -1, -1) if isinstance(parts.get(path[:n]), nnx.Module))
        kind, name = type(parts[owner]), "/".join(owner) or "itself"
        if issubclass(kind, nnx.BatchNorm):
            continue
        drawn = isinstance(parts.get(path), nnx.RngState)
        does = "draws random numbers" if drawn else f"writes {'/'.join(path)!r}"
        instead = (
            "nnx.Dropout: use that beside it, without a rate of its own" if drawn else "nnx.BatchNorm alone to write"
        )
        raise NetworkError(
            f"{type(module).__name__}: got {name} ({kind.__name__}), which {does} in training as no operator does; "
            f"expected {instead}, or train it as it is: deep500.frameworks.jax.from_native"
        )


def _values(nnx: Any, module: Any) -> dict[tuple[str, ...], Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(nnx.state(module))
    return {tuple(map(_key_name, path))[:-1]: leaf for path, leaf in leaves}


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
def _to_onnx(
    function: _Function, places: Sequence[int], inputs: Mapping[str, np.ndarray], axes: Axes
) -> onnx.ModelProto:
    """The ONNX model, the floating leaves at these places as initializers of their names."""
    to_onnx = _jax2onnx()
    floating = [function.leaves[place] for place in places]

    def flat(*arrays: Any) -> tuple[Any, ...]:
        leaves = list(function.leaves)
        for place, value in zip(places, arrays, strict=False):
            leaves[place] = value
        return tuple(function(leaves, arrays[len(places) :]))

    specs = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in floating]
    dtypes = [jax.dtypes.canonicalize_dtype(array.dtype) for array in inputs.values()]
    specs += [
        jax.ShapeDtypeStruct(tuple(axes[name].get(axis, size) for axis, size in enumerate(array.shape)), dtype)
        for (name, array), dtype in zip(inputs.items(), dtypes, strict=True)
    ]
    wide = any(spec.dtype == np.float64 for spec in specs)
    with converting(function.name, "a function that converts", _ELSE), quiet("jax2onnx"):
        proto = _Derivatives(function.name).converted(to_onnx, flat, specs, wide)
    inner = [value.name for value in proto.graph.input]
    values = {name: function.names[place] for name, place in zip(inner, places, strict=False)}
    names = values | dict(zip(inner[len(places) :], inputs, strict=True))
    count = len(proto.graph.output)
    names |= {v.name: "output" if count == 1 else f"output_{n}" for n, v in enumerate(proto.graph.output)}
    rename_values(proto.graph, names)
    bind_inputs(proto, {function.names[place]: np.asarray(function.leaves[place]) for place in places})
    _follow_mode(proto.graph)
    _slide_over_three(proto.graph, function.name)
    _hold_statistics_as_scales(proto.graph)
    _take_wide(proto.graph, inputs)
    return proto


def _jax2onnx() -> Any:
    """Its function that converts, with all its plugins loaded; JAX's own functions stay where they are."""
    with unchanged("jax", "flax"):
        to_onnx = converter("jax2onnx", "JAX", "import-jax", _ELSE).to_onnx
        importlib.import_module("jax2onnx.plugins.plugin_system").import_all_plugins()
    return to_onnx


def _follow_mode(graph: onnx.GraphProto) -> None:
    """Let dropout follow the executor's mode."""
    for node in graph.node:
        if node.op_type == "Dropout":
            del node.input[2:]


_MOST_AXES = 3
"""Over how many axes windows slide in most backends."""


def _slide_over_three(graph: onnx.GraphProto, where: str) -> None:
    """Let windows of ``lax.reduce_window``, which has them over all axes of an array, slide over those that they span.

    jax2onnx puts two axes of one element before them; those over which a window does not slide take their places.
    """
    arrays, nodes = {tensor.name: tensor for tensor in graph.initializer}, list[onnx.NodeProto]()
    for node in graph.node:
        for inner in graphs_of(node):
            _slide_over_three(inner, where)
        window = _Sliding.from_node(node, arrays)
        nodes += [node] if window is None or len(window.kernel) <= _MOST_AXES else window.narrowed(graph, where)
    del graph.node[:]
    graph.node.extend(nodes)


@dataclass
class _Sliding:
    """A node that slides a window over all axes of its input but the first two, which have one element."""

    node: onnx.NodeProto
    arrays: Mapping[str, onnx.TensorProto]
    kernel: list[int]

    @classmethod
    def from_node(cls, node: onnx.NodeProto, arrays: Mapping[str, onnx.TensorProto]) -> _Sliding | None:
        """None for a node without a window of known size."""
        if node.op_type == "Conv":
            return cls(node, arrays, list(arrays[node.input[1]].dims)[2:]) if node.input[1] in arrays else None
        kernels = (list(a.ints) for a in node.attribute if a.name == "kernel_shape" and node.domain == "")
        return next((cls(node, arrays, kernel) for kernel in kernels), None)

    def narrowed(self, graph: onnx.GraphProto, where: str) -> list[onnx.NodeProto]:
        """Nodes that do the same over fewer axes."""
        node, rank = self.node, len(self.kernel)
        lists = {a.name: list(a.ints) for a in node.attribute if a.ints}
        pads = lists.get("pads", [0] * 2 * rank)
        spans = [
            n > 1 or lists.get("strides", [1] * rank)[i] > 1 or bool(pads[i] or pads[i + rank])
            for i, n in enumerate(self.kernel)
        ]
        most = 1 if node.op_type == "Conv" else 2  # a convolution's second axis is its channel
        aside = [axis for axis, spanned in enumerate(spans) if not spanned][:most]
        rest = [axis for axis in range(rank) if axis not in aside]
        if len(rest) > _MOST_AXES:
            raise NetworkError(
                f"{where}: got a window over {sum(spans)} of {rank} axes, {tuple(self.kernel)}; expected at most "
                f"{_MOST_AXES}, as backends have: reduce the others one after the other"
            )
        source, target = node.input[0], node.output[0]
        axes = onnx.numpy_helper.from_array(np.arange(len(aside)), f"{target}/aside")
        leading = [0][: 2 - len(aside)]  # of the two axes of one element what remains, where two are put aside none
        order = [len(leading) + axis for axis in aside] + leading + [len(leading) + axis for axis in rest]
        names = [f"{target}/{part}" for part in ("fewer", "turned", "slid", "back")]
        slid = onnx.NodeProto()
        slid.CopyFrom(node)
        slid.input[0], slid.output[0] = names[1], names[2]
        for attribute in slid.attribute:
            if values := lists.get(attribute.name):
                chosen = [values[i + more] for more in range(0, len(values), rank) for i in rest]
                attribute.CopyFrom(onnx.helper.make_attribute(attribute.name, chosen))
        graph.initializer.append(axes)
        if node.op_type == "Conv":
            weight = onnx.numpy_helper.to_array(self.arrays[node.input[1]])
            weight = weight.reshape(*weight.shape[:2], *(self.kernel[axis] for axis in rest))
            slid.input[1] = f"{target}/weight"
            graph.initializer.append(onnx.numpy_helper.from_array(weight, slid.input[1]))
        make = onnx.helper.make_node
        return [
            make("Squeeze", [source, axes.name], [names[0]]),
            make("Transpose", [names[0]], [names[1]], perm=order),
            slid,
            make("Transpose", [names[2]], [names[3]], perm=np.argsort(order).tolist()),
            make("Unsqueeze", [names[3], axes.name], [target]),
        ]


def _hold_statistics_as_scales(graph: onnx.GraphProto) -> None:
    """Let running statistics, which flax holds in float32, have the dtype of the scale, which they are computed in."""
    arrays = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type != "BatchNormalization" or node.input[1] not in arrays:
            continue
        kind = arrays[node.input[1]].data_type
        for name in node.input[3:5]:
            if name in arrays and arrays[name].data_type != kind:
                array = onnx.numpy_helper.to_array(arrays[name]).astype(onnx.helper.tensor_dtype_to_np_dtype(kind))
                arrays[name].CopyFrom(onnx.numpy_helper.from_array(array, name))


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


# -- derivatives of the user's own -------------------------------------------------------------------------------------
class _Derivatives:
    """Lowers what cuts gradients, and functions with derivatives of their own.

    Such a function becomes its forward pass and a ``CustomGradient`` node. Its backward pass is what ``jax.vjp`` gives,
    whether a rule of ``custom_vjp`` or one of ``custom_jvp`` says it; jax2onnx converts it like a model.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.backward: list[Any] = []
        self.plugins = importlib.import_module("jax2onnx.plugins.plugin_system")

    def converted(self, to_onnx: Any, function: Any, specs: Sequence[Any], wide: bool) -> onnx.ModelProto:
        """The model of a function of arrays like these, its backward passes within."""
        with self._in_place():
            proto: onnx.ModelProto = to_onnx(function, specs, enable_double_precision=wide)
        marked = [n for n in _every_node(proto.graph) if (n.domain, n.op_type) == (DOMAIN, CUSTOM)]
        for node in marked:
            (number,) = (a for a in node.attribute if a.name == _NUMBER)
            closed = self.backward[number.i]
            node.attribute.remove(number)
            takes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in closed.in_avals]
            inner = to_onnx(jax.extend.core.jaxpr_as_fun(closed), takes, enable_double_precision=wide).graph
            names = {value for part in _every_node(inner) for value in (*part.input, *part.output) if value}
            names.update(value.name for value in (*inner.input, *inner.output, *inner.initializer))
            rename_values(inner, {name: f"{node.output[0]}/{name}" for name in names})
            node.attribute.append(onnx.helper.make_attribute("backward", inner))
        if not any(used.domain == DOMAIN for used in proto.opset_import):
            proto.opset_import.add(domain=DOMAIN, version=1)
        return proto

    @contextlib.contextmanager
    def _in_place(self) -> Iterator[None]:
        """While a model is lowered jax2onnx calls this object's methods in place of plugins of its own."""
        ours = {"stop_gradient": self._stop, "custom_vjp_call": self._custom, "custom_jvp_call": self._custom}
        with _replaced(
            self.plugins.PLUGIN_REGISTRY, {name: _JaxPlugin(lower) for name, lower in ours.items()}
        ) as theirs:
            self.theirs = theirs
            yield

    def _stop(self, context: Any, equation: Any) -> None:
        _write(context, STOP, [context.get_value_for_var(equation.invars[0])], equation.outvars)

    def _custom(self, context: Any, equation: Any) -> None:
        source = str(equation.params["call_jaxpr"].jaxpr.debug_info.func_src_info)
        name, _, place = source.partition(" at ")
        floating = [n for n, v in enumerate(equation.invars) if jnp.issubdtype(v.aval.dtype, jnp.inexact)]
        if equation.primitive.name == "custom_jvp_call" and place.startswith(str(Path(jax.__file__).parent)):
            known = {**self.plugins.PLUGIN_REGISTRY, **self.theirs}
            known.get(f"jax.nn.{name}", known[equation.primitive.name]).lower(context, equation)
            return  # true derivatives all: JAX's own rules are about rounding
        try:
            forward, backward, floats = _passes(equation, floating)
        except Exception as error:
            line = next(iter(str(error).splitlines()), "")[:300]
            raise NetworkError(
                f"{self.where}: got {source} with a derivative of its own that cannot be traced ({type(error).__name__}"
                f": {line}); expected arrays in, arrays out: write it with jax.lax.stop_gradient, such as "
                f"x + stop_gradient(f(x) - x), or {_ELSE}"
            ) from error
        inputs = [context.get_value_for_var(variable) for variable in equation.invars]
        with _replaced(self.plugins.PLUGIN_REGISTRY, self.theirs):  # no gradient flows within
            results = _lowered(context, forward, inputs)
        values = [results[n] for n in floats]
        count = len(equation.outvars)
        attributes = {"values": len(floats), "arguments": len(floating), _NUMBER: len(self.backward)}
        self.backward.append(backward)
        for variable, value in zip(equation.outvars, results, strict=False):
            context.bind_value_for_var(variable, value)
        read = [*values, *(inputs[n] for n in floating), *results[count:]]
        _write(context, CUSTOM, read, [equation.outvars[n] for n in floats], **attributes)


@dataclass
class _JaxPlugin:
    """A plugin, as jax2onnx calls one."""

    lower: Callable[[Any, Any], None]


@contextlib.contextmanager
def _replaced(registry: dict[str, Any], others: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """For a while other entries; gives those that they replace."""
    before = {name: registry[name] for name in others}
    registry.update(others)
    try:
        yield before
    finally:
        registry.update(before)


_NUMBER = "number"
"""Attribute of a node whose backward pass is still to be converted."""


def _passes(equation: Any, floating: Sequence[int]) -> tuple[Any, Any, list[int]]:
    """A call as two jaxprs: forward to results and residuals, and backward; then, which results are floating."""
    params = equation.primitive.get_bind_params(equation.params)
    results = [n for n, v in enumerate(equation.outvars) if jnp.issubdtype(v.aval.dtype, jnp.inexact)]
    structure = []

    def forward(*operands: Any) -> Any:
        def call(*arguments: Any) -> Any:
            merged = dict(zip(floating, arguments, strict=True))
            every = equation.primitive.bind(*(merged.get(n, value) for n, value in enumerate(operands)), **params)
            return [every[n] for n in results], every

        _, pull, every = jax.vjp(call, *(operands[n] for n in floating), has_aux=True)
        residuals, tree = jax.tree_util.tree_flatten(pull)
        structure.append(tree)
        return [*every, *residuals]

    first = jax.make_jaxpr(forward)(*_specs(v.aval for v in equation.invars))
    residuals = first.out_avals[len(equation.outvars) :]

    def backward(*operands: Any) -> Any:
        pull = jax.tree_util.tree_unflatten(structure[-1], operands[len(results) :])
        return pull(list(operands[: len(results)]))

    closed = jax.make_jaxpr(backward)(*_specs([*(equation.outvars[n].aval for n in results), *residuals]))
    read, _ = partial_eval.dce_jaxpr(closed.jaxpr, [True] * len(floating), instantiate=True)
    return first, jax.extend.core.ClosedJaxpr(read, closed.consts), results


def _specs(described: Any) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in described]


def _lowered(context: Any, closed: Any, inputs: Sequence[Any]) -> list[Any]:
    """The values of a jaxpr's outputs, its equations lowered by jax2onnx."""
    utilities = importlib.import_module("jax2onnx.plugins.jax.lax._control_flow_utils")
    for variable, array in zip(closed.jaxpr.constvars, closed.consts, strict=True):
        context.bind_const_for_var(variable, np.asarray(array))
    for variable, value in zip(closed.jaxpr.invars, inputs, strict=True):
        context.bind_value_for_var(variable, value)
    utilities.lower_jaxpr_eqns(context, closed.jaxpr, source=CUSTOM)
    return [context.get_value_for_var(variable) for variable in closed.jaxpr.outvars]


def _write(context: Any, kind: str, inputs: Sequence[Any], variables: Sequence[Any], **attributes: int) -> None:
    """Add a node of domain ``deep500`` for these variables, which have types and shapes of its first inputs."""
    names = [context.fresh_name(kind) for _ in variables]
    outputs = getattr(context.builder, kind)(*inputs, _domain=DOMAIN, _version=1, _outputs=names, **attributes)
    for variable, value, like in zip(variables, outputs if len(names) > 1 else [outputs], inputs, strict=False):
        value.type, value.shape = like.type, like.shape
        context.bind_value_for_var(variable, value)


def _every_node(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _every_node(attribute.g)
