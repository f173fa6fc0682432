"""Agreement of a trained network's results with another backend's, from the same weights on the same samples.

These say whether a backend, a custom operator or a transformation computes what it should; the norms are those of
:mod:`deep500.metrics.errors`. The comparison runs after the training, on copies: nothing of the run is changed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import Deep500Error, InputError
from deep500.metrics.base import ProbingMetric
from deep500.metrics.errors import ErrorMetric, L2Error, MaxError, heat_map
from deep500.registry import load_backend
from deep500.tensors import digest


class OutputError(ProbingMetric):
    """Error of the outputs in evaluation mode against another backend's.

    Args:
        norm: how to measure it; the relative Euclidean norm if None.
        backend: name of the other backend.
        samples: how many samples of a validation batch.

    Raises:
        InputError: fewer than one sample.
    """

    direction, kind = "lower", "quality"
    what = "output"

    def __init__(self, norm: ErrorMetric | None = None, backend: str = "reference", samples: int = 4) -> None:
        if samples < 1:
            raise InputError(f"got samples={samples}; expected at least 1")
        self.norm, self.backend, self.samples = norm or L2Error(relative=True), backend, samples
        self.name = f"{self.what}_{self.norm.name}"

    def pairs(self) -> tuple[list[str], list[np.ndarray], list[np.ndarray]] | None:
        """Names of the results, this backend's and the other's; None, and a reason, where they cannot be compared."""
        self.reason, self.details = "", {}
        batch = self.first(self.samples) if self.ready() else None
        if batch is None:
            return None
        executor = self.run.executor
        arrays = {name: executor.network.to_numpy(value) for name, value in batch.items()}
        try:
            other = load_backend(self.backend).from_model(executor.network.copy())
            return self._both(executor, other, arrays)
        except Deep500Error as error:
            self.reason = f"not comparable with {self.backend}: {error}"
            return None

    def _both(self, executor: Any, other: Any, batch: dict[str, np.ndarray]) -> Any:
        names = list(executor.network.outputs)
        outputs = [side.inference(batch, names) for side in (executor, other)]
        return names, *(
            [side.network.to_numpy(values[name]) for name in names]
            for side, values in zip((executor, other), outputs, strict=True)
        )

    def measure(self, statistics: Any) -> float | None:
        """The error of all results taken together; ``details`` has each by itself."""
        pairs = self.pairs()
        if pairs is None:
            return None
        names, outputs, reference = pairs
        self.details = {name: self.norm.compare(a, b) for name, a, b in zip(names, outputs, reference, strict=True)}
        return self.norm.compare(outputs, reference)


class GradientError(OutputError):
    """Error of the gradients of all parameters, in training mode, against another backend's."""

    what = "gradient"

    def _both(self, executor: Any, other: Any, batch: dict[str, np.ndarray]) -> Any:
        drawn = sorted({node.op_type for node in executor.network.nodes if node.is_random})
        if drawn:
            self.reason = f"{', '.join(drawn)} draws other numbers in every backend"
            return None
        loss = self.run.optimizer.loss
        names = [gradient for _, gradient in executor.network.gradient(loss)]
        state = executor.network.state()  # training mode moves running statistics
        try:
            gradients = _gradients(executor, batch, loss, names)
        finally:
            executor.network.load_state(state)
        return names, gradients, _gradients(other, batch, loss, names)


class DifferenceMap(OutputError):
    """Largest difference of the outputs from another backend's, with a picture of where they differ.

    Args:
        path: the picture; its ending is one that matplotlib knows (``.png``, ``.svg``).
        output: which output; the first besides the loss if None.
        backend: name of the other backend.
        samples: how many samples of a validation batch.
    """

    what = "difference"

    def __init__(
        self, path: str | Path, output: str | None = None, backend: str = "reference", samples: int = 4
    ) -> None:
        super().__init__(MaxError(), backend, samples)
        self.path, self.output, self.name = Path(path), output, "difference_map"

    def measure(self, statistics: Any) -> float | None:
        """The largest difference; draws the picture."""
        pairs = self.pairs()
        if pairs is None:
            return None
        names, outputs, reference = pairs
        output = self.output or next(name for name in names if name != self.run.optimizer.loss)
        if output not in names:
            raise InputError(f"got output {output!r}; expected one of {names}: name one")
        number = names.index(output)
        difference = np.abs(outputs[number].astype(np.float64) - reference[number])
        heat_map(difference, self.path, f"|difference| of {output!r} from {self.backend}")
        self.details = {"picture": str(self.path), "output": output}
        return float(difference.max(initial=0.0))


def _gradients(executor: Any, batch: dict[str, np.ndarray], loss: str, names: Sequence[str]) -> list[np.ndarray]:
    executor.inference_and_backprop(batch, loss)
    return [np.array(executor.network.to_numpy(tensor)) for tensor in executor.network.fetch_tensors(names)]


class BitwiseEqual(ProbingMetric):
    """Equality of the trained parameters, bit by bit, with those of another run: 1, or 0.

    ``deep500 bits --run RUN RUN`` names the operator where two runs part.

    Args:
        expected: the SHA-256 that the other run's metric told. None: nothing is judged, and the reason has this run's.

    Raises:
        InputError: no such digest.
    """

    name, unit, direction, kind = "bitwise_equal", "", "higher", "quality"

    def __init__(self, expected: str | None = None) -> None:
        if expected is not None and not re.fullmatch(r"[0-9a-f]{64}", str(expected)):
            raise InputError(f"got expected={expected!r}; expected a SHA-256 of 64 digits: copy it from the other run")
        self.expected = expected

    def measure(self, statistics: Any) -> float | None:
        """1 if all parameters, running statistics included, are the same bit by bit, 0 if not."""
        if not self.ready():
            return None
        digest_now = digest(self.run.executor.network.state())
        self.reason = f"the parameters have the SHA-256 {digest_now}"
        return None if self.expected is None else float(digest_now == self.expected)
