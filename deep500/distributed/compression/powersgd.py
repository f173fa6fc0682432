"""`PowerSGD`: gradient matrices as products of two thin ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from deep500.distributed.compression.base import Compression, Flat
from deep500.distributed.transports.communicator import Communicator
from deep500.training.optimizers.base import Optimizer


class PowerSGD(Compression):
    """Low-rank compression (Vogels et al. 2019, arXiv 1905.13727, algorithms 1 and 2), with error feedback.

    Every parameter with two or more dimensions is a matrix ``M`` (n, m), its first dimension against all others. One
    step of subspace iteration, started from the last step's Q: ``P <- orthonormal(sum_p M_p Q)``; ``Q <- sum_p M_p^T
    P``; every rank gets ``P Q^T`` for ``sum_p M_p`` and feeds back ``M_p - P P^T M_p``, what is missing of its own.
    (PyTorch's ``powerSGD_hook`` feeds back ``M_p - P Q^T / ranks``: the sum over ranks is the same, on which alone the
    results depend.) Exact where the sum has no more than ``rank`` singular values other than 0. Vectors, and
    matrices that the factors would not make smaller, are summed as they are.

    The orthonormalisation runs on every rank, so ranks have the same bits where they have the same LAPACK.

    Payload per step and rank: ``itemsize (rank (n + m))`` bytes per matrix, and the bytes of all vectors.

    Args:
        base_optimizer, comm: see :class:`~deep500.distributed.optimizer.DistributedOptimizer`; native ones work too.
        rank: of the approximation; at most n and m.
        seed: of the first Q, which is the same on all ranks.

    Attributes:
        q: the last step's Q (m, rank) by parameter. Part of the state.

    Raises:
        InputError: ``rank`` below 1, a seed below 0.
    """

    def __init__(
        self, base_optimizer: Optimizer, comm: Communicator | None = None, rank: int = 4, seed: int = 0
    ) -> None:
        from deep500.training.data.samplers import checked_integer

        self.matrix_rank, self.seed = checked_integer("rank", rank, 1), checked_integer("seed", seed, 0)
        self.q: dict[str, np.ndarray] = {}
        super().__init__(base_optimizer, comm)

    def combine(self, flat: Flat) -> tuple[np.ndarray, np.ndarray]:
        """Two reductions: of all P and what is not compressed, of all Q."""
        shaped = {name: self._matrix(tensor) for name, tensor in flat.tensors.items()}
        matrices = {name: matrix for name, matrix in shaped.items() if matrix is not None}
        for name, matrix in matrices.items():
            if name not in self.q or self.q[name].shape[0] != matrix.shape[1]:
                self.q[name] = self._first(name, matrix)
        whole = {name: tensor for name, tensor in flat.tensors.items() if name not in matrices}
        first = _summed(self.comm, [*(m @ self.q[n] for n, m in matrices.items()), *whole.values()])
        bases = dict(zip(matrices, (np.linalg.qr(p)[0] for p in first[: len(matrices)]), strict=True))
        products = {name: matrix.T @ bases[name] for name, matrix in matrices.items()}
        self.q.update(zip(products, _summed(self.comm, list(products.values())), strict=True))
        sums = dict(zip(whole, first[len(matrices) :], strict=True))
        total, sent = [], []
        for name, tensor in flat.tensors.items():
            total.append(sums[name].ravel() if name in sums else (bases[name] @ self.q[name].T).ravel())
            sent.append(tensor.ravel() if name in sums else (bases[name] @ products[name].T).ravel())
        return np.concatenate(total), np.concatenate(sent)

    def _matrix(self, tensor: np.ndarray) -> np.ndarray | None:
        if tensor.ndim < 2 or not tensor.size:
            return None
        matrix = tensor.reshape(tensor.shape[0], -1)
        rank = min(self.matrix_rank, *matrix.shape)
        return matrix if sum(matrix.shape) * rank < matrix.size else None

    def _first(self, name: str, matrix: np.ndarray) -> np.ndarray:
        rng = np.random.default_rng([self.seed, *name.encode("utf-8")])
        return rng.standard_normal((matrix.shape[1], min(self.matrix_rank, *matrix.shape))).astype(matrix.dtype)

    def own_state(self) -> dict[str, np.ndarray]:
        return {**super().own_state(), **{f"q/{name}": array.copy() for name, array in self.q.items()}}

    def load_own_state(self, state: Mapping[str, np.ndarray]) -> None:
        super().load_own_state(state)
        self.q = self.slots("q", state, shaped=False)


def _summed(comm: Communicator, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """The sums over ranks of several arrays of one dtype, in one call."""
    if not arrays:
        return []
    flat = comm.all_reduce(np.concatenate([array.ravel() for array in arrays]))
    borders = np.cumsum([array.size for array in arrays])[:-1]
    return [part.reshape(a.shape) for part, a in zip(np.split(flat, borders), arrays, strict=True)]
