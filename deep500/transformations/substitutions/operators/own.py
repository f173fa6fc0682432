"""Activations of people's own: a specification in one object, with the axioms that provers may use.

    # absolute.py
    import numpy as np
    from deep500.transformations.substitutions.operators.own import Activation

    AXIOMS = ("(abs (abs x)) = (abs x)", "(abs (mul x y)) = (mul (abs x) (abs y))")
    ABS = Activation("abs", "Abs", np.abs, axioms=AXIOMS)

From then on ``(abs x)`` is a pattern, shipped rules that hold for any activation hold for it, and what follows from
its axioms is proved. It lasts for the process.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
from onnx import helper

from deep500.errors import InputError, NetworkError, nearest
from deep500.operators.registry import load_plugin
from deep500.transformations.substitutions.operators.arithmetic import Arithmetic, Array, Real
from deep500.transformations.substitutions.operators.elementwise import ACTIVATIONS
from deep500.transformations.substitutions.operators.specification import (
    OPSET,
    Operator,
    Parameters,
    Shape,
    operators,
    register,
)


@dataclass(frozen=True)
class Activation:
    """A function of one number, applied to every element.

    Attributes:
        name: in patterns; lower case.
        op_type: ONNX's operator.
        function: float64 array -> array of the same shape: what the operator means.
        attributes: of the operator; a node whose attributes are others (defaults counted) is not this activation.
        axioms: what holds of it, as rules are written (`rules.rule_text`). Tried on numbers when they are used, not
            proved: they are your word, and what is proved from them says so.

    Raises:
        InputError: the name is no lower-case word, or ONNX has no such operator.
    """

    name: str
    op_type: str
    function: Callable[[Array], Array]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    axioms: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (self.name.isidentifier() and self.name.islower()):
            raise InputError(f"got activation name {self.name!r}; expected a word in lower case: 'abs'")
        if not onnx.defs.has(self.op_type, OPSET):
            known = [s.name for s in onnx.defs.get_all_schemas()]
            raise InputError(
                f"got op_type {self.op_type!r}; expected an operator of ONNX opset {OPSET}; "
                f"{nearest(self.op_type, known)}"
            )


OWN: dict[str, Activation] = {}
"""Activations that were added to this process, by name."""


def add_activation(activation: Activation) -> Activation:
    """Make an activation known to patterns, provers, imports and prices; the same one twice is once.

    Raises:
        InputError: its name, or its ONNX operator, stands for another activation.

    Example:
        >>> add_activation(Activation("softsign", "Softsign", lambda x: x / (1 + abs(x)))).name
        'softsign'
    """
    if OWN.get(activation.name) == activation:
        return activation
    if activation.name in operators() or activation.op_type in ACTIVATIONS.values():
        raise InputError(
            f"got activation {activation.name!r} ({activation.op_type}), which there is already; expected a name and "
            "an operator of its own: choose others"
        )
    shape = functools.partial(_same)
    register(
        Operator(
            activation.name, 1, shape, functools.partial(_evaluate, activation), functools.partial(_onnx, activation)
        )
    )
    OWN[activation.name] = activation
    Real.FUNCTIONS[activation.name] = activation.function
    ACTIVATIONS[activation.name] = activation.op_type
    return activation


def _same(shapes: Any, parameters: Parameters) -> tuple[Shape, ...]:
    return (shapes[0],)


def _evaluate(activation: Activation, numbers: Arithmetic, inputs: Any, parameters: Parameters) -> tuple[Array, ...]:
    return (numbers.unary(activation.name, inputs[0]),)


def _onnx(
    activation: Activation, inputs: Any, outputs: Any, parameters: Parameters, shapes: Any
) -> list[onnx.NodeProto]:
    return [helper.make_node(activation.op_type, inputs, outputs, **activation.attributes)]


def load_activation(text: str) -> Activation:
    """The activation that ``path.py:Name`` names, added.

    Raises:
        InputError: no such file, no such name in it, or something else than an `Activation` by that name.
    """
    path, _, name = text.rpartition(":")
    if not path.endswith(".py") or not name.isidentifier():
        raise InputError(f"got operator {text!r}; expected path.py:Name, a file and an Activation in it")
    module = load_plugin(Path(path).expanduser().resolve())
    activation = getattr(module, name, None)
    if not isinstance(activation, Activation):
        known = [key for key, value in vars(module).items() if isinstance(value, Activation)]
        raise InputError(f"got operator {text!r}; expected an Activation in {path}; {nearest(name, known)}")
    try:
        return add_activation(activation)
    except NetworkError as error:
        raise InputError(str(error)) from error
