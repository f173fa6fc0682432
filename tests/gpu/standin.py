"""A stand-in for a card: tensors that say they are on ``cuda:0``, refuse what a card refuses, and hold values.

They are wrapper tensors like PyTorch's fake ones, whose values are on the processor: so loops over data run, and what
comes out is compared with a processor's run. Refused is, with the operator's name:

- tensors of the processor and of the card in one operator, but for what CUDA allows: numbers without dimensions in
  pointwise operators, indices, copies;
- operators for which PyTorch's own table (``torchgen``, in every wheel) has a kernel for processors and none for CUDA;
- products of whole numbers, for which the CUDA kernels have no case;
- memory read as an array without a copy to the processor;
- what a stream of copies sent, read by another stream that did not wait for it.

What it cannot know: kernels of cuDNN (they never run), time, order of sums, memory.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map

CARD = torch.device("cuda", 0)
_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "_addmm_activation", "linear"}
_MOVES = {"_to_copy", "copy_", "set_", "_local_scalar_dense", "_copy_from", "_pin_memory", "lift_fresh", "detach"}
_INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"}
_LACKING_IN_SOME = {"_fused_adagrad_": "torch <= 2.11 has no CUDA kernel of it"}


_MADE_IN_GRADIENTS = (torch.ops.aten.zeros.default, torch.ops.aten.new_zeros.default)


class NoSuchKernel(NotImplementedError):
    """What a card has no kernel for."""


@functools.cache
def kernels() -> dict[str, frozenset[str]]:
    """Keys under which PyTorch's own table has a kernel, by ``name.overload``; none for composites."""
    import torchgen
    import yaml

    path = Path(torchgen.__file__).with_name("packaged") / "ATen/native/native_functions.yaml"
    rows = yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    table = {}
    for row in rows:
        name = row["func"].partition("(")[0]
        keys = {key.strip() for group in row.get("dispatch", {}) for key in str(group).split(",")}
        delegate = row.get("structured_delegate")
        table[name] = (frozenset(keys), delegate)
    return {name: keys | table.get(delegate, (frozenset(), None))[0] for name, (keys, delegate) in table.items()}


def lacks_kernel(name: str) -> bool:
    """Whether there is one for processors and none for CUDA."""
    keys = kernels().get(name.removesuffix(".default"), frozenset())
    return bool(keys) and not any("CUDA" in key or key.startswith("Composite") for key in keys)


class Stream:
    """A queue of work: what it sends is there for others once they waited for it.

    Attributes:
        sent: tensors on their way.
    """

    current: Stream

    def __init__(self, device: Any = None) -> None:
        self.sent: list[CardTensor] = []

    def wait_stream(self, other: Stream) -> None:
        """What the other one sent has arrived, for all that comes after."""
        for tensor in other.sent:
            tensor.sent_on = None
        other.sent.clear()


Stream.current = Stream()


@contextlib.contextmanager
def _on(stream: Stream) -> Iterator[None]:
    before, Stream.current = Stream.current, stream
    try:
        yield
    finally:
        Stream.current = before


class CardTensor(torch.Tensor):
    """A tensor whose Python side says that it is on the card, and whose values are ``on_host``.

    C++ takes it for one of the processor: autograd of a build without CUDA refuses any other.
    """

    on_host: torch.Tensor
    sent_on: Stream | None = None

    @staticmethod
    def __new__(cls, on_host: torch.Tensor) -> CardTensor:
        made: CardTensor = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            on_host.size(),
            strides=on_host.stride(),
            storage_offset=on_host.storage_offset(),
            dtype=on_host.dtype,
            layout=on_host.layout,
            device=on_host.device,
            requires_grad=False,
        )
        made.on_host = on_host
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    device = property(lambda self: CARD)  # type: ignore[assignment]
    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    is_cpu = property(lambda self: False)  # type: ignore[assignment]

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """See ``torch.Tensor.to``: a copy where it goes to the processor."""
        target = kwargs.get("device") or next((x for x in args if isinstance(x, (str, torch.device))), None)
        if args and isinstance(args[0], torch.Tensor):
            target, args, kwargs = args[0].device, (), {**kwargs, "dtype": args[0].dtype}
        rest = tuple(x for x in args if not isinstance(x, (str, torch.device)))
        kwargs.pop("device", None)
        if target is not None and torch.device(target).type == "cpu":
            return _Fetch.apply(self).to(*rest, **kwargs)
        return super().to(*rest, **kwargs) if rest or kwargs else self

    def record_stream(self, stream: Any) -> None:
        """Its memory is in use there."""
        Card.recorded += 1

    def cpu(self, *args: Any, **kwargs: Any) -> Any:
        """A copy on the processor, which waits for the card."""
        return self.to("cpu")

    def tolist(self) -> Any:
        """As numbers, for which the processor waits."""
        return self.cpu().tolist()

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        """No."""
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self.numpy()

    def __repr__(self, **kwargs: Any) -> str:
        return f"CardTensor({self.on_host!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})


class _Fetch(torch.autograd.Function):
    """A copy from the card to the processor."""

    @staticmethod
    def forward(ctx: Any, x: CardTensor) -> torch.Tensor:
        """Copy."""
        Card.waits += 1
        return x.on_host.detach().clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        """Copy back."""
        return gradient.to(CARD)


class _Send(torch.autograd.Function):
    """A copy from the processor to the card."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> CardTensor:
        """Copy, on the current stream."""
        sent = CardTensor(x.detach().clone())
        if Stream.current is not Card.stream:
            sent.sent_on = Stream.current
            Stream.current.sent.append(sent)
        return sent

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """Copy back."""
        return gradient.cpu()


def _to(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """``torch.Tensor.to`` for tensors of the processor, whose gradient comes back from the card."""
    target = kwargs.get("device") or next((a for a in args if isinstance(a, (str, torch.device))), None)
    if target is None or torch.device(target).type == "cpu":
        return torch._C.TensorBase.to(x, *args, **kwargs)
    rest = tuple(a for a in args if not isinstance(a, (str, torch.device)))
    kwargs = {key: value for key, value in kwargs.items() if key not in ("device", "non_blocking")}
    return _Send.apply(torch._C.TensorBase.to(x, *rest, **kwargs) if rest or kwargs else x)


def _refuse(func: Any, given: list[torch.Tensor]) -> None:
    name = func.overloadpacket.__name__
    if any(isinstance(x, CardTensor) and x.sent_on not in (None, Stream.current) for x in given):
        raise RuntimeError(f"{func} reads what another stream is still sending: wait_stream() before")
    if func.namespace == "aten" and lacks_kernel(str(func).removeprefix("aten.")):
        raise NoSuchKernel(f"Could not run '{func}' with arguments from the 'CUDA' backend")
    if func.namespace not in ("aten", "prims", "profiler") and not any(
        torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key)
        for key in ("CUDA", "CompositeExplicitAutograd", "CompositeImplicitAutograd")
    ):
        raise NoSuchKernel(f"{func}: an operator of the processor got tensors of the card")
    if name in _LACKING_IN_SOME:
        raise NoSuchKernel(f"Could not run '{func}': {_LACKING_IN_SOME[name]}")
    if name in _PRODUCTS and not (given[0].is_floating_point() or given[0].is_complex()):
        raise NoSuchKernel(f'"{name}_cuda" not implemented for {given[0].dtype}')
    if name in _MOVES:
        return
    strangers = [x for x in given if not isinstance(x, CardTensor)]
    if name in _INDEXED:
        strangers = [x for x in strangers if x is given[0] or x.is_floating_point()]
    if torch.Tag.pointwise in func.tags:
        strangers = [x for x in strangers if x.dim()]
    if strangers:
        kinds = ", ".join(f"{'cuda:0' if isinstance(x, CardTensor) else 'cpu'}{list(x.shape)}" for x in given)
        raise RuntimeError(f"Expected all tensors to be on the same device, but {func} got {kinds}")


def dispatch(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operator on the values, on behalf of the card or of the processor."""
    given = [x for x in tree_iter((args, kwargs)) if isinstance(x, torch.Tensor)]
    wanted = kwargs.get("device")
    wanted = None if wanted is None else torch.device(wanted)
    ours = any(isinstance(x, CardTensor) for x in given)
    if ours:
        _refuse(func, given)
    on_card = ours if wanted is None else wanted.type == "cuda"
    like = func in _MADE_IN_GRADIENTS and (ours or not given)
    if like and torch._C._current_graph_task_id() != -1:
        on_card = True  # C++ made it "like" a gradient, which it takes for one of the processor
    wrappers = {id(x.on_host): x for x in given if isinstance(x, CardTensor)}

    def inner(x: Any) -> Any:
        return x.on_host if isinstance(x, CardTensor) else x

    def outer(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or isinstance(x, CardTensor):
            return x
        known = wrappers.get(id(x))
        return CardTensor(x) if known is None else known

    if wanted is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    if kwargs.get("pin_memory"):
        kwargs = {**kwargs, "pin_memory": False}
    results = func(*tree_map(inner, args), **tree_map(inner, kwargs))
    if wanted is not None and ours != on_card:  # a copy between devices shares no memory
        results = tree_map(lambda x: x.clone() if any(x is v for v in map(inner, given)) else x, results)
    if func.overloadpacket.__name__ == "copy_" and not isinstance(args[0], CardTensor):
        return args[0]
    if func.overloadpacket.__name__ == "_local_scalar_dense":
        Card.waits += 1
    return tree_map(outer, results) if on_card else results


_attends = torch.nn.functional.scaled_dot_product_attention


def _attention(
    q: Any, k: Any, v: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, **options: Any
) -> Any:
    """torch's own, whose mask C++ would make on the processor."""
    if is_causal:
        attn_mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
    return _attends(q, k, v, attn_mask, dropout_p, False, **options)


class Card(TorchDispatchMode):
    """Within it ``cuda:0`` is there.

    Attributes:
        waits: how often the processor had to wait for a number of the card.
        recorded: how many tensors were said to be in use on another stream than the one that made them.
        stream: that of all work that chose no other.
    """

    waits = 0
    recorded = 0
    stream = Stream.current

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return dispatch(func, args, kwargs or {})


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Kernels of processors' libraries are out of sight; numbers that are written down go by way of the processor."""
    lifted, onednn = torch._C._only_lift_cpu_tensors(), torch._C._get_mkldnn_enabled()
    torch._C._set_only_lift_cpu_tensors(True)
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_only_lift_cpu_tensors(lifted)
        torch._C._set_mkldnn_enabled(onednn)


@contextlib.contextmanager
def a_card() -> Iterator[type[Card]]:
    """A machine with one card, which is a stand-in."""
    Card.waits = Card.recorded = 0

    def waited(*_: Any) -> None:
        Card.waits += 1

    with (
        mock.patch("torch.cuda.device_count", lambda: 1),
        mock.patch.object(torch.Tensor, "to", _to),
        mock.patch("torch.cuda.synchronize", waited),
        mock.patch("torch.cuda._lazy_init", lambda: None),
        mock.patch("torch.cuda.random._lazy_init", lambda: None),
        mock.patch("deep500.frameworks.pytorch.chance.Stream.drawing", None),  # the card's generators go with it
        mock.patch("torch.cuda.random._lazy_call", lambda action, **how: action()),
        mock.patch("torch.cuda.default_generators", (torch.Generator(),)),
        _quietly(),
        sdpa_kernel(SDPBackend.MATH),
        mock.patch("torch.nn.functional.scaled_dot_product_attention", _attention),
        mock.patch.object(torch.Tensor, "pin_memory", lambda x: x),
        mock.patch("torch.cuda.Stream", Stream),
        mock.patch("torch.cuda.stream", _on),
        mock.patch("torch.cuda.current_stream", lambda device=None: Stream.current),
        Card(),
    ):
        yield Card
