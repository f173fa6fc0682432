"""Custom operators in PyTorch: the short way of compiled operators, the GPU's, and nodes of networks."""

from __future__ import annotations

import copy
import ctypes
import gc
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")


import deep500 as d5  # noqa: E402
import deep500.frameworks.pytorch as d5fw  # noqa: E402
from deep500.errors import InputError, NetworkError, OperatorError  # noqa: E402
from deep500.frameworks.pytorch import compiled, gpu, shortcut  # noqa: E402
from deep500.networks import Network, add_loss  # noqa: E402
from deep500.operators import registry  # noqa: E402
from deep500.operators.bridge import build_bridge  # noqa: E402
from deep500.operators.python_op import GradientOp  # noqa: E402
from tests.frameworks.torch_operators import Cube, MulAdd, compile_cube, random  # noqa: E402

pytestmark = pytest.mark.backend("pytorch")
Function = Any  # of tensors, with attributes


# -- the short way ----------------------------------------------------------------------------------------------------
def test_without_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: Any) -> Any:
        raise shortcut.Missing("a piece of PyTorch")

    monkeypatch.setattr(compiled, "Method", missing)
    function = d5fw.custom_op(compile_cube("float64", infer=list))  # infer: an operator that was not made before
    assert function.implementation == "library"
    assert torch.autograd.gradcheck(function, (random(3),))


def test_the_short_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    function = d5fw.custom_op(compile_cube("float64", infer=list))
    x = random(3)
    function(x).sum().backward()
    monkeypatch.setattr(function.library, "forward", None)
    monkeypatch.setattr(function.library, "backward", None)
    function(x).sum().backward()
    assert torch.allclose(x.grad, 6 * x**2)
    with pytest.raises(TypeError):
        function(random(4, grad=False))  # shapes that are new go through the library


def test_more_shapes_than_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortcut, "CAPACITY", 4)
    function = d5fw.custom_op(compile_cube("float64", infer=list))
    for _ in range(2):
        for size in range(1, 12):
            x = random(size)
            function(x).sum().backward()
            assert torch.allclose(x.grad, 3 * x**2)


def test_nothing_is_left_behind() -> None:
    def alive() -> int:
        gc.collect()
        return sum(type(held) is torch.Tensor for held in gc.get_objects())

    function = d5fw.custom_op(compile_cube("float64"))
    x = random(6, grad=False)[::2].requires_grad_()  # not contiguous: copied by every call
    wrong = torch.zeros(3)
    before = 0
    for number in range(40):
        if number == 20:
            before = alive()
        function(x).sum().backward()
        function(x.detach())
        with pytest.raises(InputError):
            function(wrong)
    assert alive() <= before


def test_threads() -> None:
    function = d5fw.custom_op(compile_cube("float64", infer=list))
    start = threading.Barrier(4)

    def work(seed: int) -> bool:
        start.wait()
        right = True
        for size in [*range(1, 30), 5000] * 3:  # 5000: the lock of Python is given up
            x = torch.full((size,), float(seed), dtype=torch.float64, requires_grad=True)
            y = function(x)
            y.sum().backward()
            right &= bool((y == seed**3).all()) and bool((x.grad == 3 * seed**2).all())
        return right

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(1, 5)))


# -- on a GPU ---------------------------------------------------------------------------------------------------------
CUDA = """
#include "deep500/deep500.h"
template <typename T> __global__ void cubes(const T *x, T *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * x[i] * x[i];
}
template <typename T> __global__ void slopes(const T *dy, const T *x, T *dx, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) dx[i] = 3 * dy[i] * x[i] * x[i];
}
struct gpu_cube : deep500::CustomOperator {
  int n;
  explicit gpu_cube(int count) : n(count) {}
  bool supports_cuda() override { return true; }
  void forward_cuda(const double *x, double *y, cudaStream_t stream) { cubes<<<n / 64 + 1, 64, 0, stream>>>(x, y, n); }
  void backward_cuda(const double *dy, const double *x, const double *, double *dx, cudaStream_t stream) {
    slopes<<<n / 64 + 1, 64, 0, stream>>>(dy, x, dx, n);
  }
};
D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  return new gpu_cube(in[0].sizes[0]);
}
D500_REGISTER_OP(gpu_cube);
"""


@pytest.mark.gpu
def test_operators_in_cuda(tmp_path: Path) -> None:
    (tmp_path / "gpu_cube.cu").write_text(CUDA)
    described = [d5.tensordesc(("N",), "float64")]
    function = d5fw.custom_op(d5.compile_custom_cppop("gpu_cube", tmp_path / "gpu_cube.cu", described, described))
    x = random(100).cuda().detach().requires_grad_()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.testing.assert_close(function(x), x**3)
        assert torch.autograd.gradcheck(function, (x,))
    with pytest.raises(InputError, match="expected all on one device"):
        function.library.backward([x], [x.cpu()], [x], [True])


STAND_IN = """
#include <cstdint>
#define API extern "C" __attribute__((visibility("default")))
API void *d500_instance(const int64_t *sizes) { return sizes[1] == 13 ? nullptr : new int64_t(sizes[1]); }
API const char *d500_error() { return "unlucky"; }
API int d500_backward_cuda(void *n, const void *const *grads, const void *const *inputs, const void *const *,
                           void *const *wanted, void *stream) {
  for (int i = 0; i < 2; ++i)
    for (int64_t k = 0; wanted[i] && k < *static_cast<int64_t *>(n); ++k)
      static_cast<double *>(wanted[i])[k] =
          (1 + i) * static_cast<const double *>(grads[0])[k] * static_cast<const double *>(inputs[1 - i])[k];
  return stream != nullptr;
}
"""


def test_launches_pass_pointers_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_stream", lambda device: nullcontext(0))
    (tmp_path / "stand_in.cpp").write_text(STAND_IN)
    library = ctypes.CDLL(str(build_bridge(tmp_path / "stand_in.cpp", [], [], "test")))

    class StandIn:
        name = "product"

        def address(self, symbol: str) -> int:
            return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0

        def sizes(self, inputs: Any) -> Any:
            return np.array([n for shape in inputs for n in (len(shape), *shape)], np.int64)

    x, w, dy = (random(6, grad=False)[::2] for _ in range(3))
    results = [d5.tensordesc((3,), "float64")] * 2
    (dw,) = gpu.launch(StandIn(), "backward", [x, w], [[dy], [x, w], [x * w]], results, [False, True])
    torch.testing.assert_close(dw, 2 * dy * x)
    unlucky = [torch.zeros(13, dtype=torch.float64)] * 2
    with pytest.raises(OperatorError, match="unlucky"):
        gpu.launch(StandIn(), "backward", unlucky, [unlucky[:1], unlucky, unlucky[:1]], results, [True, True])


# -- in networks ------------------------------------------------------------------------------------------------------
@pytest.fixture
def registered() -> Any:
    """TestCube: compiled for float32, in Python for other dtypes; TestMulAdd."""
    known = dict(registry._factories)

    @d5.register_op("TestCube")
    def make(inputs: Any, python: int = 0) -> Any:
        return Cube() if python else compile_cube(inputs[0].dtype)

    d5.register_op("TestMulAdd")(MulAdd)
    yield
    registry._factories.clear()
    registry._factories.update(known)
    registry._make.cache_clear()


def network(activation: Callable[[Network], None]) -> Network:
    rng = np.random.default_rng(0)
    net = Network("net")
    net.add_input("x", ("N", 4))
    net.add_parameter("w", rng.normal(size=(4, 5)).astype("f4"))
    net.add_parameter("v", rng.normal(size=(5, 3)).astype("f4") / 4)
    net.add_node("MatMul", ["x", "w"], ["h"])
    activation(net)
    net.add_node("MatMul", ["a", "v"], ["output"])
    net.add_output("output")
    return add_loss(net)


def by_onnx(net: Network) -> None:
    net.add_node("Mul", ["h", "h"], ["hh"])
    net.add_node("Mul", ["hh", "h"], ["a"])


@pytest.mark.parametrize("python", [0, 1])
def test_training_equals_the_native_operator(registered: None, python: int) -> None:
    losses: list[list[float]] = []
    for activation in (by_onnx, lambda net: net.add_node("TestCube", ["h"], ["a"], domain="deep500", python=python)):
        executor = d5fw.from_model(network(activation))
        optimizer = d5fw.MomentumOptimizer(executor, "loss", 0.01, 0.9)
        rng = np.random.default_rng(1)
        losses.append([])
        for size in (8, 8, 5, 8, 3) * 3:
            batch = {"x": rng.normal(size=(size, 4)).astype("f4"), "label": rng.integers(0, 3, size)}
            losses[-1].append(float(optimizer.step(batch)["loss"]))
    assert losses[0][-1] != losses[0][0]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-6)


def test_modules_with_custom_nodes_are_copied_and_pickled(registered: None) -> None:
    def activation(net: Network) -> None:
        net.add_node("TestCube", ["h"], ["b"], domain="deep500")
        net.add_node("TestMulAdd", ["b", "h"], ["", "a"], domain="deep500")

    executor = d5fw.from_model(network(activation))
    x, label = torch.randn(2, 4), torch.tensor([0, 1])
    module = executor.module
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert other is not module
        for a, b in zip(other(x, label), module(x, label), strict=True):
            assert torch.equal(a, b)
    fast = d5fw.from_model(network(activation))
    compiled_module = torch.compile(fast.module, fullgraph=True, backend="aot_eager")
    for a, b in zip(compiled_module(x, label), module(x, label), strict=True):
        assert torch.allclose(a, b)


def test_errors_name_the_node(registered: None) -> None:
    net = Network("net")
    net.add_input("x", (None, 2))
    net.add_input("z", (None, 2))
    net.add_node("TestMulAdd", ["x", "z"], ["a", "b"], domain="deep500", name="both")
    net.add_output("a")
    with pytest.raises((InputError, NetworkError), match=r"node 'both' \(deep500.TestMulAdd\): operator 'MulAdd'"):
        d5fw.from_model(net).inference({"x": np.zeros((2, 2), "f4"), "z": np.zeros((3, 2), "f4")})


def test_exceptions_of_the_author_become_errors(registered: None) -> None:
    class Broken(Cube):
        def __init__(self, where: str) -> None:
            super().__init__()
            self.where = where

        def forward(self, inputs: Any) -> Any:
            if self.where == "forward" and not inputs[0].all():
                raise IndexError("gone")
            return super().forward(inputs)

        def backward(self, *args: Any) -> Any:
            raise KeyError("lost")

    d5.register_op("TestLost")(Broken)
    batch = {"x": np.zeros((2, 4), "f4"), "label": np.array([0, 1])}
    for where, text in (
        (
            "forward",
            r"^node 'bad' \(deep500.TestLost\): operator 'Broken': got IndexError .* from its forward for float32",
        ),
        ("backward", r"operator 'Broken': got KeyError \('lost'\) from its backward for float32\[2, 5\]"),
    ):
        add = partial(Network.add_node, op_type="TestLost", inputs=["h"], outputs=["a"], domain="deep500", name="bad")
        executor = d5fw.from_model(network(partial(add, where=where)))
        with pytest.raises(NetworkError, match=text) as caught:
            executor.inference_and_backprop(batch)
        assert isinstance(caught.value.__cause__, (LookupError, NetworkError))


def test_gradient_operators_as_functions() -> None:
    x, w = random(3, grad=False), random(3, grad=False)
    op = MulAdd()
    y = d5fw.custom_op(op)(x, w)
    grads = d5fw.custom_op(GradientOp(op, 2))(x, w, x, w, *y)
    assert torch.allclose(grads[0], x * w + w) and torch.allclose(grads[1], x * x + w)
    assert d5fw.custom_op(GradientOp(op, 2)) is d5fw.custom_op(GradientOp(op, 2))


def test_same_content_is_registered_once() -> None:
    op = compile_cube("float64")
    assert d5fw.custom_op(op) is d5fw.custom_op(pickle.loads(pickle.dumps(op)))
    assert d5fw.custom_op(Cube()) is not d5fw.custom_op(Cube())
