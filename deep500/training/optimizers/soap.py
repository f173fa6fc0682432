"""SOAP: Adam in the eigenbases of Shampoo's preconditioners."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from deep500.training.optimizers.arithmetic import reshaped, transposed
from deep500.training.optimizers.base import UpdateRuleOptimizer
from deep500.training.optimizers.hyperparameters import hyperparameter


class SOAPOptimizer(UpdateRuleOptimizer):
    """SOAP (Vyas et al. 2024, arXiv 2409.11321) as its authors' and pytorch-optimizer have it.

    For each axis of a tensor with two or more (of at most ``max_dim``) an average of ``G G^T`` and a basis, of its
    eigenvectors at first. The first step does that only. In later ones, ``s`` of them so far, with ``R`` the rotation
    into all bases: ``m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) R(g)^2``;
    ``w <- w - lr sqrt(1 - b2^s) / (1 - b1^s) R^-1(R(m) / (sqrt(v) + eps));  w <- (1 - lr weight_decay) w``; then the
    averages take ``g``, and every ``frequency`` steps a basis becomes the orthogonal factor of its average times
    itself, columns in the order of their share, ``v`` likewise. NumPy does that on the host, in the parameters' dtype.

    Bases are of whole axes: schemes whose ranks update parts of a tensor refuse it. Where eigenvalues are nearly
    equal, bases differ between machines, and runs in float32 part: compare losses.

    Args:
        executor, loss, options: see :class:`~deep500.training.optimizers.base.Optimizer`.
        lr: learning rate.
        betas, eps: as Adam's.
        weight_decay: decoupled.
        shampoo_beta: of the averages.
        frequency: steps between new bases.
        max_dim: size up to which an axis has a basis.
    """

    decoupled = True

    lr: float = 3e-3
    betas: tuple[float, float] = hyperparameter((0.95, 0.95), below=1)
    eps: float = 1e-8
    weight_decay: float = 1e-2
    shampoo_beta: float = hyperparameter(0.95, below=1)
    frequency: float = hyperparameter(10.0, least=1.0)
    max_dim: float = hyperparameter(1e4, least=1.0)

    def update_rule(self, grad: Any, old_param: Any, name: str) -> Any:
        (b1, b2), s, means, squares = self.betas, self.steps, self.slot("exp_avg"), self.slot("exp_avg_sq")
        if name not in means:
            means[name], squares[name] = grad * 0, grad * 0
            self._learn(grad, name)
            return old_param * 1
        means[name] = b1 * means[name] + (1 - b1) * grad
        rotated = self._rotated(grad, name)
        squares[name] = b2 * squares[name] + (1 - b2) * rotated * rotated
        update = self._rotated(self._rotated(means[name], name) / (squares[name] ** 0.5 + self.eps), name, back=True)
        rate = self.lr * (1 - b2**s) ** 0.5 / (1 - b1**s)
        self._learn(grad, name)
        if s % int(self.frequency) == 0:
            self._refresh(name)
        return self.decayed(old_param - rate * update)

    def _axes(self, tensor: Any) -> list[tuple[int, int]]:
        """Each axis and its size; 0 for one without a basis."""
        sizes = [int(size) for size in tensor.shape]
        return [(axis, n if len(sizes) > 1 and n <= self.max_dim else 0) for axis, n in enumerate(sizes)]

    def _rotated(self, tensor: Any, name: str, back: bool = False) -> Any:
        """A tensor in the bases of its axes, or back from them."""
        for axis, size in self._axes(tensor):
            shape = [int(n) for n in tensor.shape]  # the axis that is due comes first
            columns = transposed(reshaped(tensor, (shape[0], math.prod(shape[1:]))))
            if size:
                basis = self.slot(f"basis{axis}")[name]
                columns = columns @ (transposed(basis) if back else basis)
            tensor = reshaped(columns, (*shape[1:], shape[0]))
        return tensor

    def _learn(self, grad: Any, name: str) -> None:
        """Take a gradient into the averages; the first one makes the bases, too."""
        for axis, size in self._axes(grad):
            shape = [int(n) for n in grad.shape]
            rows, grams = reshaped(grad, (shape[0], math.prod(shape[1:]))), self.slot(f"gram{axis}")
            if size:
                outer = (1 - self.shampoo_beta) * (rows @ transposed(rows))
                grams[name] = self.shampoo_beta * grams[name] + outer if name in grams else outer
                if name not in self.slot(f"basis{axis}"):
                    gram = np.asarray(self.network.to_numpy(grams[name]))
                    vectors = np.linalg.eigh(gram + 1e-30 * np.eye(size, dtype=gram.dtype))[1][:, ::-1]
                    self.slot(f"basis{axis}")[name] = self.network.to_tensor(np.ascontiguousarray(vectors))
            grad = reshaped(transposed(rows), (*shape[1:], shape[0]))

    def _refresh(self, name: str) -> None:
        """One step of the power method for the bases of a parameter."""
        network, squares = self.network, self.slot("exp_avg_sq")
        square = np.asarray(network.to_numpy(squares[name]))
        for axis, size in self._axes(square):
            if size:
                bases = self.slot(f"basis{axis}")
                basis = np.asarray(network.to_numpy(bases[name]))
                product = np.asarray(network.to_numpy(self.slot(f"gram{axis}")[name])) @ basis
                order = np.argsort(-(basis * product).sum(axis=0), kind="stable")
                square = square.take(order, axis)
                bases[name] = network.to_tensor(np.linalg.qr(product[:, order])[0])
        squares[name] = network.to_tensor(np.ascontiguousarray(square))

    def slot_shape(self, slot: str, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        axis = slot.removeprefix("basis").removeprefix("gram")
        return (shape[int(axis)],) * 2 if axis != slot else shape
