"""Options of executors, declared once: those that all backends know here, a backend's further ones in a subclass."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ExecutorOptions:
    """Options with which an executor of any backend is made.

    Attributes:
        strict: raise MissingDevice instead of falling back to the CPU.
        quantization: gradients of quantised values: none, or those of the straight-through estimator
            (``"straight_through"``, see :mod:`deep500.networks.quantization`).
        precision: of float32 on a GPU: ``"ieee"``, or ``"tf32"``, which rounds what products and convolutions take to
            ten bits of fraction and differs by 1e-3. CPUs compute as IEEE says, whatever is asked for.
        deterministic: on a GPU, allow only kernels that give the same bits every time; an operator without one is an
            error that names it.
    """

    strict: bool = False
    quantization: str | None = None
    precision: str = "ieee"
    deterministic: bool = False
