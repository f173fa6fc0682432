"""From a ``keras.Model``, a TensorFlow function or a SavedModel to an ONNX model, by tf2onnx.

The traced graph's variables become inputs before it is converted, so that tf2onnx neither folds nor renames them. Keras
normalizes by plain arithmetic; while a model is traced its BatchNormalization and Dropout layers are written as
operators instead, which follow the executor's mode. What stops gradients becomes a node ``StopGradient``; a gradient of
the user's own, which tf2onnx would take for what it computes forward, is refused with its line.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from deep500.errors import InputError, NetworkError
from deep500.networks.flow import STOP
from deep500.networks.objects import Axes, Converted, free_axes, named_inputs
from deep500.networks.onnx.binding import bind_inputs, rename_values
from deep500.networks.onnx.converters import converter, converting, quiet
from deep500.operators.registry import DOMAIN

OPSET = 18
"""The newest that tf2onnx writes; reading converts it up."""
_ELSE = (
    "export an ONNX file elsewhere and pass that, or keep the model as it is in TensorFlow alone: "
    "deep500.frameworks.tensorflow.from_native"
)
LAYERS = ("Dropout", "MultiHeadAttention", "GroupedQueryAttention")
"""Layers that draw random numbers as ONNX's Dropout does."""
RATES = ("rate", "dropout", "recurrent_dropout", "stddev", "factor")
"""Names of what other layers draw random numbers with, unless it is 0."""


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generators that Keras and TensorFlow draw weights from; Python's is restored."""
    python = random.getstate()
    try:
        random.seed(seed)
        tf.random.set_seed(seed)
        yield
    finally:
        random.setstate(python)


def fingerprint(model: Any) -> str | None:
    """SHA-256 over names and values of a model's variables; None for what has none."""
    variables = getattr(model, "variables", None)
    if not isinstance(variables, (list, tuple)) or not variables:
        return None
    sha = hashlib.sha256()
    for variable in variables:
        array = np.ascontiguousarray(np.asarray(variable))
        sha.update(f"{_name(variable)}\0{array.dtype}\0{array.shape}\0".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()


def convert(model: Any, example: Any, dynamic_axes: Mapping[str, Any]) -> Converted:
    """Trace a model and convert it.

    Raises:
        InputError: no example inputs, or an object that is no model.
        MissingBackend: tf2onnx is not installed.
        NetworkError: the model cannot be traced or converted.
    """
    if isinstance(model, (str, os.PathLike)):
        model = tf.saved_model.load(str(model))
    if hasattr(model, "stateless_call"):
        return _of_keras(model, example, dynamic_axes)
    return _of_function(model, example, dynamic_axes)


# -- Keras -------------------------------------------------------------------------------------------------------------
def _of_keras(model: Any, example: Any, dynamic_axes: Mapping[str, Any]) -> Converted:
    if sys.modules["keras"].backend.backend() != "tensorflow":
        raise InputError(
            f"got a Keras model on {sys.modules['keras'].backend.backend()}; expected one on TensorFlow: set "
            "KERAS_BACKEND=tensorflow, load it there, and pass that"
        )
    if example is None:
        example = _declared(model)
    names = [str(value.name) for value in getattr(model, "inputs", None) or ()]
    inputs = named_inputs(example, names)
    axes = free_axes(inputs, dynamic_axes)

    def run(arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return [
            np.asarray(r) for r in _results(model(_arranged(model, example, list(arrays.values())), training=False))
        ]

    def train(arrays: Mapping[str, np.ndarray]) -> list[Any]:
        with _without_dropout(model):
            return _results(model(_arranged(model, example, list(arrays.values())), training=True))

    with converting(type(model).__name__, "a model that runs", _ELSE):
        results = run(inputs)
    _check_random(model)
    check_constraints(model)
    _check_losses(model)
    moving = {id(v) for layer in _normalizations(model) for v in (layer.moving_mean, layer.moving_variance)}
    rest = {variable.path: variable.value for variable in model.variables if id(variable) not in moving}
    with converting(type(model).__name__, "a model that runs in training mode", _ELSE), _unchanged(model.variables):
        _check_writes(type(model).__name__, rest, lambda: train(inputs))
    with _operators(model) as momenta:
        proto = _to_onnx(
            type(model).__name__,
            lambda arrays: _results(model(_arranged(model, example, arrays), training=False)),
            inputs,
            axes,
            [(variable.path, variable.value) for variable in model.variables],
        )
    _set_momenta(proto, momenta)
    trained = {variable.path: variable.value for variable in model.trainable_variables}

    def differentiate(
        arrays: Mapping[str, np.ndarray], cotangents: Sequence[np.ndarray | None]
    ) -> dict[str, np.ndarray]:
        with _unchanged(model.variables):
            return _gradients(type(model).__name__, lambda: train(arrays), trained, cotangents)

    return Converted(proto, frozenset(trained), inputs, results, run, differentiate, axes=axes)


def _declared(model: Any) -> Any:
    """Zeros of the shapes that a model declares for its inputs."""
    declared = getattr(model, "inputs", None)
    if not declared or any(size is None for value in declared for size in value.shape[1:]):
        raise InputError(
            f"got {type(model).__name__} without example inputs; expected arrays to trace it with, the batch as first "
            "axis: pass example="
        )
    rng = np.random.default_rng(0)
    noise = [rng.standard_normal((2, *value.shape[1:])) for value in declared]
    return tuple(array.astype(str(value.dtype)) for array, value in zip(noise, declared, strict=True))


def _arranged(model: Any, example: Any, tensors: list[Any]) -> Any:
    """Inputs as the model takes them: one, a list, or a dict where the example is one."""
    if isinstance(example, Mapping):
        return dict(zip(example, tensors, strict=True))
    return tensors[0] if len(tensors) == 1 else tensors


def _results(result: Any) -> list[Any]:
    return [tensor for tensor in tf.nest.flatten(result) if tensor is not None]


def _check_random(model: Any) -> None:
    """Raise NetworkError for layers whose random numbers in training ONNX has no operator for."""
    for layer in _layers(model):
        drawn = [
            name for name in RATES if isinstance(getattr(layer, name, None), (int, float)) and getattr(layer, name)
        ]
        if hasattr(layer, "seed_generator") and drawn and type(layer).__name__ not in LAYERS:
            raise NetworkError(
                f"{model.name}: got layer {layer.name!r} ({type(layer).__name__}) with {drawn[0]}="
                f"{getattr(layer, drawn[0])}, which draws in training as no ONNX operator does; expected Dropout: set "
                " it to 0 and use that beside it, or train the model as it is: "
                "deep500.frameworks.tensorflow.from_native"
            )


def check_constraints(model: Any) -> None:
    """Raise NetworkError for variables that Keras' optimizers would bring back into a set after each step."""
    for variable in model.trainable_variables:
        constraint = getattr(variable, "constraint", None)
        if constraint is not None:
            raise NetworkError(
                f"{model.name}: got {type(constraint).__name__} for {variable.path!r}, which Keras' own optimizers "
                "apply after a step; expected no constraint: set the layer's to None, or train the model by Keras"
            )


def _check_losses(model: Any) -> None:
    """Raise NetworkError for terms of the loss that layers bring along, once the model has run."""
    if getattr(model, "losses", None):
        names = [layer.name for layer in _layers(model) if layer is not model and layer.losses] or [model.name]
        raise NetworkError(
            f"{model.name}: got a regularizer or add_loss in {', '.join(map(repr, names[:3]))}, whose terms Keras adds "
            "to the loss; expected a model without: set it to None and give the optimizer weight_decay, or train the "
            "model as it is: deep500.frameworks.tensorflow.from_native"
        )


def _layers(model: Any) -> list[Any]:
    return list(model._flatten_layers()) if hasattr(model, "_flatten_layers") else []


def _normalizations(model: Any) -> list[Any]:
    return [layer for layer in _layers(model) if type(layer).__name__ == "BatchNormalization"]


@contextlib.contextmanager
def _without_dropout(model: Any) -> Iterator[None]:
    """Set the rates of layers that drop to 0 for a while."""
    rates = [(layer, name) for layer in _layers(model) for name in ("rate", "_dropout") if getattr(layer, name, None)]
    before = [getattr(layer, name) for layer, name in rates]
    try:
        for layer, name in rates:
            object.__setattr__(layer, name, 0.0)
        yield
    finally:
        for (layer, name), rate in zip(rates, before, strict=True):
            object.__setattr__(layer, name, rate)


@contextlib.contextmanager
def _unchanged(variables: Sequence[Any]) -> Iterator[None]:
    """Give variables their values back in the end."""
    before = [np.copy(tf.convert_to_tensor(variable)) for variable in variables]
    try:
        yield
    finally:
        for variable, array in zip(variables, before, strict=True):
            variable.assign(array)


def _check_writes(where: str, variables: Mapping[str, Any], run: Callable[[], object]) -> None:
    """Raise NetworkError where running a model writes variables, which no operator carries over."""
    before = {name: np.copy(tf.convert_to_tensor(variable)) for name, variable in variables.items()}
    run()
    for name, variable in variables.items():
        if not np.array_equal(before[name], tf.convert_to_tensor(variable).numpy()):
            raise NetworkError(
                f"{where}: got a model that writes {name!r} when it runs in training, as no operator does; expected "
                "BatchNormalization alone to write: keep what it holds outside of the model, or train the model as it "
                "is: deep500.frameworks.tensorflow.from_native"
            )


@contextlib.contextmanager
def _operators(model: Any) -> Iterator[dict[str, float]]:
    """While a model is traced its normalizations and dropouts are operators; gives momenta by path of a moving mean."""
    momenta: dict[str, float] = {}
    changed = []
    try:
        for layer in _layers(model):
            forward: Callable[..., Any] | None = None
            if type(layer).__name__ == "BatchNormalization" and layer.trainable:
                momenta[layer.moving_mean.path] = float(layer.momentum)
                forward = _normalization(layer)
            elif type(layer).__name__ == "Dropout" and layer.rate > 0:
                forward = _dropout(layer)
            if forward is not None:
                object.__setattr__(layer, "call", forward)
                changed.append(layer)
        yield momenta
    finally:
        for layer in changed:
            object.__delattr__(layer, "call")


def _normalization(layer: Any) -> Callable[..., Any]:
    def call(inputs: Any, training: Any = None, mask: Any = None) -> Any:
        rank = len(inputs.shape)
        axis = layer.axis % rank
        order = [*(a for a in range(rank) if a != axis), axis]
        x = tf.transpose(inputs, order) if axis != rank - 1 else inputs
        mean, variance = tf.convert_to_tensor(layer.moving_mean), tf.convert_to_tensor(layer.moving_variance)
        scale = tf.convert_to_tensor(layer.gamma) if layer.scale else tf.ones_like(mean)
        offset = tf.convert_to_tensor(layer.beta) if layer.center else tf.zeros_like(mean)
        shape = tf.shape(x)
        flat = x if rank == 4 else tf.reshape(x, [-1, 1, 1, x.shape[-1]])
        y = tf.raw_ops.FusedBatchNormV3(
            x=flat, scale=scale, offset=offset, mean=mean, variance=variance, epsilon=layer.epsilon, is_training=False
        ).y
        y = y if rank == 4 else tf.ensure_shape(tf.reshape(y, shape), x.shape)
        return tf.transpose(y, np.argsort(order)) if axis != rank - 1 else y

    return call


_MARK = "deep500 dropout "


def _dropout(layer: Any) -> Callable[..., Any]:
    def marked(x: Any) -> Any:
        return tf.raw_ops.CheckNumerics(tensor=x, message=f"{_MARK}{layer.rate}")

    def call(inputs: Any, training: Any = None) -> Any:
        if layer.noise_shape is None:
            return marked(inputs)
        running = tf.shape(inputs)
        shape = [running[axis] if size is None else size for axis, size in enumerate(layer.noise_shape)]
        return inputs * marked(tf.ones(shape, inputs.dtype))  # one draw for all along an axis of size 1

    return call


def _as_dropout(context: Any, node: Any, name: str, args: Any) -> None:
    """Make ONNX's Dropout of the mark, and nothing of other checks."""
    message = node.get_attr_value("message")
    message = message.decode() if isinstance(message, bytes) else message
    node.type, node.domain = "Identity", ""
    for attribute in list(node.attr):
        del node.attr[attribute]
    if message.startswith(_MARK):
        ratio = np.array(float(message.removeprefix(_MARK)), np.float32)
        node.type = "Dropout"
        context.replace_inputs(node, [node.input[0], context.make_const(f"{name}_ratio", ratio).output[0]])


def _erfc(context: Any, node: Any, name: str, args: Any) -> None:
    """1 - erf(x), for Keras' GELU."""
    value, dtype = node.output[0], context.get_dtype(node.input[0])
    unit = context.make_const(f"{name}_one", np.array(1, onnx.helper.tensor_dtype_to_np_dtype(dtype)))
    erf = context.make_node("Erf", [node.input[0]], dtypes=[dtype])
    shape = context.get_shape(value)
    context.remove_node(node.name)
    context.make_node("Sub", [unit.output[0], erf.output[0]], outputs=[value], dtypes=[dtype], shapes=[shape])


def _stop(context: Any, node: Any, name: str, args: Any) -> None:
    """Write StopGradient as the node of that name, which tf2onnx would leave out."""
    node.type, node.domain = STOP, DOMAIN
    for attribute in list(node.attr):
        del node.attr[attribute]


_HANDLERS: dict[str, tuple[Callable[..., None], list[Any]]] = {
    "CheckNumerics": (_as_dropout, []),
    "Erfc": (_erfc, []),
    "StopGradient": (_stop, []),
}


def _set_momenta(proto: onnx.ModelProto, momenta: Mapping[str, float]) -> None:
    for node in proto.graph.node:
        if node.op_type == "BatchNormalization" and node.input[3] in momenta:
            others = [a for a in node.attribute if a.name != "momentum"]
            del node.attribute[:]
            node.attribute.extend([*others, onnx.helper.make_attribute("momentum", momenta[node.input[3]])])


# -- functions and SavedModels -----------------------------------------------------------------------------------------
def _of_function(model: Any, example: Any, dynamic_axes: Mapping[str, Any]) -> Converted:
    function, where = _function(model), type(model).__name__
    concrete = function if hasattr(function, "structured_input_signature") else None
    if concrete is None:
        if example is None:
            raise InputError(
                f"got {where} without example inputs; expected arrays to trace it with, the batch as first axis: pass "
                "example="
            )
        inputs = named_inputs(example, [])
        specs = _specs(inputs, free_axes(inputs, dynamic_axes), inputs)
        with converting(where, "a model that runs", _ELSE):
            concrete = function.get_concrete_function(*specs)
    else:
        inputs = _of_signature(concrete, example)
    names, axes = list(inputs), free_axes(inputs, dynamic_axes)

    def run(arrays: Mapping[str, np.ndarray], alive: Any = model) -> list[Any]:  # with it go a SavedModel's variables
        return _called(concrete, names, [tf.constant(array) for array in arrays.values()])

    with converting(where, "a model that runs", _ELSE), _unchanged(concrete.variables):
        results: list[Any] = []
        state = {_name(variable): variable for variable in concrete.variables}
        _check_writes(where, state, lambda: results.extend(run(inputs)))
    variables = [(_name(variable), variable) for variable in concrete.variables]
    proto = _to_onnx(where, lambda arrays: _called(concrete, names, arrays), inputs, axes, variables)
    trained = {_name(variable): variable for variable in concrete.trainable_variables}

    def differentiate(
        arrays: Mapping[str, np.ndarray], cotangents: Sequence[np.ndarray | None]
    ) -> dict[str, np.ndarray]:
        return _gradients(where, lambda: run(arrays), trained, cotangents)

    arrays = [np.asarray(result) for result in results]

    def evaluate(arrays: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        return [np.asarray(result) for result in run(arrays)]

    return Converted(proto, frozenset(trained), inputs, arrays, evaluate, differentiate, axes=axes)


def _called(concrete: Any, names: Sequence[str], tensors: Sequence[Any]) -> list[Any]:
    if concrete.structured_input_signature[1]:
        return _results(concrete(**dict(zip(names, tensors, strict=True))))
    return _results(concrete(*tensors))


def _function(model: Any) -> Any:
    """The function to call: the model itself, the serving signature of a SavedModel, or the only one."""
    if hasattr(model, "structured_input_signature") or hasattr(model, "get_concrete_function"):
        return model
    signatures = getattr(model, "signatures", None)
    if signatures:
        return signatures["serving_default"] if "serving_default" in signatures else next(iter(signatures.values()))
    call = getattr(model, "__call__", None)  # noqa: B004 - the function itself, not whether there is one
    if hasattr(call, "get_concrete_function"):
        return call
    if callable(model):
        return tf.function(model, autograph=False)
    raise InputError(
        f"got {type(model).__name__} as a model; expected a tf.function, a SavedModel with a signature, or a callable "
        "tf.Module: save it with signatures="
    )


def _of_signature(concrete: Any, example: Any) -> dict[str, np.ndarray]:
    """Inputs for a traced function: the example, or random numbers of the shapes that it declares."""
    positional, keywords = concrete.structured_input_signature
    declared = {**{f"input_{n}": spec for n, spec in enumerate(tf.nest.flatten(positional))}, **keywords}
    if example is None:
        if any(spec.shape.rank is None or None in spec.shape.as_list()[1:] for spec in declared.values()):
            raise InputError(
                f"got a function of {', '.join(map(str, declared.values()))} without example inputs; expected arrays, "
                "as some sizes are open: pass example="
            )
        rng = np.random.default_rng(0)
        example = {
            name: rng.standard_normal((2, *spec.shape.as_list()[1:])).astype(spec.dtype.as_numpy_dtype)
            for name, spec in declared.items()
        }
    inputs = named_inputs(example, list(declared))
    return dict(zip(declared, inputs.values(), strict=True)) if len(inputs) == len(declared) else inputs


# -- gradients ---------------------------------------------------------------------------------------------------------
def _gradients(
    where: str, run: Callable[[], list[Any]], variables: Mapping[str, Any], cotangents: Sequence[np.ndarray | None]
) -> dict[str, np.ndarray]:
    """The model's own gradients of the sum of outputs times cotangents."""
    with tf.GradientTape() as tape:
        pairs = zip(run(), cotangents, strict=True)
        loss = tf.add_n([tf.reduce_sum(result * tf.cast(c, result.dtype)) for result, c in pairs if c is not None])
    try:
        gradients = tape.gradient(loss, list(variables.values()), unconnected_gradients=tf.UnconnectedGradients.ZERO)
    except LookupError as error:  # a SavedModel written without the gradients of its functions
        warnings.warn(
            f"{where}: TensorFlow itself has no gradient of this model ({error}); the network's gradients are those of "
            "what it computes, and were not compared",
            stacklevel=2,
        )
        return {}
    return {name: tf.convert_to_tensor(g).numpy() for name, g in zip(variables, gradients, strict=True)}


_KIND = "_gradient_op_type"
"""Attribute of a node whose gradient is a function of its own, by the name that this is registered under."""


def _check_own_gradients(where: str, graph: Any) -> None:
    """Raise NetworkError for gradients of the user's own: tf2onnx takes such functions for what they compute forward.

    Those of TensorFlow's and Keras's own functions (swish) are true derivatives, written down to save memory; where
    they are not, as in quantization, the gradients differ when they are compared.
    """
    for node in (*graph.node, *(node for function in graph.library.function for node in function.node_def)):
        function = _own_gradient(node.attr[_KIND].s.decode()) if _KIND in node.attr else None
        if function is None:
            continue
        code = function.__code__
        raise NetworkError(
            f"{where}: got a gradient of its own, {function.__qualname__} in {code.co_filename}:{code.co_firstlineno} "
            f"(tf.custom_gradient), which tf2onnx leaves out; expected operators' own: write it with tf.stop_gradient, "
            f"such as x + tf.stop_gradient(f(x) - x), or {_ELSE}"
        )


def _own_gradient(kind: str) -> Any:
    """The function registered as a kind of gradient; None for those of TensorFlow and Keras, and of a SavedModel."""
    try:
        function = ops.gradient_registry.lookup(kind)
    except LookupError:
        return None
    # tf.custom_gradient wraps what the user wrote; each wrapper holds the next one under one of these names
    for cell in ("tape_grad_fn", "grad_fn"):
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        function = cells[cell].cell_contents if cell in cells else function
    package = function.__module__.partition(".")[0]
    return None if package in ("tensorflow", "keras", "tf_keras") else function


@contextlib.contextmanager
def _in_line() -> Iterator[None]:
    """Within it functions are traced into what calls them, those for XLA too, as Keras has grouped convolutions."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


# -- tf2onnx -----------------------------------------------------------------------------------------------------------
def _to_onnx(
    where: str,
    call: Callable[[list[Any]], list[Any]],
    inputs: Mapping[str, np.ndarray],
    axes: Axes,
    variables: Sequence[tuple[str, Any]],
) -> onnx.ModelProto:
    """The ONNX model of ``call(inputs)``, the variables that it reads as initializers of these names."""
    convert = converter("tf2onnx", "Keras or TensorFlow", "import-tensorflow", _ELSE).convert

    def traced(*tensors: Any) -> list[Any]:
        with _in_line():
            return [tf.identity(result, name=f"result_{number}") for number, result in enumerate(call(list(tensors)))]

    specs = _specs(inputs, axes, [f"given_{number}" for number in range(len(inputs))])
    with converting(where, "a model that converts", _ELSE), quiet("tf2onnx", "tensorflow"):
        concrete = tf.function(traced, autograph=False).get_concrete_function(*specs)
        _check_own_gradients(where, concrete.graph.as_graph_def())
        graph, values = _with_open_variables(concrete, variables)
        arguments = [tensor.name for tensor in concrete.inputs[: len(inputs)]]
        names = dict(zip(arguments, inputs, strict=True)) | {f"{node}:0": name for node, (name, _) in values.items()}
        outputs = [tensor.name for tensor in concrete.outputs]
        names |= {o: "output" if len(outputs) == 1 else f"output_{n}" for n, o in enumerate(outputs)}
        read = [*arguments, *(f"{node}:0" for node in values)]
        proto, _ = convert.from_graph_def(
            graph,
            input_names=read,
            output_names=outputs,
            opset=OPSET,
            custom_op_handlers=_HANDLERS,
            extra_opset=[onnx.helper.make_opsetid(DOMAIN, 1)],
        )
    nodes = list(_nodes(proto.graph))
    for node in nodes:  # branches lose it where tf2onnx optimizes them
        node.domain = DOMAIN if node.op_type == STOP else node.domain
    unknown = sorted({n.op_type for n in nodes if n.domain == "" and not onnx.defs.has(n.op_type)})
    if unknown:
        raise NetworkError(
            f"{where}: got TensorFlow operators that tf2onnx does not convert: {', '.join(unknown)}; expected others: "
            f"write the model with other layers, or {_ELSE}"
        )
    rename_values(proto.graph, names)
    bind_inputs(proto, dict(values.values()))
    for value in proto.graph.input:
        for axis, name in axes[value.name].items():
            value.type.tensor_type.shape.dim[axis].dim_param = name
    return proto


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of the branches and bodies in it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from _nodes(attribute.g)


def _specs(inputs: Mapping[str, np.ndarray], axes: Axes, names: Iterable[str]) -> list[Any]:
    """Specifications to trace a function with: free axes have no size."""
    return [
        tf.TensorSpec([None if n in axes[key] else size for n, size in enumerate(array.shape)], array.dtype, name=name)
        for (key, array), name in zip(inputs.items(), names, strict=True)
    ]


def _with_open_variables(concrete: Any, variables: Sequence[tuple[str, Any]]) -> tuple[Any, dict[str, Any]]:
    """A function's graph in which variables are placeholders, and by placeholder the variable's name and value."""
    names = {id(variable.handle): name for name, variable in variables}
    captured = {inner.op.name: names[id(outer)] for outer, inner in concrete.graph.captures if id(outer) in names}
    graph = convert_variables_to_constants_v2(concrete, lower_control_flow=False).graph.as_graph_def()
    values = {}
    for node in graph.node:
        if node.op == "Const" and node.name in captured:
            array = tf.make_ndarray(node.attr["value"].tensor)
            values[node.name] = (captured[node.name], array)
            dtype = node.attr["dtype"].type
            node.op = "Placeholder"
            node.attr.clear()
            node.attr["dtype"].type = dtype
            node.attr["shape"].shape.CopyFrom(tf.TensorShape(array.shape).as_proto())
    return graph, values


def _name(variable: Any) -> str:
    return str(getattr(variable, "path", None) or variable.name).partition(":")[0]
