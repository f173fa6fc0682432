"""The cases of ``onnx.backend.test``, and how a backend is judged by one of them.

The verdicts are counted apart: 'passed'; 'wrong' (there was a result and it differs); 'unsupported' (one
UnsupportedOperator, while the executor was built); 'error' (any other failure, a refusal that comes only at run time
included); 'timeout'.
"""

from __future__ import annotations

import re
import time
import unittest
import warnings
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import onnx
import onnx.backend.base

from deep500.errors import UnsupportedOperator
from deep500.networks.network import Network

VERDICTS = ("passed", "wrong", "error", "unsupported", "timeout")
GROUPS = {
    "expanded": r"_expanded(_|$)",
    "ml": r"^test_ai_onnx_ml_",
    "preview": r"^test_(flexattention|adagrad|adam|momentum|nesterov_momentum)",
    "node": r"",
}
"""Groups of node cases, by the first pattern that a name matches; the other groups are the suite's own."""
FOLDERS = {
    "SimpleModel": "simple",
    "PyTorchConvertedModel": "pytorch-converted",
    "PyTorchOperatorModel": "pytorch-operator",
    "RealModel": "real",
}
ORDER = ("node", "expanded", "ml", "preview", "simple", "pytorch-converted", "pytorch-operator", "real")


_FFT = "the suite's absolute tolerance of 1e-7 is below float32's round-off of such sums"
_HALF = "one unit in the last place of float16, 2^-11 at these values"

LOOSENED = {r"^test_dft": (1e-3, _FFT), r"^test_stft": (1e-3, _FFT), r"^test_attention_.*fp16": (5e-4, _HALF)}
"""pattern -> (absolute tolerance, reason); tried only after the suite's own tolerance has failed, and counted."""


@dataclass
class Result:
    """Outcome of one case; ``way``: how it was executed, where somebody listened."""

    case: str
    group: str
    operator: str
    verdict: str
    message: str = ""
    seconds: float = 0.0
    tolerance: float | None = None
    way: str = ""

    def line(self) -> dict[str, Any]:
        """As a dict that JSON can hold."""
        return asdict(self)


class _BackendFailure(Exception):
    """Tells what a backend raises, asserts included, from a comparison that fails."""


class Representation:
    """A model on a backend, with inputs and outputs by position, as the suite wants it."""

    def __init__(self, module: ModuleType, model: onnx.ModelProto, device: str) -> None:
        try:
            self.executor = module.from_model(Network.from_onnx(model), device=device)
        except UnsupportedOperator as error:
            raise unittest.SkipTest(str(error)) from error
        except Exception as error:
            raise _BackendFailure(f"{type(error).__name__}: {error}") from error

    def run(self, inputs: Any, **options: Any) -> list[Any]:
        """Outputs as arrays, sequences as lists of arrays."""
        network = self.executor.network
        try:
            values = {n: _input(v) for n, v in zip(network.inputs, inputs, strict=False)}
            results = self.executor.inference(values)
            return [self._array(results[name]) for name in network.outputs]
        except Exception as error:
            raise _BackendFailure(f"{type(error).__name__}: {error}") from error

    def _array(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._array(v) for v in value]
        return None if value is None else self.executor.network.to_numpy(value)


class CaseRecorder(Protocol):
    """Listens how a backend executes cases."""

    def start(self) -> None:
        """Forget what was seen."""

    def way(self) -> str:
        """How everything was executed since :meth:`start`."""


def _input(value: Any) -> Any:
    return value if value is None or isinstance(value, list) else np.asarray(value)


class Suite:
    """All cases; they are built once, in seconds, and judged on whatever backend :attr:`module` is."""

    def __init__(self, device: str = "cpu") -> None:
        import onnx.backend.test
        from onnx.backend.test.loader import load_model_tests

        suite, place = self, device
        self.module: ModuleType
        self.recorder: CaseRecorder | None = None

        class JudgedCase(onnx.backend.base.Backend):
            @classmethod
            def supports_device(cls, device: str) -> bool:
                return device == "CPU"  # the twins for CUDA are the same cases; ``--device`` says where they run

            @classmethod
            def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Any:
                return Representation(suite.module, model, place)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # overflows that cases provoke on purpose
            folders = onnx.backend.test.BackendTest(JudgedCase, __name__)._test_items
            single = {c.name: operator_of(c.model) for c in load_model_tests(kind="node") if c.model is not None}
        self.cases: dict[str, Any] = {}
        self.groups: dict[str, str] = {}
        for folder, items in folders.items():
            for name, item in items.items():
                if name.endswith("_cpu"):
                    case = name[: -len("_cpu")]
                    self.cases[case] = item
                    self.groups[case] = FOLDERS.get(folder) or node_group(case)
        self.operators = {case: single.get(case, "") for case in self.cases}

    def select(self, pattern: str) -> list[str]:
        """Names of the cases in which the regular expression is found."""
        return [case for case in self.cases if re.search(pattern, case)]

    def judge(self, case: str) -> Result:
        """Run one case, with the suite's tolerance and, where that is excused, once more with a looser one."""
        if self.recorder is not None:
            self.recorder.start()
        started = time.perf_counter()
        verdict, message = self._attempt(case, {})
        looser = loosened(case) if verdict == "wrong" else None
        if looser is not None:
            verdict, message = self._attempt(case, {"atol": looser})
        seconds = round(time.perf_counter() - started, 3)
        tolerance = looser if verdict == "passed" else None
        result = self.result(case, verdict, message, seconds, tolerance)
        result.way = self.recorder.way() if self.recorder is not None else ""
        return result

    def result(self, case: str, verdict: str, message: str, seconds: float, tolerance: float | None = None) -> Result:
        """A verdict on a case, with what is known of the case."""
        return Result(case, self.groups[case], self.operators[case], verdict, message[:400], seconds, tolerance)

    def _attempt(self, case: str, options: dict[str, float]) -> tuple[str, str]:
        try:
            self.cases[case].func(unittest.TestCase(), **options)
        except unittest.SkipTest as reason:
            return "unsupported", str(reason)
        except _BackendFailure as error:
            return "error", str(error)
        except Exception as error:  # noqa: BLE001 - the comparison: unequal, of another shape or type, not comparable
            return "wrong", " ".join(f"{type(error).__name__}: {error}".split())
        return "passed", ""


def loosened(case: str) -> float | None:
    """The absolute tolerance that is excused for a case, if one is."""
    return next((atol for pattern, (atol, _) in LOOSENED.items() if re.search(pattern, case)), None)


def node_group(case: str) -> str:
    """The group of a node case, by its name."""
    return next(group for group, pattern in GROUPS.items() if re.search(pattern, case))


def operator_of(model: onnx.ModelProto) -> str:
    """The operator that a case is about: the only node's, else none."""
    nodes = model.graph.node
    return f"{nodes[0].domain + '.' if nodes[0].domain else ''}{nodes[0].op_type}" if len(nodes) == 1 else ""
