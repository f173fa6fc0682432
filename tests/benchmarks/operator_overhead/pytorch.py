"""A C++ operator in PyTorch through ``custom_op`` and through PyTorch's own extensions: ``--backend pytorch``.

The same C++ class is called through ``custom_op`` and, in the forms that PyTorch's tutorials show, through
``torch.utils.cpp_extension``: functions bound by pybind11 (with a ``torch.autograd.Function`` in Python around them to
train), and operators of ``TORCH_LIBRARY`` (with ``torch.library.register_autograd``). Needs g++ and ninja; builds for
half a minute. Variants take turns in random order; each round gives one pair, and pybind11 against itself again shows
what the method cannot resolve.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.cpp_extension import load_inline

import deep500 as d5
import deep500.frameworks.pytorch as d5fw
import deep500.operators
from deep500.measure.statistics import Interval, median_interval
from deep500.tensors import TensorDescriptor
from tests.benchmarks.filling import say_ratio
from tests.benchmarks.operator_overhead import BOTH, FORWARD
from tests.benchmarks.turns import Times, Work, measure, ratio_of

BAR = 1.1

OPERATOR = """
#include "deep500/deep500.h"
template <typename T> struct cube : deep500::CustomOperator {
  int n;
  explicit cube(int count) : n(count) {}
  void forward(const T *x, T *y) { for (int i = 0; i < n; ++i) y[i] = x[i] * x[i] * x[i]; }
  void backward(const T *dy, const T *x, const T *, T *dx) {
    for (int i = 0; i < n; ++i) dx[i] = 3 * dy[i] * x[i] * x[i];
  }
};
"""

FACTORY = """
D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  int n = 1;
  for (int d = 0; d < in[0].dims; ++d) n *= in[0].sizes[d];
  return new cube<D500_DTYPE>(n);
}
D500_REGISTER_OP(cube<D500_DTYPE>);
"""

EXTENSION = """
#include <torch/extension.h>
torch::Tensor forward(torch::Tensor x) {
  TORCH_CHECK(x.is_contiguous() && x.is_cpu(), "expected a contiguous tensor on the processor");
  auto y = torch::empty_like(x);
  cube<float>(x.numel()).forward(x.data_ptr<float>(), y.data_ptr<float>());
  return y;
}
torch::Tensor backward(torch::Tensor dy, torch::Tensor x) {
  dy = dy.contiguous();
  auto dx = torch::empty_like(x);
  cube<float>(x.numel()).backward(dy.data_ptr<float>(), x.data_ptr<float>(), nullptr, dx.data_ptr<float>());
  return dx;
}
TORCH_LIBRARY(deep500_yardstick, m) {
  m.def("cube(Tensor x) -> Tensor");
  m.def("cube_backward(Tensor dy, Tensor x) -> Tensor");
}
TORCH_LIBRARY_IMPL(deep500_yardstick, CPU, m) {
  m.impl("cube", &forward);
  m.impl("cube_backward", &backward);
}
"""


def build() -> Any:
    """The extension's module."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # where pip puts ninja
    include = str(Path(deep500.operators.__file__).parent / "include")
    with tempfile.TemporaryDirectory() as folder:
        return load_inline(
            "deep500_yardstick",
            OPERATOR + EXTENSION,
            functions=["forward", "backward"],
            extra_cflags=["-O3", "-march=native"],
            extra_include_paths=[include],
            build_directory=folder,
        )


def with_autograd(module: Any) -> Callable[..., Any]:
    """The functions of pybind11 as autograd takes them."""

    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = module.forward(x)
            ctx.save_for_backward(x)
            return y

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> Any:
            return module.backward(grads[0], *ctx.saved_tensors)

    return Cube.apply


def library_operator() -> Callable[..., Any]:
    """The operator of TORCH_LIBRARY, with its gradient."""

    def remember(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0])

    def gradient(ctx: Any, grad: torch.Tensor) -> Any:
        return torch.ops.deep500_yardstick.cube_backward(grad, *ctx.saved_tensors)

    torch.library.register_autograd("deep500_yardstick::cube", gradient, setup_context=remember)
    return torch.ops.deep500_yardstick.cube


def training(function: Callable[..., Any], size: int) -> Work:
    """Forward and backward."""
    x, dy = torch.randn(size, requires_grad=True), torch.ones(size)

    def step() -> None:
        function(x).backward(dy)
        x.grad = None

    return step


def forward(function: Callable[..., Any], size: int) -> Work:
    """Forward alone."""
    x = torch.randn(size)
    return lambda: function(x)


def report(pairs: Times) -> dict[str, Interval]:
    """Print one line per variant; returns our ratios to the two forms of PyTorch's."""
    for name, each in pairs.items():
        nanoseconds = 1e9 * median_interval([wall for _, wall in each]).median
        print(f"{name}: {nanoseconds:.0f} ns a call; over pybind11 {ratio_of(pairs, name, 'pybind11', 'wall')}")
    return {key: ratio_of(pairs, "deep500", key, "wall") for key in ("pybind11", "TORCH_LIBRARY")}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=16, help="elements")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--calls", type=int, default=300, help="per round")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    module, any_shape = build(), [TensorDescriptor("float32", None)]
    ours = d5fw.custom_op(d5.compile_custom_cppop_inline("cube", OPERATOR + FACTORY, any_shape, any_shape))
    assert ours.implementation == "builtin"
    operator, differentiable = library_operator(), with_autograd(module)
    plain = {"deep500": ours, "pybind11": module.forward, "pybind11 again": module.forward, "TORCH_LIBRARY": operator}
    trained = {**plain, "pybind11": differentiable, "pybind11 again": differentiable}
    with torch.no_grad():
        times = measure({k: forward(f, options.size) for k, f in plain.items()}, options.rounds, options.calls)
    met = say_ratio(FORWARD, report(times), BAR)
    times = measure({k: training(f, options.size) for k, f in trained.items()}, options.rounds, options.calls // 5)
    return 0 if say_ratio(BOTH, report(times), BAR) and met else 1
