"""Is one operator the same in several frameworks, and is the judge's gradient right? See :mod:`.operators`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deep500.compare.checks import Check, GateResult
from deep500.compare.gate import check_equivalence
from deep500.compare.models import check_outputs
from deep500.compare.operator_subject import OneOperator
from deep500.compare.subject import Candidate
from deep500.compare.traces import as_arrays
from deep500.errors import InputError, UnsupportedOperator
from deep500.networks.dtype import to_dtype
from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.losses import gradient_name
from deep500.networks.network import Network
from deep500.operators.check import check_op_gradient
from deep500.operators.python_op import CustomPythonOp
from deep500.registry import load_backend


def check_operator(operator: OneOperator, names: Sequence[str]) -> tuple[GateResult, bool]:
    """Compare outputs in the operator's own precision, gradients in float64; the first of several names judges.

    Returns:
        What differs, and whether the operator has a gradient.
    """
    gate = GateResult(names[0])
    outputs = check_outputs(operator.network(), names, [None], operator.seed, None, operator.feed(operator.network()))
    gate.notes += outputs.notes
    checks = [check for check in outputs.checks if check.framework != gate.judge]
    trained = operator.network(trained=True)
    reason = _no_gradient(trained)
    if reason:
        gate.notes.append(f"forward only: {reason}")
    else:
        gate.checks.append(_numeric(operator, trained, gate))
        candidates = [Candidate(name, load_backend(name).from_model) for name in names]
        deep = check_equivalence(trained, [operator.feed(trained)], candidates)
        gate.notes += [note for note in deep.notes if note not in gate.notes]
        judged = [c for c in deep.checks if c.framework != gate.judge and (c.name == "gradients" or not c.passed)]
        checks += judged
    gate.checks += sorted(checks, key=lambda check: names.index(check.framework))
    return gate, not reason


def _no_gradient(trained: Network) -> str:
    """Return why nothing is differentiated; empty if something is."""
    if not trained.has_value("loss") or not trained.trainable():
        return "no floating input or output has a gradient"
    try:
        return "" if trained.gradient("loss") else "the loss does not depend on an input"
    except UnsupportedOperator as error:
        return str(error).splitlines()[0]


def _numeric(operator: OneOperator, trained: Network, gate: GateResult) -> Check:
    """Hold the judge's gradient against differences of its forward."""
    executor = None
    try:
        wide = to_dtype(trained, "float64")
        wide.descriptors()
        executor = load_backend(gate.judge).from_model(wide)
        result = check_op_gradient(_AsOperator(operator, executor), _values(executor))
    except (UnsupportedOperator, InputError, NotImplementedError):
        executor = load_backend(gate.judge).from_model(trained)
        result = check_op_gradient(_AsOperator(operator, executor), _values(executor))
    where = "" if result.ok else "; ".join([*result.problems, str(result.worst)])
    gate.notes.append(
        f"{gate.judge}'s gradient {'agrees with' if result.ok else 'differs from'} differences of its forward pass "
        f"({result.method}, {result.dtype}, {result.compared} numbers)"
    )
    return Check(gate.judge, "gradient against differences", None, None, result.ok, where)


def _values(executor: GraphExecutor) -> list[np.ndarray]:
    state = executor.network.state()
    return [state[name] for name in executor.network.trainable()]


class _AsOperator(CustomPythonOp):
    """A network's executor as a function of its trained parameters, with the framework's own gradient."""

    def __init__(self, operator: OneOperator, executor: GraphExecutor) -> None:
        super().__init__()
        self.operator, self.executor = operator, executor
        self.outputs = [name for name in executor.network.outputs if name != "loss"]
        self.trained = executor.network.trainable()
        dtypes = {name: described.dtype for name, described in executor.network.inputs.items()}
        self.fed = {name: x.astype(dtypes[name]) for name, x in operator.feed(executor.network).items()}

    @property
    def name(self) -> str:
        return self.operator.name

    def _set(self, inputs: Sequence[np.ndarray]) -> None:
        for name, value in zip(self.trained, inputs, strict=True):
            self.executor.network.feed_tensor(name, value)

    def forward(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Outputs for these parameters."""
        self._set(inputs)
        fed = {name: value for name, value in self.fed.items() if not name.endswith(".weight")}
        return list(as_arrays(self.executor, self.executor.inference(fed, self.outputs)).values())

    def backward(
        self, grads: Sequence[np.ndarray], fwd_inputs: Sequence[np.ndarray], fwd_outputs: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """Gradients by the parameters, with output gradients as the loss's weights."""
        self._set(fwd_inputs)
        weights = {f"{name}.weight": grad for name, grad in zip(self.outputs, grads, strict=True)}
        self.executor.inference_and_backprop({n: weights.get(n, value) for n, value in self.fed.items()}, "loss")
        tensors = self.executor.network.fetch_tensors([gradient_name(name) for name in self.trained])
        return list(as_arrays(self.executor, dict(zip(self.trained, tensors, strict=True))).values())
