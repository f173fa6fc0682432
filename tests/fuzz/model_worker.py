"""One process that loads damaged models and runs them on one backend: numbers come in, one line of JSON each goes out.

Its memory is limited, and an alarm ends a case that Python code spins in; what neither reaches, the parent kills.
Every other model is given by its path, beside the files that its external data may point to.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import resource
import signal
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import Deep500Error

MEMORY = {"load": 4, "reference": 4, "pytorch": 8, "onnxruntime": 8, "tensorflow": 24, "jax": 24}
"""GiB of address space: frameworks reserve some that they never touch."""
ALARM = 20
MOST_INPUT = 2**20
"""Elements of an input that a damaged file declares: larger ones are not made up."""


class Slow(BaseException):
    """The alarm; no ``except Exception`` of the code under test may take it."""


def feeds(network: Any) -> dict[str, Any] | None:
    """Ones for every input, of the declared sizes (2 where free); None where that is not possible."""
    made = {}
    for name, described in network.inputs.items():
        shape = tuple(d if isinstance(d, int) else 2 for d in described.shape or ())
        if int(np.prod(np.array(shape, object))) > MOST_INPUT:
            return None
        try:
            made[name] = np.ones(shape, np.dtype(described.dtype))
        except (TypeError, ValueError):  # strings, sequences, 4-bit numbers
            return None
    return made


def one(data: bytes | Path, backend: str) -> tuple[str, str]:
    """How a file, its path or bytes, ended: "ran", "loaded" (not fed), "refused" (our error) or "fault" with lines."""
    from deep500.networks import Network
    from deep500.registry import load_backend

    try:
        network = Network.from_onnx(data)
        inputs = feeds(network)
        if backend == "load" or inputs is None:
            network.descriptors()
            return "loaded", ""
        load_backend(backend).from_model(network).inference(inputs)
    except Deep500Error as error:
        return "refused", f"{type(error).__name__}: {error}"[:300]
    except Slow:
        return "fault", "hang\n" + traceback.format_exc()[-2500:]
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return "fault", f"{type(error).__name__}\n" + traceback.format_exc()[-2500:]
    return "ran", ""


def main(backend: str, seed: int, kept: str) -> None:
    """Answer numbers from standard input until it ends; ``kept`` is the file with the originals."""
    from tests.fuzz.model_files import damaged, lay_out

    out = os.fdopen(os.dup(1), "w")
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)  # native code writes there
    originals = pickle.loads(Path(kept).read_bytes())
    folder = tempfile.TemporaryDirectory(dir=Path(kept).parent)
    path = lay_out(Path(folder.name))

    def ring(*_: object) -> None:
        raise Slow

    signal.signal(signal.SIGALRM, ring)
    if backend != "load":
        from deep500.registry import load_backend

        load_backend(backend)
    size = MEMORY[backend] * 2**30
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print("ready", file=out, flush=True)
    for line in sys.stdin:
        _, data = damaged(originals, seed, int(line))
        path.write_bytes(data)
        given = path if int(line) % 2 else data
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            try:
                signal.alarm(ALARM)
                how, said = one(given, backend)
            except Slow:
                how, said = "fault", "hang"
            finally:
                signal.alarm(0)
        print(json.dumps([int(line), how, said]), file=out, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
