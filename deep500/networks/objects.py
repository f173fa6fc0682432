"""`as_network`: whatever a user has as a model, as a `Network`: a framework's own object, an ONNX file or message.

Each framework's objects are converted by ``importing.py`` in its backend's folder, which knows the framework and this
file only. The framework is told from the object's type, so nothing is imported that is not imported already. What comes
back is held against the object's own outputs, on other sizes of every free axis than it was traced with.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx

from deep500.errors import Deep500Error, InputError, NetworkError
from deep500.networks.emit import Emitter
from deep500.networks.network import Choice, Network
from deep500.networks.onnx.tying import join_copies
from deep500.networks.quiet import quiet
from deep500.registry import framework_of, load_backend, load_importer, loaded_frameworks
from deep500.tensors import TensorDescriptor, numpy_dtype

T = TypeVar("T")
TOLERANCES = {"float64": 1e-6, "float32": 1e-3, "float16": 3e-2, "bfloat16": 1e-1}
"""How far a converted model may be from the object itself, of the largest value; a wrong trace is far beyond."""
GRADIENT = 10
"""How much farther gradients may be."""
SMALLEST = 1e-3
"""A parameter whose gradients are smaller, of the largest of all, is compared with that share of the largest."""
ROUNDING = {"float64": 2.0**-50, "float32": 2.0**-22, "float16": 2.0**-9}
"""How far inputs are moved, relative, where gradients are doubted; and how many times as far these may be apart."""
TIMES = 20.0
TRACED, CHECKED = 2, 3
"""Batch sizes: of one, a tracer cannot tell batches from broadcast axes."""
BATCH = "N"
"""Symbolic size of the first axis of every input, as converters write it."""
Axes = Mapping[str, Mapping[int, str]]
"""Names of free sizes, by input and axis."""


@dataclass(frozen=True)
class Converted:
    """Result of a framework's ``importing.convert``: the model, and how to compare it with the object.

    Attributes:
        model: the free axes of its inputs symbolic, initializers named as the framework names its parameters.
        trainable: the initializers that train; None: to be judged like those of a file.
        inputs: what it was traced with, by name.
        results: the object's own outputs, in evaluation, of these inputs, in the model's order.
        evaluate: the object's own outputs, in evaluation, of inputs by name, in the model's order.
        differentiate: the object's own gradients, by the parameters' names, of the sum of outputs times cotangents (in
            the model's order, None for outputs that are no floats), in training mode without dropout; None: unknown.
        otherwise: converts by another route, for a model that is not what the object computes; None: there is none.
        axes: the free axes, the first of every input among them.
        doubt: says why the model's outputs may differ from the object's, with its line; empty if nothing is known.
    """

    model: onnx.ModelProto
    trainable: frozenset[str] | None
    inputs: Mapping[str, np.ndarray]
    results: list[np.ndarray]
    evaluate: Callable[[Mapping[str, np.ndarray]], list[np.ndarray]]
    differentiate: Callable[[Mapping[str, np.ndarray], list[np.ndarray | None]], dict[str, np.ndarray]] | None = None
    otherwise: Callable[[], onnx.ModelProto] | None = None
    axes: Axes = field(default_factory=dict)
    doubt: Callable[[], str] = str


def is_model(value: Any) -> bool:
    """Whether a value is a model as it stands (`as_network` takes it), not a name or a callable that makes one."""
    if isinstance(value, (Network, onnx.ModelProto)) or is_pair(value):
        return True
    return not isinstance(value, type) and framework_of(value) is not None


def is_pair(value: Any) -> bool:
    """Whether a value is a function with its tree of parameters, as JAX programs have them."""
    return isinstance(value, tuple) and len(value) == 2 and callable(value[0]) and isinstance(value[1], (Mapping, list))


def as_network(
    model: Any,
    example: Any = None,
    *,
    trainable: Choice | None = None,
    seed: int = 0,
    check: bool = True,
    dynamic_axes: Mapping[str, Mapping[int, str] | Sequence[int]] | None = None,
) -> Network:
    """The `Network` of a model in whatever form a user has it.

    Args:
        model: a `Network` (returned as it is); an ONNX file or message; a ``torch.nn.Module``, transformers' models
            among them; a ``keras.Model``; a TensorFlow function or the folder of a SavedModel; a ``flax.nnx`` module;
            a pair of a JAX function and its tree of parameters, called ``function(parameters, *inputs)``; or a class or
            function that returns one of these, called without arguments after the frameworks' generators are seeded.
        example: inputs for tracing: an array, a tuple of arrays, or a dict, whose names are then passed as keywords.
            Their first axis is the batch, of any size. Files need none.
        trainable: the parameters that train, see :func:`deep500.networks.onnx.load.load`; None: those that the object
            trains (``requires_grad``, ``trainable_variables``, every floating array of a JAX tree).
        seed: of the generators before a class or function is called.
        check: compare the network's outputs with the object's own, and its gradients in training mode.
        dynamic_axes: axes of inputs that are free beside the first, as ``torch.onnx.export`` takes them:
            ``{"input_ids": {1: "length"}}``, or ``{"input_ids": [1]}`` for a name of its own. Axes of one name have one
            size. For objects alone: a file says itself which of its sizes are free.

    Returns:
        parameters named as the framework names them; one input is called ``input``, several are called as the
        arguments, with ``_input`` behind it where a parameter has that name; the batch axis is symbolic; normalization
        and dropout follow the executor's mode where the framework has one.

    Raises:
        InputError: no such kind of model, no example for one that must be traced, or free axes that no input has.
        NetworkError: the framework's exporter refuses the model, or the network computes something else.
        MissingBackend: a converter is not installed; the message says which.

    Example:
        >>> from onnx import parser
        >>> text = "g (float[N,4] x) => (float[N,3] y) <float[4,3] w = {1,1,1,1,1,1,1,1,1,1,1,1}> { y = MatMul(x, w) }"
        >>> as_network(parser.parse_model('<ir_version: 10, opset_import: ["": 20]>' + text)).trainable()
        ['w']
    """
    if isinstance(model, Network):
        return model
    if isinstance(model, (str, os.PathLike)) and is_saved_model(model):
        framework: str | None = "tensorflow"
    elif isinstance(model, (str, os.PathLike, bytes, onnx.ModelProto)):
        if dynamic_axes:
            raise InputError(
                "got dynamic_axes with an ONNX file; expected them with a framework's object: export the file anew "
                "with these axes free"
            )
        return Network.from_onnx(model, trainable)
    else:
        framework = "jax" if is_pair(model) else None if isinstance(model, type) else framework_of(model)
    if framework is not None:
        return _converted(framework, model, example, trainable, check, dynamic_axes or {})
    return as_network(_built(model, seed), example, trainable=trainable, check=check, dynamic_axes=dynamic_axes)


def _built(function: Any, seed: int) -> Any:
    """The model that a class or function returns."""
    if not callable(function):
        raise InputError(
            f"got {type(function).__name__} as a model; expected a Network, an ONNX file, an object of PyTorch, Keras, "
            "TensorFlow or JAX, or a callable that returns one: pass one of these"
        )
    with seeded(seed):
        model = function()
    if not is_model(model):
        raise InputError(
            f"got {type(model).__name__} from {getattr(function, '__qualname__', function)}(); expected a model: "
            "return one, or a pair of a JAX function and its parameters"
        )
    return model


def is_saved_model(path: str | os.PathLike[str]) -> bool:
    """Whether a path is the folder of a TensorFlow SavedModel."""
    return (Path(path) / "saved_model.pb").is_file()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the generators of every framework that is imported, for as long as an object is made, then restore them."""
    with ExitStack() as stack:
        for framework in loaded_frameworks():
            stack.enter_context(load_importer(framework).seeded(seed))
        yield


def fingerprint(model: Any) -> str | None:
    """SHA-256 over names and values of the parameters of a framework's object; None for what is none."""
    framework = None if isinstance(model, type) else framework_of(model)
    return None if framework is None else load_importer(framework).fingerprint(model)


def named_inputs(example: Any, names: list[str]) -> dict[str, np.ndarray]:
    """Example inputs as arrays by name, two samples of each; one input is called ``input``, several as the arguments.

    Raises:
        InputError: what is no array, or has no batch axis.
    """
    if isinstance(example, Mapping):
        values = dict(example)
    else:
        several = example if isinstance(example, tuple) else (example,)
        if len(several) > 1 and len(names) < len(several):
            names = [f"input_{number}" for number in range(len(several))]
        values = {"input": several[0]} if len(several) == 1 else dict(zip(names, several, strict=False))
    arrays = {name: _array(name, value) for name, value in values.items()}
    return {name: resized(array, TRACED) for name, array in arrays.items()}


def free_axes(inputs: Mapping[str, np.ndarray], dynamic_axes: Mapping[str, Any]) -> Axes:
    """Names of all free axes by input, the batch's among them.

    Raises:
        InputError: an input or an axis that there is not, or one name for axes of several sizes.
    """
    axes: dict[str, dict[int, str]] = {name: {0: BATCH} for name in inputs}
    sizes = {BATCH: TRACED}
    for name, free in dynamic_axes.items():
        if name not in inputs:
            raise InputError(f"got dynamic_axes of {name!r}; expected names of inputs: {', '.join(inputs)}")
        names = free if isinstance(free, Mapping) else {axis: f"{name}_{axis}" for axis in free}
        for axis, size in names.items():
            shape = inputs[name].shape
            if not 0 <= axis < len(shape):
                raise InputError(
                    f"got dynamic_axes with axis {axis} of {name!r}; expected one of its {len(shape)}, from 0"
                )
            if axis and sizes.setdefault(size, shape[axis]) != shape[axis]:
                raise InputError(
                    f"got dynamic_axes with {size!r} for sizes {sizes[size]} and {shape[axis]}; expected two names"
                )
            axes[name].setdefault(axis, size)
    return axes


def resized(array: np.ndarray, size: int, axis: int = 0) -> np.ndarray:
    """That many entries along an axis: the array's own, from the first again where there are too few.

    Numbers are then varied, and zeros replaced: equal samples would hide what a network does across a batch.
    """
    numbers, length = np.arange(size), array.shape[axis]
    result = array.take(numbers % length, axis)
    if not _floating(array):
        return result
    if not array.any():
        return np.random.default_rng(0).standard_normal(result.shape).astype(array.dtype)
    factors = (1 + numbers // length / 8).reshape(-1, *[1] * (array.ndim - axis - 1))
    return (result * factors).astype(array.dtype)


def _array(name: str, value: Any) -> np.ndarray:
    value = value.detach().cpu() if hasattr(value, "detach") else value
    small = str(getattr(value, "dtype", "")) == "torch.bfloat16"  # which NumPy knows by ml_dtypes alone
    array = value.float().numpy().astype(numpy_dtype("bfloat16")) if small else np.asarray(value)
    if array.dtype == object or array.ndim == 0 or not len(array):
        raise InputError(
            f"example input {name!r}: got {type(value).__name__}; expected an array with the batch as its first axis: "
            "pass one sample or more"
        )
    return array


def _converted(
    framework: str, model: Any, example: Any, trainable: Choice | None, check: bool, dynamic_axes: Mapping[str, Any]
) -> Network:
    converted: Converted = _quietly(lambda: load_importer(framework).convert(model, example, dynamic_axes))
    network = _read(converted, trainable)
    if not check:
        return network
    try:
        _check(network, framework, model, converted, trainable is None)
    except NetworkError as wrong:
        if converted.otherwise is None:
            raise
        try:
            other = replace(converted, model=_quietly(converted.otherwise))
            network = _read(other, trainable)
            _check(network, framework, model, other, trainable is None)
        except Deep500Error as error:
            if str(error) == str(wrong):
                raise
            raise NetworkError(f"{wrong}; and by the other route: {error}") from error
    return network


def _read(converted: Converted, trainable: Choice | None) -> Network:
    with warnings.catch_warnings():
        if converted.trainable is not None:
            warnings.simplefilter("ignore")  # doubts about what trains: the object says it
            join_copies(converted.model.graph, converted.trainable)
        return Network.from_onnx(converted.model, trainable or _exactly(converted.trainable))


def _quietly(convert: Callable[[], T]) -> T:
    """Call a converter with its output kept away; where it refuses, the last error that it wrote stands in its own."""
    with quiet() as written:
        try:
            return convert()
        except NetworkError as error:
            lines = [line for line in written().splitlines() if re.search("error", line, re.IGNORECASE)]
            if not lines:
                raise
            raise NetworkError(f"{error}; it wrote: {lines[-1][:200]}") from error.__cause__


def _exactly(names: frozenset[str] | None) -> Choice | None:
    return None if names is None else lambda name, _: name in names


def _check(network: Network, framework: str, model: Any, converted: Converted, whole: bool) -> None:
    """Raise NetworkError unless the network's outputs and gradients are the object's own.

    The two are compared on samples of other numbers than the trace's, by one executor of the network without dropout.
    ``whole`` tells that all must train that does in the object.
    """
    inputs, expected = _evaluated(model, converted)
    trained = frozenset(network.trainable()) | (converted.trainable or frozenset() if whole else frozenset())
    differentiable = converted.differentiate is not None and bool(trained)
    work, loss = _weighted(network, converted.results, expected) if differentiable else (network.copy(), None)
    executor = load_backend(framework).from_model(work)
    zeros = {WEIGHT.format(name): np.zeros_like(y) for name, y in zip(network.outputs, expected, strict=True)}
    got = executor.inference({n: a for n, a in {**inputs, **zeros}.items() if n in work.inputs})
    sizes = _free_sizes(converted, inputs)
    for name, traced, want in zip(network.outputs, converted.results, expected, strict=True):
        pairs = zip(traced.shape, want.shape, strict=True)
        shape = tuple(a if a == b else sizes.get((a, b)) for a, b in pairs)
        network.declare({name: TensorDescriptor(str(want.dtype), shape)})  # inference of shapes may have lost some
        array = executor.network.to_numpy(got[name])
        if array.shape != want.shape:
            apart = f"of shape {array.shape}, not {want.shape}"
        else:
            error = _apart(array, want)
            if error <= TOLERANCES.get(str(want.dtype), 0.0):
                continue
            apart = f"up to {error:.1e} of its largest value off"
        others = "".join(f", {size} {n}" for (_, n), size in sizes.items() if size != BATCH)
        raise NetworkError(
            converted.doubt()
            or f"{type(model).__name__}: got a converted model whose output {name!r} is {apart}, on {CHECKED} samples"
            f"{others}; expected the model's own output: branches and loops must not depend on values or on the batch "
            "size, and nothing may be random in evaluation; mend the model, or pass check=False if you know why"
        )
    if loss is not None:
        _check_gradients(network, executor, loss, model, converted, trained)


def _evaluated(model: Any, converted: Converted) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """Inputs of other sizes along every free axis than the trace's, and the object's own outputs of them."""
    samples = {name: resized(array, CHECKED) for name, array in converted.inputs.items()}
    names = [*dict.fromkeys(size for axes in converted.axes.values() for size in axes.values() if size != BATCH)]
    if not names:
        return samples, converted.evaluate(samples)
    errors = []
    for other in OTHER_SIZES:  # not every size is one that a model takes: patches, strides, tables of positions
        inputs = dict(samples)
        for name, axes in converted.axes.items():
            for axis, size in axes.items():
                if size != BATCH:
                    length = other(inputs[name].shape[axis], names.index(size))
                    inputs[name] = resized(inputs[name], length, axis)
        try:
            return inputs, converted.evaluate(inputs)
        except Exception as error:  # noqa: BLE001 - whatever the user's own code raises
            errors.append(f"{[*(array.shape for array in inputs.values())]}: {type(error).__name__}")
    raise NetworkError(
        f"{type(model).__name__}: got dynamic_axes {', '.join(names)}, and no other size that the model itself takes "
        f"({'; '.join(errors)}); expected axes that are free there, too: leave them out"
    )


OTHER_SIZES: tuple[Callable[[int, int], int], ...] = (
    lambda size, number: size + 1 + number,
    lambda size, number: max(size - 1 - number, 1),
    lambda size, number: 2 * size,
    lambda size, number: max(size // 2, 1),
)
"""Sizes beside the trace's by that and the axis's number, tried in this order."""


def _free_sizes(converted: Converted, inputs: Mapping[str, np.ndarray]) -> dict[tuple[int, int], str]:
    """Names by the sizes of the trace and of the check."""
    return {
        (converted.inputs[name].shape[axis], inputs[name].shape[axis]): size
        for name, axes in converted.axes.items()
        for axis, size in axes.items()
    }


WEIGHT = "check/weight:{}"
"""How the inputs are called by which the outputs of a network are multiplied while it is checked."""


def _weighted(network: Network, traced: list[np.ndarray], checked: list[np.ndarray]) -> tuple[Network, str | None]:
    """A copy without dropout, and the sum of its floating outputs times inputs like them; None if it has none.

    Args:
        network: whose outputs are summed.
        traced, checked: the outputs of as many samples; a size that differs as these do is the batch's.
    """
    work = still_network(network)
    emit, terms = Emitter(work, "check/"), []
    for name, a, b in zip(network.outputs, traced, checked, strict=True):
        if _floating(a) and a.size:
            weight = WEIGHT.format(name)
            sizes = zip(a.shape, b.shape, strict=True)
            shape = tuple(i if i == k else BATCH if (i, k) == (TRACED, CHECKED) else None for i, k in sizes)
            work.add_input(weight, shape, str(a.dtype))
            terms.append(emit("ReduceSum", emit("Mul", name, weight), keepdims=0))
    if not terms:
        return work, None
    loss = terms[0]
    for term in terms[1:]:
        loss = emit("Add", loss, term)
    work.add_output(loss)
    return work, loss


def _check_gradients(
    network: Network, executor: Any, loss: str, model: Any, converted: Converted, trained: frozenset[str]
) -> None:
    """Raise NetworkError unless the gradients of these parameters are the object's own, in training without dropout.

    The gradient of what the network does not have, or does not train, is zero.
    """
    generator = np.random.default_rng(0)
    weights = {
        name: generator.standard_normal(y.shape).astype(y.dtype) if _floating(y) and y.size else None
        for name, y in zip(network.outputs, converted.results, strict=True)
    }
    tried, expected = _differentiated(type(model).__name__, converted, list(weights.values()))
    got: dict[str, np.ndarray] = {}
    names = executor.network.gradient(loss)
    if names:
        read = {name: array for name, array in tried.items() if name in network.inputs}
        read |= {WEIGHT.format(name): array for name, array in weights.items() if array is not None}
        executor.inference_and_backprop(read, loss)
        values = executor.network.fetch_tensors([gradient for _, gradient in names])
        got = {name: executor.network.to_numpy(value) for (name, _), value in zip(names, values, strict=True)}
    largest = max((np.abs(g).max(initial=0) for g in expected.values()), default=0.0)
    errors = {
        name: _apart(
            got[name] if name in got else np.zeros_like(expected[name]), expected[name], SMALLEST * float(largest)
        )
        for name in sorted(trained & set(expected))
    }
    doubted = [name for name, e in errors.items() if e > GRADIENT * TOLERANCES.get(str(expected[name].dtype), 0.0)]
    if doubted:
        again = converted.differentiate(_disturbed(tried), list(weights.values()))  # type: ignore[misc]
        doubted = [n for n in doubted if errors[n] > TIMES * _apart(again[n], expected[n], SMALLEST * float(largest))]
    worst = max(doubted, key=lambda name: errors[name], default=None)
    if worst is not None:
        raise NetworkError(
            f"{type(model).__name__}: got a converted model whose gradient of parameter {worst!r} is up to "
            f"{errors[worst]:.1e} of its largest value off, in training mode without dropout; expected the model's "
            "own: something cuts or changes gradients, or branches on values, where the trace does not show it; mend "
            "the model, or pass check=False if you know why"
        )


def _differentiated(
    kind: str, converted: Converted, cotangents: list[np.ndarray | None]
) -> tuple[Mapping[str, np.ndarray], dict[str, np.ndarray]]:
    """Inputs, of other signs and scales than the example's where the object takes these, and its gradients."""
    assert converted.differentiate is not None
    inputs = converted.inputs
    others = {name: _varied(array) for name, array in inputs.items()}
    try:
        with np.errstate(all="ignore"):
            gradients = converted.differentiate(others, cotangents)
        if all(np.isfinite(g.astype(np.float64)).all() for g in gradients.values()):
            return others, gradients
    except (RuntimeError, ValueError, IndexError, ArithmeticError, AssertionError):
        pass  # a model may refuse what its example does not hold: its own values decide
    try:
        return inputs, converted.differentiate(inputs, cotangents)
    except (RuntimeError, ValueError, IndexError, ArithmeticError, AssertionError, TypeError) as error:
        line = next(iter(str(error).splitlines()), "")
        raise NetworkError(
            f"{kind}: got {type(error).__name__} from its own gradient ({line}); expected a model that its framework "
            "differentiates (a loop with a length, such as lax.scan, for lax.while_loop): mend it, or pass check=False "
            "for a network that only runs"
        ) from error


def _varied(array: np.ndarray) -> np.ndarray:
    """Values of other signs and scales; integers, and floats that are all 0 or 1, come in another order."""
    if not _floating(array) or np.isin(array, (0, 1)).all():
        return array[..., ::-1].copy()
    factors = np.array([-2, 0.5])[np.arange(len(array)) % 2].reshape(-1, *[1] * (array.ndim - 1))
    return (array * factors).astype(array.dtype)


def _disturbed(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Inputs as far away as rounding takes them, to learn what it does to gradients of many layers."""
    generator = np.random.default_rng(0)
    result = dict(inputs)
    for name, array in inputs.items():
        if _floating(array):
            signs = generator.choice(np.array([-1, 1]), array.shape)
            result[name] = (array * (1 + ROUNDING.get(str(array.dtype), 2**-8) * signs)).astype(array.dtype)
    return result


def _floating(array: np.ndarray) -> bool:
    return array.dtype.kind not in "iubOSU"


def still_network(network: Network) -> Network:
    """A copy whose Dropout nodes drop nothing in training, for comparisons."""
    work = network.copy()
    emit = Emitter(work, "still/")
    for node in work.nodes:
        if node.op_type == "Dropout" and not node.domain:
            ratio = work.parameters.get(node.inputs[1]) if len(node.inputs) > 1 else None
            zero = emit.constant(np.zeros((), "float32" if ratio is None else ratio.value.dtype))
            work.replace(node.name, "Dropout", [node.inputs[0], zero, *node.inputs[2:]])
    return work


def _apart(got: np.ndarray, want: np.ndarray, least: float = 1e-30) -> float:
    """Largest difference, of the largest value or of ``least`` if that is more.

    0 for equal infinities and for what is no number in both.
    """
    if got.dtype == want.dtype == np.float32 and got.size:  # in one pass and without copies, where all is finite
        apart, scale = np.abs(got - want).max(), np.abs(want).max()
        if np.isfinite(apart) and np.isfinite(scale):
            return float(apart) / max(float(scale), least, 1e-30)
    a, b = got.astype(np.float64), want.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return 0.0
    apart = np.abs(np.where(same, 0.0, a - b)).max()
    scale = np.abs(b[np.isfinite(b)]).max(initial=0.0)
    return float(apart / max(scale, least, 1e-30)) if np.isfinite(apart) else float("inf")
