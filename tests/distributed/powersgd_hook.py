"""PyTorch's own PowerSGD on gloo: ``python -m tests.distributed.powersgd_hook RANK RANKS FOLDER APPROXIMATION STEPS``.

Rank p writes what the hook makes of ``gradients(p, 0)``, ``gradients(p, 1)``, ... to ``result<p>.npy`` in FOLDER; it
begins with ``first_factors(APPROXIMATION)``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

SHAPES = [(12, 16), (16,), (6, 2, 3, 3), (3, 2), (5,)]


def gradients(rank: int, step: int) -> list[np.ndarray]:
    """The same for the hook and for the scheme."""
    rng = np.random.default_rng([rank, step])
    return [rng.normal(size=shape) for shape in SHAPES]


def compressed(rank: int) -> list[tuple[int, int]]:
    """The matrices that are; (3, 2) is smaller than its factors of rank 2."""
    return [(12, 16), (6, 18)] + [(3, 2)] * (rank == 1)


def first_factors(rank: int) -> list[np.ndarray]:
    rng = np.random.default_rng(99)
    return [rng.normal(size=(m, rank)) for n, m in compressed(rank)]


class Bucket:
    """What the hook asks of DDP's bucket of gradients."""

    def __init__(self, torch: Any, arrays: list[np.ndarray]) -> None:
        self.flat = torch.from_numpy(np.concatenate([a.ravel() for a in arrays]))
        sizes = [a.size for a in arrays]
        self.parts = [p.view(*a.shape) for p, a in zip(self.flat.split(sizes), arrays, strict=True)]

    def buffer(self) -> Any:
        return self.flat

    def gradients(self) -> list[Any]:
        return self.parts

    def index(self) -> int:
        return 0

    def is_last(self) -> bool:
        return True


def main(rank: int, ranks: int, folder: Path, approximation: int, steps: int) -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as hook

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=ranks)
    state = hook.PowerSGDState(
        None, matrix_approximation_rank=approximation, start_powerSGD_iter=2, min_compression_rate=1
    )
    state.iter = 2  # at once
    factors = first_factors(approximation)
    state.q_memory_dict[0] = torch.from_numpy(np.concatenate([q.ravel() for q in factors]))
    size = sum(n * approximation for n, m in compressed(approximation))
    state.p_memory_dict[0] = torch.empty(size, dtype=torch.float64)
    reduced = []
    for step in range(steps):
        bucket = Bucket(torch, gradients(rank, step))
        reduced.append(hook.powerSGD_hook(state, bucket).wait().numpy().copy())
    np.save(folder / f"result{rank}.npy", np.stack(reduced))
    dist.destroy_process_group()
    os._exit(0)  # the hook's closures hold the group until the interpreter ends, where its threads cannot be joined


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
