"""Cases on ranks with an operator that communicates: a convolution over rows that ranks divide, normalised."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import deep500 as d5
from deep500.distributed import Serial, set_world
from deep500.distributed.transports.mpi import load
from deep500.errors import Deep500Error
from deep500.networks.dtype import to_dtype
from deep500.operators import registry
from deep500.recipe.loader import load_recipe

SOURCE = r"""
#include "deep500/communication.h"
#include "deep500/deep500.h"

// y = (w * x^2) least / (mean of squares), where * is a 3x3 convolution over rows that ranks divide, in a line; least:
// of x^2 + 1 over all rows.
template <typename T>
struct rows : deep500::CustomOperator {
  long height, width;
  d5::Neighbours around;
  d5::Exchange halo;

  rows(long h, long w) : height(h), width(w) {
    if (d5::rank() > 0) around.add(d5::rank() - 1, {1}, {0});
    if (d5::rank() < d5::ranks() - 1) around.add(d5::rank() + 1, {height}, {height + 1});
    halo = around.links(width);
  }
  std::size_t scratch() const { return (height + 2) * width; }

  void forward(const T *x, const T *w, T *y, T *padded) {
    T mine[2] = {0, 0}, all[2], least = 1e30, agreed;
    for (long c = 0; c < width; ++c) padded[c] = padded[(height + 1) * width + c] = 0;
    for (long i = 0; i < height * width; ++i) {
      padded[width + i] = x[i] * x[i];
      mine[0] += x[i] * x[i];
      mine[1] += 1;
      least = x[i] * x[i] + 1 < least ? x[i] * x[i] + 1 : least;
    }
    d5::exchange(padded, &halo);
    d5::allreduce_sum(mine, all, 2);
    d5::allreduce_min(&least, &agreed);
    for (long r = 0; r < height; ++r)
      for (long c = 0; c < width; ++c) {
        T sum = 0;
        for (long i = 0; i < 3; ++i)
          for (long j = 0; j < 3; ++j)
            if (c + j >= 1 && c + j <= width) sum += w[3 * i + j] * padded[(r + i) * width + c + j - 1];
        y[r * width + c] = sum * agreed * all[1] / all[0];
      }
  }
};
D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  return new rows<D500_DTYPE>(in[0].sizes[0], in[0].sizes[1]);
}
D500_REGISTER_OP(rows<D500_DTYPE>);
"""
HEIGHTS = (3, 1, 4)
"""Rows of each rank."""


def compiled(comm: Any, source: str = SOURCE, **options: Any) -> d5.CustomOp:
    """The operator: alone, or with the ranks of a communicator."""
    inputs = [d5.tensordesc(("H", "W"), "float64"), d5.tensordesc((3, 3), "float64")]
    return d5.compile_custom_cppop_inline("rows", source, inputs, inputs[:1], gradient="enzyme", comm=comm, **options)


def is_like_alone(comm: Any) -> dict[str, Any]:
    """How far every backend's results and gradients are from those of the operator alone; what is refused."""
    op, alone = compiled(comm), compiled(None)
    rng = np.random.default_rng(0)
    x, w, dy = (rng.standard_normal(shape) for shape in ((sum(HEIGHTS[: comm.size]), 5), (3, 3), (8, 5)))
    dy = dy[: len(x)]
    first = sum(HEIGHTS[: comm.rank])
    mine = slice(first, first + HEIGHTS[comm.rank])
    y = alone(x, w)
    dx, dw = alone.run_backward([dy], [x, w], [y])
    expected = (y[mine], dx[mine], dw)
    errors = {}
    for backend in ("reference", "pytorch", "onnxruntime"):
        try:
            got = list(_in(backend, op, x[mine].copy(), w, dy[mine].copy()))
        except d5.errors.MissingBackend:
            continue
        comm.all_reduce(got[2])
        errors[backend] = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(got, expected, strict=True))
    return {"errors": errors, "refused": refusals(op, comm)}


def _in(backend: str, op: Any, x: np.ndarray, w: np.ndarray, dy: np.ndarray) -> tuple[np.ndarray, ...]:
    function = d5.load_backend(backend).custom_op(op)
    if backend != "pytorch":
        y = function(x, w)
        return (y, *op.run_backward([dy], [x, w], [y]))
    import torch

    a, b = (torch.tensor(v, requires_grad=True) for v in (x, w))
    y = function(a, b)
    y.backward(torch.tensor(dy))
    return y.detach().numpy(), a.grad.numpy(), b.grad.numpy()


def refusals(op: Any, comm: Any) -> dict[str, str]:
    """What is refused, and how."""
    said: dict[str, str] = {}
    alone = load().COMM_SELF

    def note(name: str, call: Any) -> None:
        try:
            call()
            said[name] = "nothing"
        except Deep500Error as error:
            said[name] = f"{type(error).__name__}: {error}"

    note("second", lambda: compiled(alone))
    note("copy", op.__reduce__)
    note("jvp", lambda: op.jvp([np.ones((2, 2)), np.ones((3, 3))], [np.ones((2, 2)), np.ones((3, 3))]))
    note("isolate", lambda: compiled(comm, isolate=True))
    return said


def trains(comm: Any) -> dict[str, Any]:
    """After three steps on shares of batches, and on shares that differ."""
    return {"even": _trained(comm, 12), "uneven": _trained(comm, 11)}


def _trained(comm: Any, batch: int) -> dict[str, Any]:
    """How far parameters are from those of steps on whole batches, alone."""
    recipe = load_recipe(Path(__file__).parents[2] / "recipes" / "digits_macro_f1.py")
    rng = np.random.default_rng(0)
    batches = [(rng.standard_normal((batch, 6)), rng.integers(0, 3, batch)) for _ in range(3)]

    def trained(ranks: Any) -> list[np.ndarray]:
        set_world(ranks)
        registry._make.cache_clear()  # operators ask for the world once
        executor = d5.load_backend("reference").from_model(to_dtype(recipe.model(3, (6,), 0), "float64"))
        base = d5.load_backend("reference").GradientDescent(executor, lr=0.5)
        optimizer = d5.schemes.ConsistentDecentralized(base, ranks)
        share = slice(ranks.rank, None, ranks.size)
        states = [executor.network.state()]
        for x, label in batches:
            optimizer.step({"input": x[share], "label": label[share]})
        states.append(executor.network.state())
        return [np.concatenate([np.ravel(array) for array in state.values()]) for state in states]

    start, alone = trained(Serial())
    try:
        _, together = trained(comm)
    except Deep500Error as error:
        return {"refused": str(error)}
    finally:
        set_world(comm)
    return {"error": float(np.abs(together - alone).max()), "moved": float(np.abs(alone - start).max())}
