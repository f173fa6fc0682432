"""The process in which one loader is measured; it waits while it is not its turn."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from deep500.compare.worker import main
from recipes.studies.data_latency.storage import files_of, forget
from recipes.studies.data_latency.systems import LOADERS, Loader, LoaderJob

EVERY = 0.01
"""Seconds between two looks at the memory."""


class LoaderWorker:
    """Requests to the process: a method ``do_<name>`` for each."""

    def __init__(self) -> None:
        self.loader: Loader | None = None
        self.job: LoaderJob = None  # type: ignore[assignment]  # a request's first is to open
        self.make: Any = None
        self.epochs = 0

    def do_open(self, system: str, folder: str, **settings: Any) -> dict[str, Any]:
        """Choose loader and job."""
        self.do_close()
        self.make, self.job, self.epochs = LOADERS[system][1], LoaderJob(Path(folder), **settings), 0
        return {}

    def do_close(self) -> dict[str, Any]:
        """End the loader's workers and give memory back."""
        if self.loader is not None:
            self.loader.close()
        self.loader = None
        gc.collect()
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)
        return {}

    def do_first(self, cold: bool) -> dict[str, Any]:
        """Open everything anew; seconds until the first batch is there."""
        self.do_close()
        dropped = forget(files_of(self.job.folder, self.job.storage)) if cold else False
        begin = time.perf_counter()
        loader = self.make(self.job)
        batches = loader.epoch(0)
        next(batches)
        seconds = time.perf_counter() - begin
        batches.close()  # type: ignore[attr-defined]
        loader.close()
        return {"seconds": seconds, "dropped": dropped}

    def do_epoch(self) -> dict[str, Any]:
        """Go through an epoch with a loader that stays open: seconds of each batch, CPU time of all processes."""
        if self.loader is None:
            self.loader = self.make(self.job)
            for _ in self.loader.epoch(0):  # compilation, workers, caches
                pass
        self.epochs += 1
        gc.collect()
        times, images = [], 0
        busy, begin = cpu_seconds(), time.perf_counter()
        batches, last = self.loader.epoch(self.epochs), begin
        for batch in batches:
            images += len(batch)
            now = time.perf_counter()
            times.append(now - last)
            last = now
        return {"images": images, "seconds": last - begin, "cpu": cpu_seconds() - busy, "batches": times}

    def do_memory(self) -> dict[str, Any]:
        """Largest memory of this process and its children in an epoch, and what was held before it."""
        self.do_close()
        before = memory()
        if before is None:
            return {"peak": None, "before": None}
        peak, ended = [before], threading.Event()

        def look() -> None:
            while not ended.wait(EVERY):
                peak[0] = max(peak[0], memory() or 0)

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            loader = self.make(self.job)
            for _ in loader.epoch(0):
                pass
        finally:
            ended.set()
            watcher.join()
        loader.close()
        return {"peak": peak[0], "before": before}

    def do_digests(self) -> dict[str, Any]:
        """A digest of each picture as delivered in epoch 0, in order, by a loader that is new."""
        self.do_close()
        loader = self.make(self.job)
        digests = [digest for batch in loader.epoch(0) for digest in digests_of(batch)]
        loader.close()
        return {"digests": digests}

    def do_resume(self, after: int) -> dict[str, Any]:
        """Digests of what a loader delivers that goes on after some batches of epoch 0; None if it cannot."""
        loader = self.make(self.job)
        rest = loader.rest(after)
        loader.close()
        return {"digests": None if rest is None else [digest for batch in rest for digest in digests_of(batch)]}


def digests_of(batch: np.ndarray) -> list[str]:
    """A digest of each sample's type, shape and bits."""
    return [
        hashlib.sha1(f"{x.dtype}{x.shape}".encode() + np.ascontiguousarray(x).tobytes()).hexdigest()[:16] for x in batch
    ]


def _processes() -> list[int]:
    children = psutil.Process().children(recursive=True)
    return [os.getpid(), *(child.pid for child in children)]


def cpu_seconds() -> float:
    """CPU time of this process and its children so far; exact to nanoseconds where the kernel has clocks for others."""
    total = 0.0
    for pid in _processes():
        with suppress(OSError):
            total += time.clock_gettime(~pid << 3 | 2)  # what clock_getcpuclockid(3) computes
    return total


def memory() -> int | None:
    """Bytes that this process and its children hold, shared pages counted once; None where it cannot be known."""
    total, readable = 0, False
    for pid in _processes():
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total, readable = total + 1024 * int(line.split()[1]), True
    return total if readable else None


if __name__ == "__main__":
    main(LoaderWorker())
