"""Cases on ranks that are forks of one process, which has imported everything once: for PyTorch's engines, of whose
group a process has one. ``python -m tests.distributed.forked MODULE:FUNCTION FILE '{"argument": 1}' 2 3`` runs the case
on 2 ranks, then on 3; FILE gets what every rank returned, for each number of ranks."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.fsdp
import torch.nn.parallel

from deep500.distributed import set_world
from deep500.distributed.transports.communicator import default_timeout
from deep500.frameworks.pytorch import TorchDistributed
from tests.distributed.ranks import LIMIT, finish


def launch(
    case: str, file: Path, arguments: dict[str, Any], ranks: tuple[int, ...], limit: float = LIMIT, timeout: float = 60
) -> tuple[int, str]:
    """Run a case; returns the exit code, that of the first rank that failed, and all output."""
    command = [sys.executable, "-m", "tests.distributed.forked", case, str(file), json.dumps(arguments)]
    left_out = ("DEEP500_TRANSPORT", "DEEP500_WORLD_SIZE")
    variables = {name: value for name, value in os.environ.items() if name not in left_out}
    ours = {"OMP_NUM_THREADS": "1", "DEEP500_COMM_TIMEOUT": str(timeout)}
    return finish([*command, *map(str, ranks)], {**variables, **ours}, limit)


def _rank(rank: int, size: int, folder: Path, case: Any, arguments: dict[str, Any]) -> None:
    """The work of a fork: meet the others, run the case, write the result."""
    store = dist.FileStore(str(folder / "store"), size)
    limit = timedelta(seconds=default_timeout())
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=limit)
    comm = TorchDistributed(backend="gloo")
    set_world(comm)
    result = case(comm, **arguments)
    (folder / f"{rank}.json").write_text(json.dumps(result), encoding="utf-8")
    comm.close()


def main(case: str, file: str, arguments: str, *ranks: str) -> int:
    """Fork the ranks of each number, one number after the other."""
    module, _, function = case.partition(":")
    call, results = getattr(import_module(module), function), []
    torch.optim.SGD([torch.zeros(1)])  # whose first use imports much, which each rank would do by itself
    for size in map(int, ranks):
        with tempfile.TemporaryDirectory() as name:
            folder, processes = Path(name), []
            for rank in range(size):
                process = os.fork()
                if process == 0:
                    code = 1
                    try:
                        _rank(rank, size, folder, call, json.loads(arguments))
                        code = 0
                    except BaseException:  # noqa: BLE001 - a fork must not go on as its parent
                        sys.stderr.write(f"[rank {rank}] {traceback.format_exc()}")
                        sys.stderr.flush()
                    os._exit(code)
                processes.append(process)
            codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
            if any(codes):
                return next(abs(code) for code in codes if code)
            results.append([json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(size)])
    Path(file).write_text(json.dumps(results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
