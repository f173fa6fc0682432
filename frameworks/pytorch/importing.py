"""From a ``torch.nn.Module`` to an ONNX model: every parameter under its own name, in a form that still trains.

PyTorch's legacy exporter traces a copy of the module in training mode: it needs no other package, keeps parameters and
their names, and leaves normalization and dropout as operators, which follow the executor's mode afterwards. What it
refuses or gets wrong is tried by ``torch.export`` (``importing_export.py``). What both have no operator for is written
by hand first: functions by ``importing_functions.py``, dropout between the layers of a recurrent network, and
normalization by a batch's own or by frozen statistics. What cuts or changes a gradient is carried by
``importing_gradients.py``, and branches on values are found by ``importing_branches.py``. What is drawn at random in
training alone is carried by ``importing_chance.py``.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import inspect
import io
import types
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from deep500.errors import Deep500Error, InputError, NetworkError
from deep500.networks.objects import Axes, Converted, free_axes, named_inputs
from deep500.networks.protos import tensor_proto
from deep500.registry import load_importer
from deep500.tensors import numpy_dtype

_branches = load_importer("pytorch", "importing_branches")
_chance = load_importer("pytorch", "importing_chance")
_functions = load_importer("pytorch", "importing_functions")
_gradients = load_importer("pytorch", "importing_gradients")

LOSSES = {"cross_entropy": torch.nn.functional.cross_entropy, "mean_squared_error": torch.nn.functional.mse_loss}
"""Losses of recipes."""
OPSET = 18
"""The newest that the exporter writes well; reading converts it up."""


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed PyTorch's generators on the CPU, and restore them afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(seed)
        yield


def fingerprint(module: Any) -> str | None:
    """SHA-256 over names and values of a module's parameters and buffers; None for another object."""
    if not isinstance(module, torch.nn.Module):
        return None
    sha = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        if isinstance(tensor, torch.Tensor):
            sha.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
            sha.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()


def convert(module: Any, example: Any, dynamic_axes: Mapping[str, Any]) -> Converted:
    """Trace a copy of a module; the module stays as it is.

    Raises:
        InputError: no module, or no example inputs.
        NetworkError: the exporter refuses it.
    """
    if not isinstance(module, torch.nn.Module):
        raise InputError(
            f"got {type(module).__name__} as a model; expected a torch.nn.Module: wrap what it computes in one"
        )
    if example is None:
        raise InputError(
            f"got {type(module).__name__} without example inputs; expected arrays to trace it with, the batch as first "
            "axis: pass example= (an array, a tuple, or a dict of the arguments' names)"
        )
    module = getattr(module, "_orig_mod", module)  # what torch.compile wraps
    empty = [n for n, tensor in module.state_dict().items() if isinstance(tensor, torch.Tensor) and tensor.is_meta]
    if empty:
        raise InputError(
            f"{type(module).__name__}: got {empty[0]!r} on the device meta, without values; expected a module that has "
            "them: make it without torch.device('meta'), or call to_empty(device='cpu') and load its state"
        )
    _gradients.check_hooks(module)
    private = private_copy(module).cpu()
    names = [n for n in inspect.signature(module.forward).parameters if n not in ("args", "kwargs")]
    inputs = named_inputs(example, names)
    arguments, state = list(inputs), private.state_dict()
    called_as = {name: f"{name}_input" if name in state else name for name in inputs}
    axes = {called_as[name]: free for name, free in free_axes(inputs, dynamic_axes).items()}
    inputs = {called_as[name]: array for name, array in inputs.items()}
    config: Any = getattr(private, "config", None)
    if isinstance(getattr(config, "use_cache", None), bool):
        config.use_cache = False  # transformers' models return caches else
    prepared = private_copy(private)
    called = _Call(private, arguments, isinstance(example, Mapping))
    with _error_of(module, "runs"):
        results = called.evaluate(inputs, lambda outputs: _gradients.check_copy(outputs, private, module))
    trained = frozenset(name for name, p in private.named_parameters() if p.requires_grad)

    def otherwise() -> onnx.ModelProto:
        return _export_otherwise(module, called.for_copy(private_copy(private)), inputs, called.outputs, axes)

    def doubt() -> str:
        def moves() -> bool:
            return any(not np.array_equal(a, b, True) for a, b in zip(results, called.evaluate(inputs), strict=True))

        return str(_chance.doubt(called.drawn, called.carried, moves))

    parts = trained, inputs, results, called.evaluate, called.differentiate
    try:
        proto = _export(module, called.for_copy(prepared), inputs, called.outputs, axes)
        return Converted(proto, *parts, otherwise, axes, doubt)
    except NetworkError as refused:
        if refused.__cause__ is None:  # not the exporter's words, but ours
            raise
        try:
            return Converted(otherwise(), *parts, axes=axes, doubt=doubt)
        except Deep500Error as error:
            raise NetworkError(f"{refused}; {error}") from error


def private_copy(module: torch.nn.Module) -> torch.nn.Module:
    """A copy that may be traced or trained; raises NetworkError for what has none."""
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise NetworkError(
            f"{type(module).__name__}: got {type(error).__name__} from a copy of it ({_line(error)}); expected a "
            "module that copy.deepcopy takes: tracing changes its statistics, so it is done with a copy"
        ) from error


class _Call:
    """A module with tensors in a tuple as its result, whatever it returns itself.

    Attributes:
        outputs: names of the results of the last call.
        drawn: the lines that draw at random in evaluation.
        carried: the lines of draws that the trace carries.
    """

    def __init__(self, module: torch.nn.Module, inputs: Sequence[str], by_name: bool) -> None:
        self.module, self.inputs, self.by_name = module, inputs, by_name
        self.outputs: list[str] = []
        self.drawn: set[str] = set()
        self.carried: set[str] = set()
        self._forward = module.forward

    def for_copy(self, module: torch.nn.Module) -> _Call:
        """The same of a copy."""
        other = _Call(module, self.inputs, self.by_name)
        other.drawn, other.carried = self.drawn, self.carried
        return other

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        by_name = dict(zip(self.inputs, tensors, strict=True))
        result = self._forward(**by_name) if self.by_name else self._forward(*tensors)
        named = _tensors(result)
        if not named:
            raise InputError(
                f"got a result of type {type(result).__name__}; expected tensors, or a tuple or dict of them"
            )
        self.outputs = list(named)
        return tuple(named.values())

    def evaluate(
        self, inputs: Mapping[str, np.ndarray], check: Callable[[Sequence[torch.Tensor]], None] | None = None
    ) -> list[np.ndarray]:
        """The module's own outputs in evaluation mode; ``check`` is shown the tensors."""
        self.module.eval()  # gradients stay on: what asks for them in forward is found by the trace, and named there
        with _chance.Draws() as draws:
            results = self(*_as_tensors(inputs))
        self.drawn |= draws.places
        if check is not None:
            check(results)
        return [to_array(tensor) for tensor in results]

    def differentiate(
        self, inputs: Mapping[str, np.ndarray], cotangents: Sequence[np.ndarray | None]
    ) -> dict[str, np.ndarray]:
        """The gradients of the sum of outputs times cotangents in training mode, where nothing is random."""
        trained = {n: p for n, p in self.module.named_parameters() if p.requires_grad}
        buffers = {n: b.clone() for n, b in self.module.named_buffers()}
        self.module.train()
        with _chance.still(self.module):
            outputs = self(*_as_tensors(inputs))
        pairs = [(y, c) for y, c in zip(outputs, cotangents, strict=True) if c is not None and y.requires_grad]
        self.module.zero_grad()
        if pairs:
            torch.autograd.backward([y for y, _ in pairs], [_as_tensor(c).to(y.dtype) for y, c in pairs])
        gradients = {n: to_array(torch.zeros_like(p) if p.grad is None else p.grad) for n, p in trained.items()}
        self.module.zero_grad()
        with torch.no_grad():
            for name, buffer in self.module.named_buffers():
                buffer.copy_(buffers[name])
        return gradients


def _tensors(result: Any) -> dict[str, torch.Tensor]:
    """The tensors of a result by name; whatever else stands beside them is left out."""
    if isinstance(result, torch.Tensor):
        return {"output": result}
    items = result.items() if isinstance(result, Mapping) else ((f"output_{n}", v) for n, v in enumerate(_flat(result)))
    named = {str(name): value for name, value in items if isinstance(value, torch.Tensor)}
    return {"output": next(iter(named.values()))} if len(named) == 1 else named


def _flat(result: Any) -> list[Any]:
    return [item for part in result for item in _flat(part)] if isinstance(result, (tuple, list)) else [result]


def to_array(tensor: torch.Tensor) -> np.ndarray:
    """A tensor's values."""
    if tensor.dtype is torch.bfloat16:
        return tensor.detach().contiguous().view(torch.int16).numpy().view(numpy_dtype("bfloat16"))
    return tensor.detach().numpy()


def _as_tensors(inputs: Mapping[str, np.ndarray]) -> list[torch.Tensor]:
    return [_as_tensor(array) for array in inputs.values()]


def _as_tensor(array: np.ndarray) -> torch.Tensor:
    array = np.ascontiguousarray(array).reshape(array.shape)  # which makes an axis where there is none
    if array.dtype == numpy_dtype("bfloat16"):
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _export(
    module: torch.nn.Module, called: _Call, inputs: Mapping[str, np.ndarray], outputs: Sequence[str], axes: Axes
) -> onnx.ModelProto:
    """The ONNX model of a copy in training mode; the copy is changed."""
    private = called.module.train()
    state = {name: tensor.clone() for name, tensor in private.state_dict().items() if isinstance(tensor, torch.Tensor)}
    _write_by_hand(private, type(module).__name__)
    private.forward = types.MethodType(lambda _, *tensors: called(*tensors), private)
    taken = {*inputs, *private.state_dict()}
    names = [name if name not in taken else f"{name}_result" for name in outputs]
    trace, written = _gradients.ExportTrace(), _gradients.Written(private)
    with _error_of(module, "converts"):
        try:
            known = _Known(len(inputs), called.drawn, called.carried)
            with _chance.drawn_by_host(module):
                proto = _traced(private, _as_tensors(inputs), list(inputs), names, axes, trace, known)
        finally:
            written.check()  # says more than an exporter that stumbles over it
    if len(called.outputs) != len(outputs):
        raise NetworkError(
            f"{type(module).__name__}: got {len(called.outputs)} results in training and {len(outputs)} in evaluation; "
            "expected the same ones: switch the additional ones off (such as aux_logits=False)"
        )
    trace.finish(proto, _backward_graph)
    for stored in proto.graph.initializer:  # tracing in training mode has moved the statistics
        if stored.name in state:
            stored.CopyFrom(tensor_proto(to_array(state[stored.name]), stored.name))
    return proto


def _traced(
    module: torch.nn.Module,
    tensors: Sequence[torch.Tensor],
    inputs: list[str],
    outputs: list[str] | None,
    free: Axes,
    trace: Any,
    known: _Known,
) -> onnx.ModelProto:
    """The model that the exporter makes of a module; ``free`` names the axes whose sizes are.

    Values are not called as the variables that hold them: one called like a parameter would take its name away.
    """
    buffer = io.BytesIO()
    unnamed = patch("torch.jit._trace._create_interpreter_name_lookup_fn", lambda *_: lambda _: "")
    with warnings.catch_warnings(), _quiet_log(), trace.active(OPSET), known, unnamed:
        warnings.simplefilter("ignore")  # what a trace may have got wrong is found by comparing
        torch.onnx.export(
            module,
            tuple(tensors),
            buffer,  # type: ignore[arg-type]  # the exporter takes files that are open
            dynamo=False,
            training=torch.onnx.TrainingMode.PRESERVE,
            do_constant_folding=False,
            opset_version=OPSET,
            input_names=inputs,
            output_names=outputs,
            dynamic_axes={name: dict(axes) for name, axes in free.items()},
        )
    return onnx.load_from_string(buffer.getvalue())


def _backward_graph(module: torch.nn.Module, tensors: Sequence[torch.Tensor]) -> onnx.ModelProto:
    """The model of a backward pass, all of whose axes are free."""
    names = [_gradients.BACKWARD_INPUT.format(number) for number in range(len(tensors))]
    free = {n: {axis: f"{n}_{axis}" for axis in range(t.dim())} for n, t in zip(names, tensors, strict=True)}
    return _traced(module, tensors, names, None, free, _gradients.ExportTrace(), _Known(len(tensors)))


def _export_otherwise(
    module: torch.nn.Module, called: _Call, inputs: Mapping[str, np.ndarray], outputs: Sequence[str], axes: Axes
) -> onnx.ModelProto:
    """The same by ``torch.export``."""
    private = called.module.train()
    _write_by_hand(private, type(module).__name__)
    private.forward = types.MethodType(lambda _, *tensors: called(*tensors), private)
    names = [name if name not in inputs else f"{name}_result" for name in outputs]
    try:
        tensors = dict(zip(inputs, _as_tensors(inputs), strict=True))
        with _chance.drawn_by_host(module):
            return load_importer("pytorch", "importing_export").export(
                private, tensors, names, _Known(len(inputs), called.drawn, called.carried), axes
            )
    except Deep500Error:
        raise
    except Exception as error:
        first = _first(error)
        raise NetworkError(f"torch.export got {type(first).__name__} ({_line(first)})") from error


def _first(error: BaseException) -> BaseException:
    """The error that an error came from."""
    return error if error.__cause__ is None else _first(error.__cause__)


@contextlib.contextmanager
def _error_of(module: torch.nn.Module, verb: str) -> Iterator[None]:
    try:
        yield
    except (InputError, NetworkError):
        raise
    except Exception as error:
        raise NetworkError(
            f"{type(module).__name__}: got {type(error).__name__} ({_line(error)}); expected a module that {verb} for "
            "its example inputs: correct these or the module, or export it yourself and pass the ONNX file, or keep "
            "the module as it is in PyTorch alone: from_native, in a recipe model_kwargs={'native': True}"
        ) from error


@contextlib.contextmanager
def _quiet_log() -> Iterator[None]:
    """The exporter writes its whole graph to standard output when it fails."""
    before = torch._C._jit_is_onnx_log_enabled()
    torch._C._jit_set_onnx_log_enabled(False)
    try:
        yield
    finally:
        torch._C._jit_set_onnx_log_enabled(before)


def _line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "")[:300]


# -- what the exporter lacks -------------------------------------------------------------------------------------------
class _Known(TorchFunctionMode):
    """Traces functions that the exporter lacks as others that it has, and keeps what it drops.

    Args:
        examples: how many of the trace's inputs are the model's.
        drawn: lines that draw at random in evaluation too; None: in a backward pass, where draws are left as they are.
        carried: the lines of draws that are carried, added to.
    """

    def __init__(self, examples: int, drawn: Collection[str] | None = None, carried: set[str] | None = None) -> None:
        super().__init__()
        self.examples, self.drawn, self.cuts = examples, drawn, _gradients.Cuts()
        self.carried = set() if carried is None else carried

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in _branches.CONVERSIONS:
            _branches.check_conversion(args[0], function, self.examples)
        instead = _functions.INSTEAD.get(function)
        if instead is None and self.drawn is not None:
            instead = _chance.instead_of(function, self.drawn)
            if instead is _chance.carry:
                self.carried.add(_branches.where())
        if instead is not None:
            return instead(function, *args, **kwargs)
        if not torch.is_grad_enabled():
            _gradients.refuse_write(function, args)
            args, kwargs = tree_map_only(torch.Tensor, self.cuts, (args, kwargs))
        if function in _ARITHMETIC and not kwargs and all(map(_is_wide_number, args)):
            return function(*tree_map_only(torch.Tensor, lambda x: x.reshape(1), args)).reshape(())
        return function(*args, **kwargs)


_ARITHMETIC = frozenset(
    getattr(place, name)
    for place in (torch, torch.Tensor)
    for kind in (
        "add",
        "sub",
        "mul",
        "div",
        "true_divide",
        "pow",
        "rsub",
        "truediv",
        "radd",
        "rmul",
        "rtruediv",
        "rpow",
    )
    for name in (kind, f"__{kind}__")
    if hasattr(place, name)
)


def _is_wide_number(x: Any) -> bool:
    """Whether the exporter would compute with x in float32, as it does where no operand has an axis."""
    return not isinstance(x, torch.Tensor) or (x.dim() == 0 and x.dtype is torch.float64)


def _write_by_hand(module: torch.nn.Module, where: str) -> None:
    """Give some parts a forward function of operators that the exporter has; parameters stay where they are."""
    for name, part in module.named_modules():
        forward: Callable[..., Any] | None = None
        if isinstance(part, _BatchNorm):
            if part.running_mean is None or not part.training:
                forward = _normalize
            elif part.momentum is None:
                raise NetworkError(
                    f"{where}: got {name} with momentum=None; expected a number, which is all that ONNX has: set one"
                )
        elif isinstance(part, _InstanceNorm) and part.track_running_stats and part.training:
            raise NetworkError(
                f"{where}: got {type(part).__name__} {name!r} with track_running_stats=True; expected statistics of "
                "each sample in both modes, which is all that ONNX has: pass track_running_stats=False"
            )
        elif getattr(part, "proj_size", 0) and isinstance(part, torch.nn.LSTM):
            raise NetworkError(
                f"{where}: got LSTM {name!r} with proj_size={part.proj_size}; expected states of the hidden size, "
                "which is all that ONNX has: leave proj_size out and put a Linear behind it"
            )
        elif isinstance(part, torch.nn.RNNBase) and part.num_layers > 1 and part.dropout > 0 and part.training:
            forward = _layer_by_layer
        elif isinstance(part, _chance.OWN_SCALE_PARTS) and part.training and getattr(part, "p", 1):
            _chance.refuse_draw(where, f"{type(part).__name__} {name!r}")
        elif part.training and _chance.depth_rate(part) is not None:
            forward = _chance.leave_out_samples
        if forward is not None:
            part.forward = types.MethodType(forward, part)


def _normalize(self: Any, x: torch.Tensor) -> torch.Tensor:
    """Batch normalization whose statistics are frozen, or those of the batch in both modes."""
    shape = [1, -1] + [1] * (x.dim() - 2)
    if self.running_mean is None:
        axes = [0, *range(2, x.dim())]
        mean = x.mean(axes, keepdim=True)
        variance = ((x - mean) ** 2).mean(axes, keepdim=True)
    else:
        mean, variance = self.running_mean.view(shape), self.running_var.view(shape)
    y = (x - mean) / torch.sqrt(variance + self.eps)
    return y * self.weight.view(shape) + self.bias.view(shape) if self.affine else y


def _layer_by_layer(self: Any, x: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, Any]:
    """A recurrent network of several layers with dropout between them: one operator per layer and dropout."""
    functions: dict[str, Any] = {
        "LSTM": torch.lstm,
        "GRU": torch.gru,
        "RNN_TANH": torch.rnn_tanh,
        "RNN_RELU": torch.rnn_relu,
    }
    ways = 2 if self.bidirectional else 1
    if state is None:
        batch = x.size(0 if self.batch_first else 1)
        zeros = torch.zeros(self.num_layers * ways, batch, self.hidden_size, dtype=x.dtype)
        state = (zeros, zeros) if self.mode == "LSTM" else zeros
    parts: list[Any] = []
    for layer in range(self.num_layers):
        rows = slice(layer * ways, (layer + 1) * ways)
        first = tuple(part[rows] for part in state) if self.mode == "LSTM" else state[rows]
        weights = [w for names in self._all_weights[rows] for w in (getattr(self, name) for name in names)]
        x, *last = functions[self.mode](
            x, first, weights, self.bias, 1, 0.0, False, self.bidirectional, self.batch_first
        )
        parts.append(last)
        if layer + 1 < self.num_layers:
            x = torch.nn.functional.dropout(x, self.dropout, True)
    joined = [torch.cat(column) for column in zip(*parts, strict=True)]
    return x, tuple(joined) if self.mode == "LSTM" else joined[0]
