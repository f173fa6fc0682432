"""Cases on ranks that torchrun starts, as ``ranks.py`` has them started by MPI."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.distributed.ranks import LIMIT, finish


def launch(
    case: str,
    ranks: int,
    file: Path,
    arguments: dict[str, Any],
    limit: float = LIMIT,
    timeout: float = LIMIT,
    threads: int = 1,
) -> tuple[int, str]:
    """Run a case; returns torchrun's exit code and all output. No call takes longer than ``timeout`` seconds."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(ranks),
        "-m",
        "tests.distributed.ranks",
        case,
        str(file),
        json.dumps(arguments),
    ]
    left_out = ("DEEP500_TRANSPORT", "DEEP500_WORLD_SIZE")
    variables = {name: value for name, value in os.environ.items() if name not in left_out}
    ours = {"OMP_NUM_THREADS": str(threads), "DEEP500_COMM_TIMEOUT": str(timeout)}
    return finish(command, {**variables, **ours}, limit)
