"""Proof by numbers that a rewritten network computes what it did: in float64 on the reference backend, gradients too.

The result is also written as the original's twin in float64, so that what differs is the mathematics and not the
rounding of weights that were computed beforehand; the written network is run as well, in its own precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from deep500.errors import NetworkError, UnsupportedOperator
from deep500.networks.dtype import fixed_inputs, to_dtype
from deep500.networks.execution.inputs import make_inputs
from deep500.networks.graph import Graph
from deep500.networks.network import Network
from deep500.registry import load_backend
from deep500.tensors import dtype_to_onnx
from deep500.transformations.substitutions.cost.clock import cpu_seconds
from deep500.transformations.substitutions.graph.attention import bodies
from deep500.transformations.substitutions.graph.importing import Imported, named
from deep500.transformations.substitutions.graph.store import StoredGraph
from deep500.transformations.substitutions.graph.writing import export_network

TOLERANCE = 1e-10
"""Largest relative error in float64, by norm."""
LIMIT = 1e-3
"""Likewise in the network's own precision, where sums are taken in another order."""
HALF = 3e-2
"""Likewise with float16 in the network."""
NARROW = ("float16", "float32")
WIDE = 10.0
"""Least time of answers in float64 and the check of a result, in multiples of the original's own answers."""
InTime = Callable[..., None]
"""Called with words for what begins, and the seconds that it needs, if these are known; raises to end a check."""


class NotEquivalent(NetworkError):
    """A rewritten network computes something else."""


@dataclass(frozen=True)
class Equivalence:
    """Distance of a rewritten network from the original.

    Attributes:
        outputs: largest relative error of an output, by norm, in float64; None where the reference lacks an operator.
        gradients: likewise of a parameter's gradient; None where the network was not optimized for training, or draws
            random numbers, whose order rewriting may change.
        own_precision: likewise of outputs in the network's own precision.
        sizes: the symbolic sizes that were tried.
        backend: which ran the networks.
    """

    outputs: float | None
    gradients: float | None
    own_precision: float
    sizes: tuple[Mapping[str, int], ...]
    backend: str = "reference"

    def __str__(self) -> str:
        if self.outputs is None:
            return f"outputs within {self.own_precision:.2g} in their own precision, on {self.backend}"
        gradients = "" if self.gradients is None else f", gradients within {self.gradients:.2g}"
        return f"outputs within {self.outputs:.2g}{gradients} in float64"


def relative_error(got: Any, expected: Any) -> float:
    """Norm of the difference over the norm of what was expected; the difference's alone where that is 0.

    Elements that are infinite or not a number on one side alone are infinitely far apart.

    Example:
        >>> relative_error(np.ones(4), 2 * np.ones(4))
        0.5
    """
    got, expected = np.asarray(got), np.asarray(expected)
    if got.shape != expected.shape:
        return float("inf")
    if got.dtype.kind not in "fc" or not expected.size:
        return 0.0 if np.array_equal(got, expected) else float("inf")
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    scale = float(np.linalg.norm(np.where(same, 0.0, expected).ravel().astype(np.float64)))
    with np.errstate(invalid="ignore"):  # infinity less infinity, where both are the same
        error = float(np.linalg.norm(np.where(same, 0.0, got - expected).ravel().astype(np.float64)))
    whole = float(np.linalg.norm(np.nan_to_num(expected.ravel().astype(np.float64), posinf=0, neginf=0)))
    if not np.isfinite(error):
        return float("inf")  # and never not a number, which max() would lose
    return error / max(whole, scale) if max(whole, scale) else error


class Answers:
    """Answers of a network, computed once for all that is compared with it.

    Args:
        imported: the network.
        seed: of the inputs.
        sizes: numbers for symbolic sizes, which the network may need (a batch of a multiple of 4, say).
        in_time: called with what is about to be computed; ends it by an error of its own.

    Attributes:
        backend: which runs it: the reference, or ONNX Runtime where that lacks an operator (other people's domains).
        sizes: choices of the symbolic sizes.
        seconds: that computing all took.

    Raises:
        UnsupportedOperator: neither backend runs the network.
    """

    def __init__(
        self,
        imported: Imported,
        seed: int = 0,
        sizes: Mapping[str, int] | None = None,
        in_time: InTime = lambda what, needs=0.0: None,
    ) -> None:
        begin = cpu_seconds()
        self.original, self.seed, self.sizes = imported.network, seed, _sizes(imported, sizes or {})
        self.backend = "reference"
        try:
            self.own_outputs = [outputs(self.original, choice, seed) for choice in self.sizes]
        except UnsupportedOperator:
            self.backend = "onnxruntime"
            self.own_outputs = [outputs(self.original, choice, seed, self.backend) for choice in self.sizes]
        self.wide: list[dict[str, np.ndarray[Any, Any]]] = []
        self.gradients: dict[str, Any] | None = None
        if self.backend == "reference":
            in_time("comparing in float64", WIDE * (cpu_seconds() - begin))
            twin = in_float64(self.original)
            self.wide = [outputs(twin, choice, seed) for choice in self.sizes]
            if imported.training and not any(node.is_random for node in self.original.nodes):
                in_time("the original's gradients")
                self.gradients = _gradients(twin, twin, self.sizes[0], seed)
        self.seconds = cpu_seconds() - begin

    def differ(self, network: Graph, expected: list[dict[str, np.ndarray[Any, Any]]]) -> float:
        """Largest relative error of another network's outputs, by norm."""
        errors = []
        for choice, answer in zip(self.sizes, expected, strict=True):
            got = outputs(network, choice, self.seed, self.backend)
            errors += [relative_error(got[name], value) for name, value in answer.items()]
        return max(errors)


def check_equivalent(
    imported: Imported,
    graph: StoredGraph,
    written: Network,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    answers: Answers | None = None,
    in_time: InTime = lambda what, needs=0.0: None,
    kernels: str = "",
) -> Equivalence:
    """Compare the written network with the one that was imported.

    Where the reference lacks an operator (other people's domains), ONNX Runtime runs both, in their own precision.

    Args:
        imported: the original.
        graph: the result.
        written: the network that it was written as.
        seed: of the inputs.
        sizes: numbers for symbolic sizes, which the network may need (a batch of a multiple of 4, say).
        answers: of the original, if they are known.
        in_time: called with what is about to be compared; ends the check by an error of its own.
        kernels: name of a backend whose kernels are compared too, where the network was `fused`: in float64 the bodies
            of what that put in are.

    Raises:
        NotEquivalent: an output or gradient differs by more than `TOLERANCE` in float64, or far more than rounding in
            the network's own precision; nothing of the result may then be used.
        UnsupportedOperator: neither backend runs the network.
    """
    answers = answers or Answers(imported, seed, sizes)
    original = answers.original
    in_time("the result's file", answers.seconds)  # the check takes as long at least
    onnx.checker.check_model(written.to_onnx(), full_check=False)
    limit = LIMIT if "float16" not in {d.dtype for d in original.descriptors().values()} else HALF
    in_time("the result's answers")
    own_error, wide, gradients = answers.differ(written, answers.own_outputs), None, None
    if kernels:
        own_error = max(own_error, *(difference(original, written, choice, seed, kernels) for choice in answers.sizes))
    if answers.backend == "reference":
        in_time("the result's answers in float64")
        rewritten = in_float64(export_network(imported, graph, wide=True))
        rewritten = bodies(rewritten) if kernels else rewritten
        wide = answers.differ(rewritten, answers.wide)
        if answers.gradients is not None:
            in_time("the result's gradients")
            got = _gradients(in_float64(original), rewritten, answers.sizes[0], seed)
            pairs = ((got[name], value) for name, value in answers.gradients.items()) if got is not None else ()
            gradients = max((relative_error(new, value) for new, value in pairs), default=0.0)
    if not (own_error <= limit and all(error is None or error <= TOLERANCE for error in (wide, gradients))):
        raise NotEquivalent(
            f"got relative errors {wide} (outputs), {gradients} (gradients) in float64 and {own_error:.3g} in the "
            f"network's precision; expected at most {TOLERANCE:g}, and {limit:g}; keep the original and report this"
        )
    return Equivalence(wide, gradients, own_error, tuple(answers.sizes), answers.backend)


def in_float64(network: Network) -> Network:
    """A network's twin in float64; around operators that know no float64 (quantization) values are cast and back.

    Example:
        >>> from deep500.networks import create
        >>> in_float64(create("mlp", batch=2)).descriptors()["output"].dtype
        'float64'
    """
    described, twin = network.descriptors(), network
    for source in ("float16", "float32"):
        twin = to_dtype(twin, "float64", source)
    if not any(fixed_inputs(node, "float64") for node in twin.nodes):
        return twin
    widened = Network(twin.name)
    widened.inputs = dict(twin.inputs)
    widened.put_parameters(twin.parameters)
    for node in twin.nodes:
        fixed = set(fixed_inputs(node, "float64"))
        narrow = {name for name in fixed if name in described and described[name].dtype in NARROW}
        inputs = []
        for read in node.inputs:
            name = read
            here = twin.inputs.get(name) or twin.parameters.get(name)
            stays = str(getattr(here, "dtype", None) or getattr(getattr(here, "value", None), "dtype", "float64"))
            if name in narrow and stays == "float64":
                widened.add_node(
                    "Cast", [name], [widened.fresh_name(f"{name}.narrow")], to=dtype_to_onnx(described[name].dtype)
                )
                name = widened.nodes[-1].outputs[0]
            inputs.append(name)
        outputs = list(node.outputs)
        widen = [o for o in node.writes if narrow and o in described and described[o].dtype in NARROW]
        renamed = {o: widened.fresh_name(f"{o}.narrow") for o in widen}
        widened.insert(replace(node, inputs=tuple(inputs), outputs=tuple(renamed.get(o, o) for o in outputs)))
        for wide, name in renamed.items():
            widened.add_node("Cast", [name], [wide], to=dtype_to_onnx("float64"))
    for name in twin.outputs:
        widened.add_output(name)
    return widened


def _sizes(imported: Imported, chosen: Mapping[str, int]) -> list[dict[str, int]]:
    """Two choices of the symbolic sizes; that the result holds for all follows from `graph.sizes`, not from these."""
    if not imported.sizes:
        return [{}]
    first = {**imported.sizes, **chosen}
    return [first, {name: 2 * size if name in chosen else size + 1 for name, size in first.items()}]


def difference(
    original: Graph, rewritten: Graph, sizes: Mapping[str, int], seed: int, backend: str = "reference"
) -> float:
    """Largest relative error of an output, by norm, for made-up inputs on a backend."""
    expected, got = (outputs(network, sizes, seed, backend) for network in (original, rewritten))
    return max(relative_error(got[name], expected[name]) for name in expected)


def outputs(
    network: Graph, sizes: Mapping[str, int], seed: int, backend: str = "reference"
) -> dict[str, np.ndarray[Any, Any]]:
    """Outputs of a network for made-up inputs on a backend, as arrays."""
    executor = load_backend(backend).from_model(network)
    results = executor.inference(make_inputs(named(network), None, seed, sizes))
    return {name: np.asarray(executor.network.to_numpy(value)) for name, value in results.items()}


def _gradients(original: Network, network: Graph, sizes: Mapping[str, int], seed: int) -> dict[str, Any] | None:
    """Gradients of a network with respect to the original's parameters; None where that has no loss."""
    losses = [name for name in original.outputs if original.descriptors()[name].shape == ()]
    if not losses:
        return None
    loss = "loss" if "loss" in losses else losses[0]
    reached = original.gradient(loss)  # a second head's parameters have none
    executor = load_backend("reference").from_model(network)
    executor.inference_and_backprop(make_inputs(named(original), None, seed, sizes), loss)
    names = [gradient for parameter, gradient in reached if parameter in set(original.trainable())]
    return dict(zip(names, executor.network.fetch_tensors(names), strict=True))
