"""Enzyme against gradients by hand and against PyTorch: ``--part gradients [--rounds N] [--quick]``.

One thread, float32. Compared functions take turns in random order; ratios are of pairs. By hand: the same forward with
the gradients of ``by_hand.py``, same compiler and flags, called through the same interface. Correct first: both
gradients are compared before they are timed. Last, the time to build one operator with the compiler's own cache warm.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import deep500 as d5
from deep500.measure.statistics import Interval, median_interval, paired_ratio
from deep500.operators.cpp import CompiledOp
from deep500.operators.enzyme.engine import find_clang, find_engine
from deep500.tensors import TensorDescriptor
from tests.benchmarks.enzyme import BUILD, EAGER, HAND, SIZES
from tests.benchmarks.enzyme.by_hand import BACKWARD
from tests.benchmarks.filling import say, say_ratio
from tests.benchmarks.turns import geometric_mean

PLUGINS = Path(d5.__file__).resolve().parent / "custom_ops"
WAYS = {True: "fast_math", False: "strict"}
Work = Callable[[], object]

SHAPES: dict[str, tuple[list[tuple[int, ...]], tuple[int, ...], dict[str, Any]]] = {  # inputs, output, macros
    "ipow": ([(256, 1024)], (256, 1024), {"DPOWER": 5}),
    "gelu": ([(256, 1024)], (256, 1024), {}),
    "mish": ([(256, 1024)], (256, 1024), {}),
    "softplus_conv": ([(4, 8, 32, 32), (16, 8, 3, 3), (16,)], (4, 16, 32, 32), {"PAD": 1, "STRIDE": 1}),
    "rmsnorm": ([(256, 1024), (1024,)], (256, 1024), {"EPSILON": 1e-6}),
    "scaled_dot_product": ([(2, 4, 64, 32)] * 3, (2, 4, 64, 32), {"CAUSAL": 0}),
}


def _attention(causal: bool) -> Callable[..., torch.Tensor]:
    return lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def _convolution(pad: int, stride: int) -> Callable[..., torch.Tensor]:
    functional = torch.nn.functional
    return lambda x, w, b: functional.softplus(functional.conv2d(x, w, b, padding=pad, stride=stride))


REALISTIC: dict[tuple[str, str], tuple[list[tuple[int, ...]], tuple[int, ...], dict[str, Any], Any]] = {
    ("scaled_dot_product", "8 heads of 64, 512 tokens"): (
        [(1, 8, 512, 64)] * 3,
        (1, 8, 512, 64),
        {"CAUSAL": 0},
        _attention(False),
    ),
    ("scaled_dot_product", "the same, causal"): (
        [(1, 8, 512, 64)] * 3,
        (1, 8, 512, 64),
        {"CAUSAL": 1},
        _attention(True),
    ),
    ("scaled_dot_product", "2 heads of 64, 2048 tokens"): (
        [(1, 2, 2048, 64)] * 3,
        (1, 2, 2048, 64),
        {"CAUSAL": 0},
        _attention(False),
    ),
    ("softplus_conv", "64 to 64, 56x56, 3x3"): (
        [(2, 64, 56, 56), (64, 64, 3, 3), (64,)],
        (2, 64, 56, 56),
        {"PAD": 1, "STRIDE": 1},
        _convolution(1, 1),
    ),
    ("softplus_conv", "128 to 128, 28x28, 3x3"): (
        [(4, 128, 28, 28), (128, 128, 3, 3), (128,)],
        (4, 128, 28, 28),
        {"PAD": 1, "STRIDE": 1},
        _convolution(1, 1),
    ),
    ("softplus_conv", "64 to 128, 56x56, step 2"): (
        [(2, 64, 56, 56), (128, 64, 3, 3), (128,)],
        (2, 128, 28, 28),
        {"PAD": 1, "STRIDE": 2},
        _convolution(1, 2),
    ),
}


def source_of(name: str, hand: bool) -> str:
    """A shipped operator with its gradient by hand, or without any."""
    text = (PLUGINS / name / f"{name}.cpp").read_text(encoding="utf-8")
    if name == "ipow":  # ships with a gradient by hand
        start = text.index("  void backward(")
        return text if hand else text[:start] + text[text.index("  }\n", start) + 4 :]
    place = text.index("  void forward(")
    return text[:place] + BACKWARD[name].lstrip("\n") + "\n" + text[place:] if hand else text


def compiled(name: str, hand: bool, fast: bool) -> CompiledOp:
    """A shipped operator; both ways with the compiler that Enzyme is used with."""
    inputs, output, macros = SHAPES[name]
    described = [TensorDescriptor("float32", shape) for shape in inputs]
    clang = find_clang(find_engine())
    os.environ["DEEP500_CXX"] = "zig" if clang.is_zig else clang.command[0]
    return d5.compile_custom_cppop_inline(
        name,
        source_of(name, hand),
        described,
        [TensorDescriptor("float32", output)],
        additional_definitions=macros,
        gradient="backward" if hand else "enzyme",
        fast_math=fast,
    )


class Call:
    """Forward and backward of an operator on fixed arrays, through the library's own interface."""

    def __init__(self, op: CompiledOp, inputs: Sequence[np.ndarray], dy: np.ndarray) -> None:
        self.library = ctypes.CDLL(str(op.path))
        self.library.d500_instance.restype = ctypes.c_void_p
        sizes = op.sizes([x.shape for x in inputs])
        self.instance = ctypes.c_void_p(self.library.d500_instance(ctypes.c_void_p(sizes.ctypes.data)))
        self.arrays = [list(inputs), [np.empty_like(dy)], [dy], [np.empty_like(x) for x in inputs]]
        self.x, self.y, self.dy, self.dx = (self._pointers(group) for group in self.arrays)

    @staticmethod
    def _pointers(arrays: Sequence[np.ndarray]) -> Any:
        return (ctypes.c_void_p * len(arrays))(*[a.ctypes.data for a in arrays])

    def forward(self) -> None:
        """Outputs."""
        assert self.library.d500_forward(self.instance, self.x, self.y) == 0

    def backward(self) -> None:
        """Gradients of the inputs."""
        assert self.library.d500_backward(self.instance, self.dy, self.x, self.y, self.dx) == 0

    def both(self) -> None:
        """One after the other."""
        self.forward()
        self.backward()


def measure(variants: Mapping[str, Work], rounds: int, seconds: float = 0.02) -> dict[str, list[float]]:
    """CPU seconds per call of each variant, in turns in random order; as many calls at a time as take ``seconds``."""
    order, times, calls = list(variants), {name: [] for name in variants}, {}
    for name, work in variants.items():
        work()
        start = time.process_time()
        for _ in range(3):
            work()
        calls[name] = max(1, round(seconds * 3 / max(time.process_time() - start, 1e-6)))
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            start = time.process_time()
            for _ in range(calls[name]):
                variants[name]()
            times[name].append((time.process_time() - start) / calls[name])
    return times


def against_hand(name: str, fast: bool, rounds: int) -> Interval:
    """Enzyme's gradient over the one by hand."""
    rng = np.random.default_rng(0)
    shapes, output, _ = SHAPES[name]
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    dy = rng.standard_normal(output).astype(np.float32)
    calls = {way: Call(compiled(name, way == "hand", fast), inputs, dy) for way in ("enzyme", "hand")}
    for call in calls.values():
        call.both()
    for a, b in zip(calls["enzyme"].arrays[3], calls["hand"].arrays[3], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * np.abs(b).max(), err_msg=name)
    times = measure({way: call.backward for way, call in calls.items()}, rounds)
    ratio = paired_ratio(times["enzyme"], times["hand"])
    enzyme, hand = (median_interval(times[way]).median * 1e3 for way in ("enzyme", "hand"))
    print(f"  {name:>20}: Enzyme {enzyme:8.4f} ms, by hand {hand:8.4f} ms, ratio {ratio}")
    return ratio


def against_torch(name: str, function: Callable[[torch.Tensor], torch.Tensor], rounds: int) -> Interval:
    """Forward and backward at a million elements over PyTorch's eager mode."""
    rng = np.random.default_rng(0)
    x, dy = (rng.standard_normal(1_000_000).astype(np.float32) for _ in range(2))
    any_shape = [TensorDescriptor("float32", None)]
    op = d5.compile_custom_cppop_inline(
        name,
        source_of(name, hand=False),
        any_shape,
        any_shape,
        additional_definitions=SHAPES[name][2],
        gradient="enzyme",
        fast_math=True,
    )
    call, tensor, seed = Call(op, [x], dy), torch.from_numpy(x).requires_grad_(), torch.from_numpy(dy)

    def eager() -> None:
        tensor.grad = None
        function(tensor).backward(seed)

    call.both()
    eager()
    assert tensor.grad is not None
    np.testing.assert_allclose(call.arrays[3][0], tensor.grad.numpy(), rtol=1e-3, atol=1e-4)
    times = measure({"enzyme": call.both, "torch": eager}, rounds)
    ratio = paired_ratio(times["enzyme"], times["torch"])
    both = ", ".join(f"{way} {median_interval(t).median * 1e3:.3f} ms" for way, t in times.items())
    print(f"  {name:>20}: {both}, ratio {ratio}")
    return ratio


def at_size(name: str, size: str, fast: bool, rounds: int) -> Interval:
    """Forward and backward at a size that models have, over PyTorch eager; gradients in float64 are compared first."""
    shapes, output, macros, function = REALISTIC[name, size]
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    inputs[1] /= np.float32(math.sqrt(inputs[1][0].size)) if name == "softplus_conv" else np.float32(1)
    dy = rng.standard_normal(output).astype(np.float32)
    op = d5.compile_custom_cppop_inline(
        name,
        source_of(name, hand=False),
        [TensorDescriptor("float32", (None,) * len(shape)) for shape in shapes],
        [TensorDescriptor("float32", (None,) * 4)],
        additional_definitions=macros,
        gradient="enzyme",
        fast_math=fast,
        infer=lambda described: [TensorDescriptor("float32", output)],
        check=False,
    )
    call = Call(op, inputs, dy)
    tensors, seed = [torch.from_numpy(x).requires_grad_() for x in inputs], torch.from_numpy(dy)

    def eager() -> None:
        for tensor in tensors:
            tensor.grad = None
        function(*tensors).backward(seed)

    call.both()
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    function(*exact).backward(seed.double())
    for ours, theirs in zip(call.arrays[3], exact, strict=True):
        expected = theirs.grad.numpy()  # type: ignore[union-attr]
        np.testing.assert_allclose(ours, expected, atol=1e-4 * np.abs(expected).max(), rtol=1e-3)
    times = measure({"ours": call.both, "torch": eager}, rounds, 0.2)
    ratio = paired_ratio(times["ours"], times["torch"])
    both = ", ".join(f"{way} {median_interval(t).median * 1e3:.1f} ms" for way, t in times.items())
    print(f"  {name:>20}, {size}: {both}, ratio {ratio}")
    return ratio


def build_times() -> list[float]:
    """Seconds to build one operator, three times, not from our cache, checked and all; the compiler's own is warm."""
    any_shape = [TensorDescriptor("float32", None)]
    os.environ["DEEP500_ENZYME"] = str(find_engine().path)
    kept, taken = os.environ.get("DEEP500_CACHE"), []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["DEEP500_CACHE"] = folder
            source = source_of("gelu", hand=False) + f"\n// {time.time_ns()}\n"
            start = time.perf_counter()
            d5.compile_custom_cppop_inline("gelu", source, any_shape, any_shape, gradient="enzyme", fast_math=True)
            taken.append(time.perf_counter() - start)
    os.environ.pop("DEEP500_CACHE") if kept is None else os.environ.update(DEEP500_CACHE=kept)
    return sorted(taken)


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, measure, print; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--quick", action="store_true", help="few rounds: does it run, not how fast")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rounds = 8 if options.quick else options.rounds
    engine = find_engine()
    print(f"{engine.version}, {find_clang(engine).version}, torch {torch.__version__}, 1 thread, float32")
    means: dict[str, Interval] = {}
    for fast in (True, False):
        print(f"gradient over gradient by hand, {WAYS[fast]}:")
        means[WAYS[fast]] = geometric_mean([against_hand(name, fast, rounds) for name in SHAPES])
    met = say_ratio(HAND, means, at_most=1.1)
    print("forward and backward over PyTorch eager, 1e6 elements, fast_math:")
    eager: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "ipow": lambda x: x**5,
        "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    }
    ratios = {name: against_torch(name, function, rounds) for name, function in eager.items()}
    met &= say_ratio(EAGER, ratios, at_most=0.6)
    ratios = {}
    for fast in (True, False):
        print(f"forward and backward over PyTorch eager at sizes that models have, {WAYS[fast]}:")
        for name, size in REALISTIC:
            ratios[f"{name}, {size}, {WAYS[fast]}"] = at_size(name, size, fast, rounds)
    met &= say_ratio(SIZES, ratios, at_most=1.5)
    taken = build_times()
    met &= say(BUILD, f"{taken[0]:.2f} to {taken[-1]:.2f} s, {len(taken)} builds of gelu, checked", taken[-1] <= 3)
    return 0 if met else 1
