"""Activations of people's own: a specification in one object, with the axioms that provers may use.

    # absolute.py
    import numpy as np
    from deep500.transformations.substitutions.operators.own import Activation

    AXIOMS = ("(abs (abs x)) = (abs x)", "(abs (mul x y)) = (mul (abs x) (abs y))")
    ABS = Activation("abs", "Abs", np.abs, axioms=AXIOMS)

From then on ``(abs x)`` is a pattern, shipped rules that hold for any activation hold for it, and what follows from
its axioms is proved. It lasts for the process. The function is held against the operator's kernels when it is added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from deep500.errors import Deep500Error, InputError, NetworkError, nearest
from deep500.networks.graph import Graph
from deep500.operators.registry import load_plugin
from deep500.registry import is_installed, load_backend
from deep500.transformations.substitutions.operators.arithmetic import Array, Real
from deep500.transformations.substitutions.operators.elementwise import ACTIVATIONS
from deep500.transformations.substitutions.operators.specification import OPSET, Operator, operators, register

BACKENDS = ("reference", "onnxruntime")


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
        InputError: its name, or its ONNX operator, stands for another activation; the operator's kernels compute
            something else than the function, or there are none.

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
    _compare_with_kernels(activation)
    op_type, settings = activation.op_type, activation.attributes
    register(
        Operator(
            activation.name,
            1,
            lambda shapes, _: (shapes[0],),
            lambda numbers, inputs, _: (numbers.unary(activation.name, inputs[0]),),
            lambda inputs, outputs, *_: [helper.make_node(op_type, inputs, outputs, **settings)],
        )
    )
    OWN[activation.name] = activation
    Real.FUNCTIONS[activation.name] = activation.function
    ACTIVATIONS[activation.name] = activation.op_type
    return activation


POINTS = np.outer([1.0, -1.0], [0.0, 1e-4, 0.25, 1 / 3, 0.5, 1.0, 1.5, 2.71, 7.3, 41.6, 1e4]).ravel()
"""Where a function is held against the operator's kernels: off the integers, where steps and signs show."""
NEAR = 1e-5
"""Relative difference to a kernel in float32."""


def _compare_with_kernels(activation: Activation) -> None:
    """Raise InputError unless the kernels of the installed backends compute what a function does."""
    network = Graph("activation")
    network.add_input("x", POINTS.shape, "float32")
    network.add_node(activation.op_type, ["x"], ["y"], **activation.attributes)
    network.add_output("y")
    points = POINTS.astype(np.float32)
    with np.errstate(all="ignore"):
        expected = np.asarray(activation.function(points.astype(np.float64)), np.float64)
        narrow, refused = expected.astype(np.float32), dict[str, str]()
    for backend in filter(is_installed, BACKENDS):
        try:
            executor = load_backend(backend).from_model(network)
            got = np.asarray(executor.network.to_numpy(executor.inference({"x": points})["y"]))
        except Deep500Error as error:
            refused[backend] = str(error)
            continue
        near = np.isclose(got, narrow, rtol=NEAR, atol=NEAR * 1e-2, equal_nan=True)
        if narrow.shape != got.shape or not near.all():
            place = int(np.argmin(near)) if narrow.shape == got.shape else 0
            raise InputError(
                f"got activation {activation.name!r}, function {narrow.flat[place]:.6g} at {points[place]:.6g}; its "
                f"kernel in {backend}, {activation.op_type}, gives {got[place]:.6g}; expected the same: correct one"
            )
    if len(refused) == len(list(filter(is_installed, BACKENDS))):
        raise InputError(f"got activation {activation.name!r}, which no backend runs to compare with: {refused}")


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
