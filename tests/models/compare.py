"""Run one exported file in one backend and say how far it is from ONNX Runtime running the same file."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from deep500.errors import Deep500Error, UnsupportedOperator
from deep500.networks import Network, add_loss, gradient_name, to_dtype
from deep500.registry import load_backend

BAR = 1e-4
"""Largest difference allowed, as a share of the largest value expected."""

GRADIENT_BAR = 1e-9
"""Largest relative difference (L2 over all parameters) of two backends' gradients in float64."""

SMALLEST = 1e-3
"""Expected values must exceed this: two networks that both vanish agree on nothing."""


@dataclass(frozen=True)
class Row:
    """What came of one model in one backend; ``difference`` is relative, None where nothing could be compared."""

    model: str
    nodes: int
    backend: str
    verdict: str
    difference: float | None = None
    build_seconds: float | None = None
    run_seconds: float | None = None
    reason: str = ""

    @property
    def good(self) -> bool:
        """Whether the backend ran the model and agreed."""
        return self.verdict == "agrees"


def relative_difference(got: np.ndarray, want: np.ndarray) -> float:
    """Largest absolute difference over the largest absolute value expected.

    Raises:
        AssertionError: other shape or dtype, numbers that are not finite, or expected values that are all but 0.
    """
    kinds = [f"{a.dtype}{a.shape}" for a in (got, want)]
    assert kinds[0] == kinds[1], f"got {kinds[0]}; expected {kinds[1]}"
    largest = float(np.abs(want).max())
    assert largest > SMALLEST, f"the largest value expected is {largest:.2g}: agreement would say nothing"
    assert np.isfinite(got).all(), "got numbers that are not finite"
    return float(np.abs(got - want).max()) / largest


def runtime_answer(path: Path, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """What ONNX Runtime makes of the file, with its default optimizations, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, {v.name: inputs[v.name] for v in session.get_inputs()})


@lru_cache(maxsize=1)
def load(path: Path) -> tuple[Network, float]:
    """The file as a network, and the seconds that took; the last one is kept for the next backend."""
    start = time.perf_counter()
    network = Network.from_onnx(path)
    return network, time.perf_counter() - start


def compare(model: str, path: Path, inputs: Mapping[str, np.ndarray], want: list[np.ndarray], backend: str) -> Row:
    """Load a file, build an executor, run it, compare all outputs; what goes wrong becomes the row's verdict."""
    nodes, start = 0, time.perf_counter()
    try:
        module = load_backend(backend)
        network, load_seconds = load(path)
        nodes, start = len(network.nodes), time.perf_counter()
        executor = module.from_model(network)
        build_seconds = load_seconds + time.perf_counter() - start
        given = {name: inputs[name] for name in network.inputs}
        executor.inference(given)  # compiles, where the framework does that at the first call
        executor.synchronize()
        start = time.perf_counter()
        outputs = executor.inference(given)
        executor.synchronize()
        run_seconds = time.perf_counter() - start
        got = [executor.network.to_numpy(outputs[name]) for name in network.outputs]
        assert len(got) == len(want), f"got {len(got)} outputs; expected {len(want)}"
        difference = max(relative_difference(g, w) for g, w in zip(got, want, strict=True))
    except UnsupportedOperator as error:
        return Row(model, nodes, backend, "unsupported", reason=str(error))
    except AssertionError as error:
        return Row(model, nodes, backend, "WRONG", reason=str(error))
    except Exception as error:  # noqa: BLE001 - whatever a backend raises is what this table is to show
        kind = "" if isinstance(error, Deep500Error) else f"{type(error).__name__}: "
        return Row(model, nodes, backend, "ERROR", reason=f"{kind}{error}")
    verdict = "agrees" if difference <= BAR else "WRONG"
    return Row(model, nodes, backend, verdict, difference, build_seconds, run_seconds)


def training_copy(path: Path) -> Network:
    """The file's network in float64 with the mean squared error of its first output as its loss."""
    return add_loss(to_dtype(load(path)[0], "float64"), "mean_squared_error")


def gradients(network: Network, backend: str, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """All gradients of one training step, one after the other, as one vector."""
    executor = load_backend(backend).from_model(network)
    rng = np.random.default_rng(0)
    given = {n: v.astype(np.float64) if v.dtype == np.float32 else v for n, v in inputs.items() if n in network.inputs}
    output = network.outputs[0]
    answer = executor.network.to_numpy(executor.inference(given, [output])[output])
    executor.inference_and_backprop({**given, "label": rng.standard_normal(answer.shape)}, "loss")
    names = [gradient_name(name) for name in network.trainable()]
    gradients = executor.network.fetch_tensors(names)
    return np.concatenate([np.ravel(executor.network.to_numpy(tensor)) for tensor in gradients])


def compare_gradients(model: str, path: Path, inputs: Mapping[str, np.ndarray], want: np.ndarray, backend: str) -> Row:
    """Gradients of every weight in float64 against those expected, which :func:`gradients` took elsewhere."""
    nodes = 0
    try:
        network = training_copy(path)
        nodes, start = len(network.nodes), time.perf_counter()
        got = gradients(network, backend, inputs)
        seconds = time.perf_counter() - start
        norm = float(np.linalg.norm(want))
        assert norm > SMALLEST, f"the gradient's norm is {norm:.2g}: agreement would say nothing"
        difference = float(np.linalg.norm(got - want)) / norm
    except UnsupportedOperator as error:
        return Row(model, nodes, backend, "unsupported", reason=str(error))
    except Exception as error:  # noqa: BLE001 - as above
        return Row(model, nodes, backend, "ERROR", reason=f"{type(error).__name__}: {error}")
    return Row(model, nodes, backend, "agrees" if difference <= GRADIENT_BAR else "WRONG", difference, None, seconds)
