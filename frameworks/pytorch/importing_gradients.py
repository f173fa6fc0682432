"""Cuts and changes of gradients in a module, carried into the trace or refused by name.

A ``detach`` in the trace becomes a node ``StopGradient``. Where gradients are switched off, everything that requires
one is detached when a function reads it. The backward pass of a ``torch.autograd.Function`` is exported by itself and
becomes the graph of a node ``CustomGradient``. Hooks, and what forward writes into parameters and buffers, are errors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx.compose
import torch
from torch.autograd.function import _SingleLevelFunction
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_map_only

from deep500.errors import NetworkError
from deep500.networks.flow import CUSTOM, STOP
from deep500.networks.network import Network
from deep500.networks.node import OPSET
from deep500.operators.registry import DOMAIN
from deep500.registry import load_importer

_branches = load_importer("pytorch", "importing_branches")
BACKWARD_INPUT = "backward_{}"
"""How the inputs of the model of a backward pass are called."""


# -- hooks and written state -------------------------------------------------------------------------------------------
def check_hooks(module: torch.nn.Module) -> None:
    """Raise NetworkError for hooks on gradients of parameters and modules."""
    kinds = {"_backward_hooks": "a hook on its gradient", "_post_accumulate_grad_hooks": "a hook on its gradient"}
    for name, parameter in module.named_parameters():
        for attribute, what in kinds.items():
            if getattr(parameter, attribute, None):
                raise NetworkError(_hooked(module, f"parameter {name!r} with {what}"))
    for name, part in module.named_modules():
        if part._backward_hooks or part._backward_pre_hooks:
            raise NetworkError(_hooked(module, f"{type(part).__name__} {name or 'itself'!r} with a backward hook"))


def check_copy(outputs: Iterable[torch.Tensor], copied: torch.nn.Module, module: torch.nn.Module) -> None:
    """Raise NetworkError where a copy's outputs depend on parameters of the module that it was copied from."""
    copies = {parameter.data_ptr() for parameter in copied.parameters()}
    theirs = {parameter.data_ptr(): name for name, parameter in module.named_parameters() if parameter.numel()}
    ahead: list[Any] = [tensor.grad_fn for tensor in outputs]
    seen: set[Any] = {None}
    while ahead:
        node = ahead.pop()
        if node in seen:
            continue
        seen.add(node)
        place = node.variable.data_ptr() if hasattr(node, "variable") else None
        if place in theirs and place not in copies:
            name = theirs[place]
            raise NetworkError(
                f"{type(module).__name__}: got a forward function or a hook that holds parameter {name!r} itself; "
                "expected one that finds it in the module that it is called with, for what is traced is a copy: make "
                "it a method of a class, or bind it with types.MethodType; take parts as they were before torch.jit"
            )
        ahead += [before for before, _ in node.next_functions]


def refuse_write(function: Any, args: Sequence[Any]) -> None:
    """Raise NetworkError for a function that writes in place, unrecorded, into what has a gradient.

    Its values change and the gradient does not, which no graph says.
    """
    name = getattr(function, "__name__", "")
    writes = name in ("__setitem__", "set_") or (name.endswith("_") and not name.endswith("__")) or name in _IN_PLACE
    written = args[0] if args and isinstance(args[0], torch.Tensor) else None
    if writes and name not in _HARMLESS and written is not None and written.requires_grad and not written.is_leaf:
        raise NetworkError(
            f"{_branches.where()}: got {name} under no_grad into a tensor that has a gradient; expected one that is "
            "left as it is there, for its values would change and its gradient would not: write "
            "h + (f(h) - h).detach()"
        )


_IN_PLACE = frozenset(
    f"__i{name}__" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or")
)
_HARMLESS = frozenset(("detach_", "requires_grad_", "retain_grad"))


def _hooked(module: torch.nn.Module, what: str) -> str:
    return (
        f"{type(module).__name__}: got {what}; expected none, for a network would train without it: remove the hook, "
        "and change gradients in forward (x * s + x.detach() * (1 - s) scales one by s, an autograd.Function does "
        "the rest) or in the optimizer"
    )


class Written:
    """Remembers a module's parameters, buffers and tensors in attributes, to tell which of them a run writes.

    A write counts also where it leaves the values as they are (an average of an example of zeros), in place or by
    another tensor. Outside of ``state_dict`` a tensor that is replaced is a cache or a record, which a trace computes,
    unless it is a buffer of the same shape and other values.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._before = {name: (t, _version(t), t.detach().clone()) for name, t in _tensors_of(module).items()}

    def check(self) -> None:
        """Raise NetworkError for what was written since, other than statistics."""
        stored, buffers = set(self._module.state_dict()), dict(self._module.named_buffers())
        written = set()
        for name, now in _tensors_of(self._module).items():
            if name not in self._before:
                continue
            before, version, values = self._before[name]
            if now is before:
                changed = _version(now) != version or not _same(values, now)
            elif name in stored:
                changed = now.data_ptr() != before.data_ptr() or not _same(values, now)
            else:
                changed = name in buffers and values.shape == now.shape and not _same(values, now)
            if changed:
                written.add(name)
        refuse_written(written, self._module)


def _version(tensor: torch.Tensor) -> int:
    """How often a tensor was written; 0 for those of inference mode, which do not count it."""
    return 0 if tensor.is_inference() else tensor._version


def _tensors_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters, buffers, and tensors in attributes, by name."""
    attributes = {
        f"{name}.{attribute}"[not name :]: value
        for name, part in module.named_modules()
        for attribute, value in vars(part).items()
        if isinstance(value, torch.Tensor)
    }
    return {**attributes, **dict(module.named_parameters()), **dict(module.named_buffers())}


def refuse_written(names: Iterable[str], module: torch.nn.Module) -> None:
    """Raise NetworkError for names of what forward writes that are no statistics."""
    known = {
        f"{name}.{buffer}"[not name :]
        for name, part in module.named_modules()
        if isinstance(part, _BatchNorm)
        for buffer, _ in part.named_buffers(recurse=False)
    }
    parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
    for name in sorted(set(names) - known):
        kind = "parameter" if name in parameters else "buffer" if name in buffers else "attribute"
        raise NetworkError(
            f"{type(module).__name__}: got a forward function that writes {kind} {name!r} in training; "
            "expected that of BatchNorm alone to do so, for in a network it would stay as it is: update it "
            "outside of forward, after a step, or give it to forward as an input and return what it becomes"
        )


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and bool(torch.all((a == b) | (torch.isnan(a) & torch.isnan(b))))


# -- cuts --------------------------------------------------------------------------------------------------------------
class Cuts:
    """Detaches what a function reads where no gradients are recorded, each tensor once."""

    def __init__(self) -> None:
        self._cut: dict[int, tuple[torch.Tensor, int, torch.Tensor]] = {}

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.requires_grad:
            return tensor
        known = self._cut.get(id(tensor))
        if known is None or known[1] != tensor._version:
            self._cut[id(tensor)] = known = (tensor, tensor._version, tensor.detach())
        return known[2]


# -- functions with a backward pass of their own -----------------------------------------------------------------------
class _Context:
    """``ctx`` of an autograd.Function while it is traced."""

    def __init__(self, where: str, needs: Sequence[bool]) -> None:
        self.needs_input_grad, self._where = tuple(needs), where
        self._saved: tuple[Any, ...] = ()
        self._without: set[int] = set()

    def save_for_backward(self, *tensors: Any) -> None:
        self._saved = tensors

    save_for_forward = save_for_backward

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        return self._saved

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self._without.update(map(id, tensors))

    def set_materialize_grads(self, value: bool) -> None:
        """Gradients are always tensors here."""

    def mark_dirty(self, *tensors: Any) -> None:
        raise NetworkError(
            f"{self._where}: got mark_dirty; expected a function that leaves its inputs as they are: write to a copy"
        )

    def swap(self, exchange: Callable[[torch.Tensor], torch.Tensor]) -> _Context:
        """Another one whose tensors are exchanged."""
        other = _Context(self._where, self.needs_input_grad)
        other.__dict__.update(tree_map_only(torch.Tensor, exchange, self.__dict__))
        return other


@dataclass
class _Call:
    """One call of an autograd.Function in a trace.

    Attributes:
        kind: the class.
        where: class and line, for errors.
        context: what its forward left for backward.
        places: which results are the values, among how many.
        arguments: which inputs need a gradient, with samples of them.
        samples: values, then residuals, as forward computed them.
    """

    kind: type
    where: str
    context: _Context
    places: tuple[list[int], int]
    arguments: dict[int, torch.Tensor]
    samples: list[torch.Tensor]


class _Carrier(torch.autograd.Function):
    """Becomes the node."""

    @staticmethod
    def forward(ctx: Any, number: int, values: int, *tensors: torch.Tensor) -> Any:
        return tuple(tensor.view_as(tensor) for tensor in tensors[:values])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise NotImplementedError

    @staticmethod
    def symbolic(g: Any, number: int, values: int, *tensors: Any) -> Any:
        outputs = g.op(f"{DOMAIN}::{CUSTOM}", *tensors, outputs=values, values_i=number)
        for value, tensor in zip([outputs] if values == 1 else outputs, tensors, strict=False):
            value.setType(tensor.type())
        return outputs


class _Backward(torch.nn.Module):
    """The backward pass of one call: gradients of the values and residuals to gradients of the arguments."""

    def __init__(self, call: _Call) -> None:
        super().__init__()
        self.call = call
        self.given: list[int] = []

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        places, results = self.call.places
        gradients: list[Any] = [None] * results
        for place, tensor in zip(places, tensors, strict=False):
            gradients[place] = tensor
        residuals = iter(tensors[len(places) :])
        context = self.call.context.swap(lambda _: next(residuals))
        got = self.call.kind.backward(context, *gradients)  # type: ignore[attr-defined]
        got = got if isinstance(got, tuple) else (got,)
        self.given = [n for n in self.call.arguments if n < len(got) and got[n] is not None]
        for n in self.given:
            argument = self.call.arguments[n]
            if got[n].shape != argument.shape:
                raise NetworkError(
                    f"{self.call.where}: got a gradient of shape {tuple(got[n].shape)} from backward; expected that of "
                    f"argument {n}, {tuple(argument.shape)}: sum it to that shape"
                )
        return tuple(got[n].to(self.call.arguments[n].dtype).clone() for n in self.given)


@dataclass
class ExportTrace:
    """Carries cuts and custom gradients into an export: what runs inside of :meth:`active` is changed.

    Attributes:
        calls: of autograd.Functions, in order.
    """

    calls: list[_Call] = field(default_factory=list)

    @contextlib.contextmanager
    def active(self, opset: int) -> Iterator[None]:
        """Exchange what PyTorch's tracer and exporter call."""
        apply = torch.autograd.Function.__dict__["apply"]

        def applied(kind: Any, *args: Any, **kwargs: Any) -> Any:
            if kind.__module__ == "torch.utils.checkpoint" and kind.__name__ == "CheckpointFunction":
                return args[0](*args[2:])  # function, whether to preserve the generators' state, arguments
            if kind.__module__.startswith("torch.") or kind is _Carrier or not torch.jit.is_tracing():
                return apply.__func__(kind, *args, **kwargs)
            return self._inline(kind, args)

        torch.onnx.register_custom_op_symbolic("aten::detach", _stop, opset)
        try:
            with patch.object(torch.autograd.Function, "apply", classmethod(applied)):
                yield
        finally:
            torch.onnx.unregister_custom_op_symbolic("aten::detach", opset)

    def _inline(self, kind: Any, args: tuple[Any, ...]) -> Any:
        """Trace forward as it is, and put a carrier behind it whose gradient is the class's own."""
        needs = [isinstance(a, torch.Tensor) and a.requires_grad for a in args]
        place = f"{_branches.where()}: {kind.__name__}"
        context = _Context(place, needs)
        if kind.setup_context is not _SingleLevelFunction.setup_context:
            result = kind.forward(*args)
            kind.setup_context(context, args, result)
        else:
            result = kind.forward(context, *args)
        results = list(result) if isinstance(result, tuple) else [result]
        places = [n for n, r in enumerate(results) if _differentiable(r) and id(r) not in context._without]
        arguments = {n: _branches.sample(args[n]) for n, need in enumerate(needs) if need}
        values = [results[n] for n in places]
        results = [r.detach() if _differentiable(r) and n not in places else r for n, r in enumerate(results)]
        if arguments and torch.is_grad_enabled():
            residuals: list[torch.Tensor] = []
            sampled = context.swap(lambda tensor: residuals.append(tensor) or _branches.sample(tensor))  # type: ignore[func-returns-value]
            samples = [_branches.sample(tensor) for tensor in (*values, *residuals)]
            self.calls.append(_Call(kind, place, sampled, (places, len(results)), arguments, samples))
            tensors = [*values, *(args[n] for n in arguments), *residuals]
            carried = _Carrier.apply(len(self.calls) - 1, len(values), *tensors)
        else:
            carried = [value.detach() for value in values]
        for n, value in zip(places, carried, strict=True):
            results[n] = value
        return tuple(results) if isinstance(result, tuple) else results[0]

    def finish(self, proto: onnx.ModelProto, export: Callable[..., onnx.ModelProto]) -> None:
        """Give the nodes of a model their graphs.

        Args:
            proto: changed in place.
            export: a module, its inputs, and the class's name for errors to a model.
        """
        nodes = [*proto.graph.node]
        del proto.graph.node[:]
        for node in nodes:
            carrier = node.op_type == CUSTOM and node.domain == DOMAIN
            proto.graph.node.extend(self._finished(node, export) if carrier else [node])

    def _finished(self, node: onnx.NodeProto, export: Callable[..., onnx.ModelProto]) -> list[onnx.NodeProto]:
        call = self.calls[node.attribute[0].i]
        values = len(call.places[0])
        backward = _Backward(call)
        try:
            with torch.no_grad():
                backward(*call.samples)
            model = export(backward, call.samples) if backward.given else None
        except Exception as error:  # noqa: BLE001 - whatever the user's own code and its export raise
            raise NetworkError(
                f"{call.where}: got {type(error).__name__} from its backward ({str(error).splitlines()[:1]}); expected "
                "one that can be traced, of tensors from save_for_backward: write it with PyTorch's functions, or the "
                "forward such that PyTorch's own gradient is the right one"
            ) from None  # without a cause: torch.export, which drops backward passes, is no way out
        if model is None:  # no gradient flows at all
            pairs = zip(node.input, node.output, strict=False)
            return [onnx.helper.make_node(STOP, [x], [y], f"{y}/stop", domain=DOMAIN) for x, y in pairs]
        arguments = [node.input[values + n] for n, place in enumerate(call.arguments) if place in backward.given]
        inputs = [*node.input[:values], *arguments, *node.input[values + len(call.arguments) :]]
        every = [onnx.ValueInfoProto(name=f"backward_{number}") for number in range(len(call.samples))]
        graph = Network.from_onnx(model, lambda *_: False).to_onnx(opset=OPSET).graph
        declared = {value.name: value for value in graph.input}  # the exporter leaves out what nothing reads
        del graph.input[:]
        graph.input.extend(declared.get(value.name, value) for value in every)
        self._declare(graph, call.samples)
        graph = onnx.compose.add_prefix_graph(graph, f"{node.name}/backward/")
        options: dict[str, Any] = {"values": values, "arguments": len(arguments), "backward": graph}
        return [onnx.helper.make_node(CUSTOM, inputs, [*node.output], node.name, domain=DOMAIN, **options)]

    @staticmethod
    def _declare(graph: onnx.GraphProto, samples: Sequence[torch.Tensor]) -> None:
        """Declare every input in order; the exporter has left out those that are not read."""
        read = {value.name: value for value in graph.input}
        del graph.input[:]
        for number, sample in enumerate(samples):
            name = BACKWARD_INPUT.format(number)
            kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(str(sample.dtype).removeprefix("torch.")))
            graph.input.append(read.get(name) or onnx.helper.make_tensor_value_info(name, kind, None))


def _stop(g: Any, x: Any) -> Any:
    return g.op(f"{DOMAIN}::{STOP}", x).setType(x.type())


def _differentiable(result: Any) -> bool:
    return isinstance(result, torch.Tensor) and (result.is_floating_point() or result.is_complex())
