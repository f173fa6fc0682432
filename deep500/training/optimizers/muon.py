"""Muon: momentum with its singular values made alike, for the matrices of hidden layers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from deep500.training.matrices import Matrix, hidden_matrices
from deep500.training.optimizers.adam import AdamWOptimizer
from deep500.training.optimizers.arithmetic import norm, reshaped, transposed
from deep500.training.optimizers.hyperparameters import choice, hyperparameter

A, B, C = 3.4445, -4.7750, 2.0315
"""Coefficients of the iteration, by which small singular values grow fastest (Jordan et al. 2024)."""


def orthogonalized(matrix: Any, steps: int = 5) -> Any:
    """A wide or square matrix with singular values of about 1 (.5 to 1.5), and its singular vectors.

    ``X = M / (|M| + 1e-7)``, then ``X <- a X + (b A + c A A) X`` with ``A = X X^T``, ``steps`` times: matrix products
    only. It is not ``U V^T``, and is not meant to be.

    Example:
        >>> import numpy as np
        >>> np.linalg.svd(orthogonalized(np.array([[9.0, 0, 0], [0, 1, 0]])))[1].round(1).tolist()
        [0.8, 0.7]
    """
    x = matrix / (norm(matrix) + 1e-7)
    for _ in range(steps):
        gram = x @ transposed(x)
        x = A * x + (B * gram + C * (gram @ gram)) @ x
    return x


SCALES: dict[str, Callable[[int, int], float]] = {
    "match_rms_adamw": lambda outputs, inputs: 0.2 * max(outputs, inputs) ** 0.5,
    "original": lambda outputs, inputs: max(1.0, outputs / inputs) ** 0.5,
    "spectral": lambda outputs, inputs: (outputs / inputs) ** 0.5,
}
"""By name what an update is multiplied by: Moonshot's (2025, arXiv 2502.16982), by which AdamW's rate and decay carry
over (Keras's default), Jordan's (PyTorch's and Optax's default), and Bernstein's."""


class MuonOptimizer(AdamWOptimizer):
    """Muon (Jordan et al. 2024) as Keras has it, in the parameters' own dtype (PyTorch's iterates in bfloat16).

    ``m <- momentum m + g;  d = g + momentum m`` (``m`` without ``nesterov``);
    ``w <- (1 - lr weight_decay) w - lr s X``, ``X`` of :func:`orthogonalized` and ``s`` of :data:`SCALES`.

    Which weights are such matrices, and which axis is the output's, is read from the graph
    (:func:`~deep500.training.matrices.hidden_matrices`); windows of convolutions are flattened. All others (biases,
    norms, embeddings, output layers) take AdamW with ``adam_lr_ratio lr``. Singular values are those of whole matrices:
    schemes whose ranks update parts of a tensor refuse it.

    Args:
        executor, loss, options: see :class:`~deep500.training.optimizers.base.Optimizer`.
        lr: learning rate.
        betas, eps: of AdamW, for the others.
        weight_decay: decoupled, of all.
        momentum: factor of the momentum.
        nesterov: whether to look ahead.
        scaling: a key of :data:`SCALES`.
        adam_lr_ratio: rate of the others as a share of ``lr``: 1 with ``match_rms_adamw``, less with larger rates.
        iterations: of the orthogonalization.
    """

    elementwise = False

    weight_decay: float = 0.1
    momentum: float = hyperparameter(0.95, below=1)
    nesterov: bool = True
    scaling: str = choice("match_rms_adamw", *SCALES)
    adam_lr_ratio: float = 1.0
    iterations: float = hyperparameter(5.0, least=1.0)
    _matrices: tuple[int, dict[str, Matrix]] | None = None

    def matrices(self) -> dict[str, Matrix]:
        """Those of the network as it is now."""
        if self._matrices is None or self._matrices[0] != self.network.version:
            self._matrices = self.network.version, hidden_matrices(self.network)
        return self._matrices[1]

    def update_rule(self, grad: Any, old_param: Any, name: str) -> Any:
        matrix = self.matrices().get(name)
        if matrix is None:
            return self.decayed(old_param) - self.adam_lr_ratio * self.moment_step(grad, name)
        buffers = self.slot("momentum_buffer")
        buffers[name] = self.momentum * buffers.get(name, 0.0) + grad
        direction = grad + self.momentum * buffers[name] if self.nesterov else buffers[name]
        shape = tuple(int(size) for size in grad.shape)
        flat = reshaped(direction, (shape[0], math.prod(shape[1:])))
        tall = shape[0] > math.prod(shape[1:])
        x = orthogonalized(transposed(flat) if tall else flat, int(self.iterations))
        update = reshaped(transposed(x) if tall else x, shape)
        return self.decayed(old_param) - self.lr * SCALES[self.scaling](matrix.outputs, matrix.inputs) * update
