"""A session with what is around it: which arrays go in, how, and which values come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from deep500.frameworks.onnxruntime.compiler import compile_session
from deep500.frameworks.onnxruntime.dtypes import is_plain, to_array, to_value
from deep500.frameworks.onnxruntime.session import BUILD_ERRORS, run_error
from deep500.networks.execution.framework_clock import FrameworkClock
from deep500.networks.execution.slicing import needed_nodes, values_read, without_gradients
from deep500.networks.graph import Graph, Parameter
from deep500.networks.node import from_proto


class SessionProgram:
    """Computes some values of a network.

    Attributes:
        inputs: names of the network's inputs that the values depend on.
        constants: parameters that are part of the session: to write one makes the session obsolete.
        is_random: whether runs draw random numbers.
    """

    def __init__(
        self,
        network: Graph,
        outputs: Sequence[str],
        variables: Sequence[str],
        live: Mapping[str, Parameter],
        settings: ort.SessionOptions,
        providers: Sequence[Any],
        seed: int,
    ) -> None:
        self.outputs = tuple(dict.fromkeys(outputs))
        self._parameters = live
        self._computed = [n for n in dict.fromkeys(outputs) if network.producer(n) is not None]
        nodes = needed_nodes(without_gradients(network.nodes), self._computed)
        used = values_read(nodes, outputs)
        self.inputs = [n for n in network.inputs if n in used]
        self._variables = [n for n in dict.fromkeys(variables) if n in used]
        self.constants = {n for n in network.parameters if n in used} & set(live) - {*self._variables}
        self.is_random = any(_draws(node) for node in nodes)
        self.session: ort.InferenceSession | ClockedSession | None = None
        if self._computed:
            session = compile_session(network, self._computed, self._variables, settings, providers, seed)
            self.session, self._plain = session, is_plain(session)
            self._fed = [v.name for v in session.get_inputs()]

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The wanted values by name."""
        parameters = self._parameters
        values: dict[str, Any] = {}
        if self.session is not None:
            feeds = {}
            for name in self._fed:
                value = parameters[name].value if name in parameters else inputs[name]
                feeds[name] = value if type(value) is np.ndarray else _as_array(value)
            values = run_session(self.session, self._computed, feeds, self._plain)
        if len(values) < len(self.outputs):  # some are inputs or parameters themselves
            for name in self.outputs:
                if name not in values:
                    values[name] = parameters[name].value if name in parameters else _as_array(inputs[name])
            values = {name: values[name] for name in self.outputs}
        return values


class ClockedSession:
    """A session whose runs go through a clock."""

    def __init__(self, session: ort.InferenceSession, clock: FrameworkClock) -> None:
        self._session = session
        self.run = clock.timed(getattr(session, "_sess", session).run)
        self.run_with_iobinding = clock.timed(session.run_with_iobinding)
        self.io_binding = session.io_binding

    @property
    def _sess(self) -> ClockedSession:
        return self


def run_session(
    session: ort.InferenceSession | ClockedSession, outputs: Sequence[str], feeds: Mapping[str, Any], plain: bool
) -> dict[str, Any]:
    """Run a session; arrays go in and come out without a copy, through bound values where ``plain`` is not true.

    Raises:
        InputError, NetworkError, UnsupportedOperator: see :func:`deep500.frameworks.onnxruntime.session.run_error`.
    """
    try:
        if plain:
            # the binding itself: its wrapper's checks of the feeds, already made by ours, cost 1 % of a small network
            run = getattr(session, "_sess", session).run
            return dict(zip(outputs, run(outputs, feeds, None), strict=True))
        binding = session.io_binding()
        for name, array in feeds.items():
            binding.bind_ortvalue_input(name, to_value(array))
        for name in outputs:
            binding.bind_output(name)
        session.run_with_iobinding(binding)
        return {n: to_array(v) for n, v in zip(outputs, binding.get_outputs(), strict=True)}
    except (*BUILD_ERRORS, RuntimeError, ValueError) as error:
        raise run_error(error, list(feeds)) from error


def _as_array(value: Any) -> Any:
    return value if isinstance(value, (list, type(None))) else np.asarray(value)


def _draws(node: Any) -> bool:
    """Whether a node draws at random in the session: it has a seed, and for Dropout a training mode."""
    schema = onnx.defs.get_schema(node.op_type) if not node.domain else None
    if schema is None or "seed" not in schema.attributes:
        return any(_draws(inner) for graph in node.graphs for inner in _nodes(graph))
    return node.op_type != "Dropout" or len(node.inputs) > 2


def _nodes(graph: onnx.GraphProto) -> list[Any]:
    return [from_proto(proto) for proto in graph.node]
