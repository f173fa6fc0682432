"""Operators in CUDA: compiled where nvcc is; without a GPU, one error that says what is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import deep500 as d5
from deep500.operators.cpp import compilers

VECTOR = [d5.tensordesc(["N"])]


def test_cuda_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "op.cu").write_text(CUDA, encoding="utf-8")
    monkeypatch.setattr(compilers, "gpu_architecture", lambda: (None, "no driver"))
    monkeypatch.setattr(compilers, "nvcc_program", lambda: None)
    with pytest.raises(
        d5.errors.MissingDevice, match=r"got no nvcc and no GPU \(no driver\); expected nvcc and a GPU: install"
    ):
        d5.compile_custom_cppop("twice", tmp_path / "op.cu", VECTOR, VECTOR)
    monkeypatch.setattr(compilers, "nvcc_program", lambda: Path("/bin/nvcc"))
    with pytest.raises(d5.errors.MissingDevice, match=r"got nvcc at /bin/nvcc and no GPU \(no driver\)"):
        d5.compile_custom_cppop("twice", tmp_path / "op.cu", VECTOR, VECTOR)
    with pytest.raises(d5.errors.InputError, match="Enzyme differentiates C\\+\\+ for the processor only"):
        d5.compile_custom_cppop("twice", tmp_path / "op.cu", VECTOR, VECTOR, gradient="enzyme")


CUDA = """
#include "deep500/deep500.h"
__global__ void kernel(const float *x, float *y, std::size_t n) {
  const std::size_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
struct twice : deep500::CustomOperator {
  std::size_t n;
  explicit twice(std::size_t n) : n(n) {}
  bool supports_cuda() override { return true; }
  void forward_cuda(const float *x, float *y, cudaStream_t stream) { kernel<<<n / 256 + 1, 256, 0, stream>>>(x, y, n); }
  void backward_cuda(const float *dy, const float *x, const float *y, float *dx, cudaStream_t stream) {
    kernel<<<n / 256 + 1, 256, 0, stream>>>(dy, dx, n);
  }
};
D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  return new twice(in[0].size());
}
D500_REGISTER_OP(twice);
"""


@pytest.mark.skipif(compilers.nvcc_program() is None, reason="nvcc is not there")
def test_cuda_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU the code is compiled for some, and running it is an error rather than a crash."""
    architecture = compilers.gpu_architecture()[0]
    if architecture is None:
        monkeypatch.setattr(compilers, "gpu_architecture", lambda: ("sm_90", ""))
    (tmp_path / "op.cu").write_text(CUDA, encoding="utf-8")
    op = d5.compile_custom_cppop("twice", tmp_path / "op.cu", VECTOR, VECTOR)
    assert op.signature["cuda"] and op.differentiable and op.address("d500_forward_cuda")
    x = np.arange(1000, dtype="float32")
    if architecture is None:
        with pytest.raises(d5.errors.OperatorError, match="forward threw std::runtime_error: cudaMalloc: CUDA driver"):
            op(x)
    else:
        np.testing.assert_array_equal(op(x), 2 * x)
        np.testing.assert_array_equal(op.run_backward([x], [x], [x])[0], 2 * x)
    (tmp_path / "bad.cu").write_text(CUDA.replace("cudaStream_t stream)", "int)"), encoding="utf-8")
    with pytest.raises(d5.errors.CompileError, match=r"bad\.cu|expected public void forward_cuda"):
        d5.compile_custom_cppop("twice", tmp_path / "bad.cu", VECTOR, VECTOR)
