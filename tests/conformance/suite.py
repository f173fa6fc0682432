"""ONNX's own backend suite: ``python -m tests.benchmarks.onnx_suite [--backend NAME] [--only REGEX] [--out FILE]``.

Prints passed, wrong, failed, unsupported and timed out as separate numbers, and each case that is wrong or fails.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import signal
import tempfile
import unittest
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.base

from deep500.errors import UnsupportedOperator
from deep500.registry import load_backend

LIMIT = 60  # seconds per case


class Representation:
    """A model on a backend, with inputs and outputs by position."""

    def __init__(self, module: Any, model: onnx.ModelProto) -> None:
        try:
            self.executor = module.from_onnx(model)
        except UnsupportedOperator as error:
            raise unittest.SkipTest(str(error)) from error

    def run(self, inputs: Any, **options: Any) -> list[Any]:
        """Outputs as arrays, sequences as lists of arrays."""
        network = self.executor.network
        given = {
            n: v if v is None or isinstance(v, list) else np.asarray(v)
            for n, v in zip(network.inputs, inputs, strict=False)
        }
        results = self.executor.inference(given)
        return [self._array(results[name]) for name in network.outputs]

    def _array(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._array(v) for v in value]
        return None if value is None else self.executor.network.to_numpy(value)


def suite(name: str) -> Any:
    """The suite over a backend."""
    module = load_backend(name)
    import onnx.backend.test

    class SuiteBackend(onnx.backend.base.Backend):
        @classmethod
        def supports_device(cls, device: str) -> bool:
            return device == "CPU"

        @classmethod
        def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **options: Any) -> Any:
            return Representation(module, model)

    return onnx.backend.test.BackendTest(SuiteBackend, __name__)


def _too_long(*_: Any) -> None:
    raise TimeoutError


def judge(case: Any) -> tuple[str, str]:
    """Run one case: the verdict and what was said."""
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(LIMIT)
    try:
        case.func(unittest.TestCase())
    except unittest.SkipTest as reason:
        return "unsupported", str(reason)
    except AssertionError as error:
        return "wrong", str(error)
    except TimeoutError:
        return "timeout", ""
    except Exception as error:  # noqa: BLE001 - whatever a backend raises is its failure
        return "error", f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    return "pass", ""


def main() -> None:
    """Run, count, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backend", default="pytorch")
    parser.add_argument("--only", default="", help="regular expression on the cases' names")
    parser.add_argument("--out", type=Path, help="one JSON line per case")
    options = parser.parse_args()
    os.environ.setdefault("ONNX_HOME", tempfile.mkdtemp())
    warnings.simplefilter("ignore")
    verdicts, lines = collections.Counter[str](), []
    for items in suite(options.backend)._test_items.values():
        for name, case in items.items():
            if name.endswith("_cpu") and re.search(options.only, name):
                verdict, message = judge(case)
                verdicts[verdict] += 1
                lines.append(json.dumps({"name": name, "verdict": verdict, "message": message}))
                if verdict not in ("pass", "unsupported"):
                    print(f"{verdict:>8}  {name}: {message.strip()[:160]!r}")
    if options.out:
        options.out.write_text("\n".join(lines) + "\n")
    print(f"{options.backend}: {verdicts['pass']} of {verdicts.total()} pass; {dict(verdicts)}")


if __name__ == "__main__":
    main()
