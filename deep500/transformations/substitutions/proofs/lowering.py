"""Both sides of an axiom as one network, by the ONNX forms of the operators: what backends run of a pattern."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx import TensorProto, helper, numpy_helper

from deep500.networks.graph import Graph
from deep500.transformations.substitutions.operators.arithmetic import Array, Real
from deep500.transformations.substitutions.operators.specification import Shape, ShapeMismatch, operator
from deep500.transformations.substitutions.proofs.axioms import Axiom
from deep500.transformations.substitutions.proofs.validation import Sides, fitting
from deep500.transformations.substitutions.rules.patterns import parse


@dataclass(frozen=True)
class AxiomCase:
    """One axiom with sizes for which it applies.

    Attributes:
        axiom: the axiom.
        inputs: variable -> float64 values.
        parameters: values of all parameters.
    """

    axiom: Axiom
    inputs: dict[str, Array]
    parameters: dict[str, Any]

    def evaluate(self, sides: Sides) -> tuple[Any, Any]:
        """Both sides."""
        return sides.evaluate(parse(self.axiom.left)), sides.evaluate(parse(self.axiom.right))


def cases(axiom: Axiom, count: int, seed: int = 0, trials: int = 50_000) -> list[AxiomCase]:
    """Random sizes, and normally distributed values, for which an axiom fits together.

    Raises:
        ShapeMismatch: fewer than ``count`` of all ``trials`` do.
    """
    drawn = fitting(axiom, seed, (lambda generator, shape: generator.normal(size=shape),), lambda _: Real(), trials)
    chosen = [AxiomCase(axiom, draw.values, draw.parameters) for draw, _ in itertools.islice(drawn, count)]
    if len(chosen) < count:
        raise ShapeMismatch(f"{axiom.name}: got {len(chosen)} cases that fit in {trials}; expected {count}; draw more")
    return chosen


@dataclass(frozen=True)
class _Wire:
    """A value of the network under construction; ``shape`` with the batch axis that evaluators expect."""

    name: str
    shape: Shape


class _PatternWriter(Sides):
    """Writes the operators of a pattern into a network instead of evaluating them."""

    def __init__(self, network: Graph, case: AxiomCase, wires: Mapping[str, _Wire], dtype: str, names: Iterator[str]):
        super().__init__(wires, case.parameters, Real())
        self.network, self.dtype, self.names = network, dtype, names

    def apply(self, op: str, inputs: Sequence[Any], known: Mapping[str, Any], output: int) -> Any:
        shapes = [wire.shape[1:] for wire in inputs]
        outputs = [next(self.names) for _ in range(operator(op).outputs)]
        shapes_out = operator(op).infer(shapes, known)
        parameters = {**known, "dtype": self.dtype}
        for node in operator(op).onnx([wire.name for wire in inputs], outputs, parameters, shapes):
            attributes = {attribute.name: _plain(helper.get_attribute_value(attribute)) for attribute in node.attribute}
            self.network.add_node(node.op_type, list(node.input), list(node.output), **attributes)
        return _Wire(outputs[output], (1, *shapes_out[output]))


def _plain(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def lower(chosen: Sequence[AxiomCase], dtype: str = "float32") -> Graph:
    """One network with the inputs ``c0_x``, ... and the outputs ``c0_left``, ``c0_right`` of every case.

    Example:
        >>> from deep500.transformations.substitutions.proofs.axioms import axioms
        >>> network = lower(cases(axioms()[0], 1))
        >>> [node.op_type for node in network.nodes][:3], list(network.outputs)
        (['MatMul', 'MatMul', 'Add'], ['c0_left', 'c0_right'])
    """
    network, names = Graph("axioms"), (f"v{n}" for n in itertools.count())
    for number, case in enumerate(chosen):
        wires = {}
        for name, value in case.inputs.items():
            wires[name] = _Wire(f"c{number}_{name}", (1, *value.shape))
            network.add_input(wires[name].name, value.shape, dtype)
        both = case.evaluate(_PatternWriter(network, case, wires, dtype, names))
        for side, wire in zip(("left", "right"), both, strict=True):
            network.add_node("Identity", [wire.name], [f"c{number}_{side}"])
            network.add_output(f"c{number}_{side}")
    return network
