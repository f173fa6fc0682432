"""Operations of a network, and the share of the machine that they use."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from deep500.errors import Deep500Error, InputError
from deep500.measure.bounds import Roofs, measure_roofs
from deep500.metrics.base import Direction, Kind, ObservingMetric


class Flops(ObservingMetric):
    """Floating point operations per sample, counted from the network's graph; a multiply-add is two.

    ``details`` has them by operator. A network with an operator that cannot be counted has no number, and the reason
    names it (:mod:`deep500.networks.flops`).

    Args:
        of: ``"forward"``, or ``"step"``: forward and backward, without the optimizer's update.

    Raises:
        InputError: it is neither.
    """

    unit = "FLOP/sample"
    direction: Direction = "lower"
    kind: Kind = "count"

    def __init__(self, of: Literal["forward", "step"] = "forward") -> None:
        if of not in ("forward", "step"):
            raise InputError(f"got of={of!r}; expected 'forward' or 'step': choose one")
        self.of, self.name = of, f"{of}_flops"

    def count(self) -> int | None:
        """Operations per sample; None, and a reason, where they are not all known."""
        self.reason, self.details = "", {}
        if self.run is None:
            self.reason = "it did not watch a run"
            return None
        try:
            loss = self.run.optimizer.loss if self.of == "step" else None
            flops = self.run.executor.network.flops(loss=loss)
        except Deep500Error as error:
            self.reason = f"cannot count the operations: {error}"
            return None
        self.details = flops.operators
        if flops.unknown:
            more = f" and {len(flops.unknown) - 3} more" if len(flops.unknown) > 3 else ""
            self.reason = f"cannot count {', '.join(flops.unknown[:3])}{more}"
        return flops.total

    def measure(self, statistics: Any) -> float | None:
        """The count."""
        flops = self.count()
        return None if flops is None else float(flops)


class FlopRate(Flops):
    """Operations per second of training: those counted for all samples, over the seconds of all epochs.

    Where a task counts other samples than the items of a batch (tokens of passages), operations are those of the items
    that were trained on, which are counted while the run is watched.
    """

    name, unit = "flop_rate", "FLOP/s"
    direction: Direction = "higher"
    kind: Kind = "rate"

    def __init__(self) -> None:
        super().__init__("step")
        self.name = "flop_rate"

    _items = 0

    def before_run(self, run: Any) -> None:
        """Nothing was trained on yet."""
        super().before_run(run)
        self._items = 0

    def after_batch(self, run: Any) -> None:
        """Count the items of the batch, that is, what a batch of one is of."""
        self._items += max((int(v.shape[0]) for v in run.inputs.values() if getattr(v, "shape", ())), default=1)

    def measure(self, statistics: Any) -> float | None:
        """The rate; None where operations, samples or seconds are not known."""
        per_sample: float | None = self.count()
        samples, seconds = statistics.total("train_samples"), statistics.total("train_seconds")
        if per_sample is None:
            return None
        if not samples or not seconds:
            self.reason = "samples or seconds were not measured"
            return None
        trainer = getattr(self.run, "trainer", None)
        if trainer is not None and not trainer.task.counts_items:
            if not self.observed():
                return None
            per_sample = per_sample * float(self.run.optimizer.totals(np.array([self._items], np.float64))[0]) / samples
        self.details = {"FLOP_per_sample": per_sample, "samples": samples, "seconds": seconds}
        return per_sample * samples / seconds


class RoofShare(FlopRate):
    """Operations per second of training in percent of what this machine reached with a matrix product in float32.

    Args:
        roofs: what the machine can do. None: it is measured after the run, on the CPU, with NumPy and as many
            threads as its BLAS takes; of a GPU the roof must be given.
    """

    unit = "%"
    kind: Kind = "ratio"

    def __init__(self, roofs: Roofs | None = None) -> None:
        super().__init__()
        self.name, self.roofs = "roof_share", roofs

    def measure(self, statistics: Any) -> float | None:
        """The share; None where the rate or the roof is not known, or where it exceeds the roof, which cannot be."""
        rate = super().measure(statistics)
        if rate is None:
            return None
        device = self.run.executor.device
        if self.roofs is None and device.kind != "cpu":
            self.reason = f"the roof of {device} is not known: give roofs=Roofs(...)"
            return None
        roofs = self.roofs or measure_roofs()
        self.details = {**self.details, "roof_FLOP/s": roofs.flops, "measured": self.roofs is None}
        if rate > 1.05 * roofs.flops:
            self.reason = f"{rate:.3g} FLOP/s exceed the roof of {roofs.flops:.3g}: measured with fewer threads?"
            return None
        return 100 * rate / roofs.flops
