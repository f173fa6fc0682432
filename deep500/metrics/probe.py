"""Feeding a trained network once more after its run: what metrics of latency, error and rank need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deep500.metrics.base import ObservingMetric


class ProbingMetric(ObservingMetric):
    """A metric that runs the trained network again when it is measured, after the run and so outside its times."""

    def ready(self) -> bool:
        """Whether there is a trainer to take batches and names from; a run that was resumed will do."""
        self.reason = ""
        if self.run is None:
            self.reason = "it did not watch a run"
        elif getattr(self.run, "trainer", None) is None:
            self.reason = "the run had no trainer, which knows the batches"
        return not self.reason

    def batches(self) -> Iterator[dict[str, Any]]:
        """Validation batches, training batches where there is no validation."""
        trainer = self.run.trainer
        sampler = trainer.train_sampler if trainer.validation_sampler is None else trainer.validation_sampler
        batches = iter(sampler)
        try:
            yield from batches
        finally:
            if hasattr(batches, "close"):
                batches.close()  # threads that prefetch end here

    def first(self, samples: int) -> dict[str, Any] | None:
        """The first ``samples`` samples of a batch by input name; None, and a reason, where they cannot be had."""
        batches = self.batches()
        batch = next(batches, None)
        batches.close()  # type: ignore[attr-defined]
        if batch is None:
            self.reason = "there is no batch"
            return None
        cut = {}
        for name, value in batch.items():
            descriptor = self.run.executor.network.inputs.get(name)
            fixed = descriptor is not None and descriptor.shape and isinstance(descriptor.shape[0], int)
            size = value.shape[0] if getattr(value, "shape", ()) else 0
            if size < samples or (fixed and descriptor.shape[0] != samples):
                self.reason = f"input {name!r} comes in batches of {size}, not of {samples} samples"
                return None
            cut[name] = value[:samples]
        return cut
