"""`nasrnn`: the recurrent cell of a search, unrolled, every gate with two matrix products of its own."""

from __future__ import annotations

import math

import numpy as np

from deep500.errors import NetworkError
from deep500.networks.network import Network
from deep500.networks.zoo.builder import Builder

GATES = 8
CELL = (  # result, operation, first operand (activation, value), second; t0 to t7 are the gates
    ("m0", "Add", ("Relu", "t0"), ("Sigmoid", "t3")),
    ("m1", "Add", ("Sigmoid", "t1"), ("Tanh", "t2")),
    ("m2", "Mul", ("Sigmoid", "t4"), ("Tanh", "t5")),
    ("m3", "Mul", ("Sigmoid", "t6"), ("Relu", "t7")),
    ("m4", "Add", ("Sigmoid", "m1"), ("Tanh", "m2")),
    ("m5", "Mul", ("Tanh", "m0"), ("Tanh", "m3")),
    ("m6", "Mul", ("Tanh", "m4"), ("Tanh", "m5")),
)


def _cell(build: Builder, x: str, state: str, name: str, hidden: int, weights: str) -> str:
    """One step: gate i is x W_i + h U_i; activations, sums and products join the eight as a binary tree."""
    values: dict[str, str] = {}
    for gate in range(GATES):
        from_x, from_state = (
            build.node("MatMul", [value, f"{weights}.{side}{gate}.weight"], f"{name}.{side}{gate}", (hidden,))
            for side, value in (("w", x), ("u", state))
        )
        values[f"t{gate}"] = build.add(from_x, from_state, f"{name}.t{gate}")
    for result, operation, *operands in CELL:
        ends = [
            build.node(f, [values[value]], f"{name}.{result}.{f.lower()}_{value}", (hidden,)) for f, value in operands
        ]
        values[result] = build.node(operation, ends, f"{name}.{result}", (hidden,))
    return build.node("Tanh", [values["m6"]], f"{name}.state", (hidden,))


def nasrnn(build: Builder, classes: int, *, hidden: int | None = None, tied: bool = True) -> Network:
    """NasRNN as in TASO's benchmark (Jia et al. 2019): the tree-shaped cell of Zoph & Le (2016, arXiv 1611.01578).

    ``shape=(length, features)`` gives the steps, 5 of 512 by default; fc on the last state. Per step there are 16
    matrix products of (1, features) and (1, hidden) rows. As in that benchmark there is no memory cell and no bias; the
    first state is a parameter.

    Args:
        hidden: units of the state; as many as features if None.
        tied: all steps share their weights, as a recurrent network does; TASO's has new ones in every step.

    Initialisation: U(-1/sqrt(hidden), 1/sqrt(hidden)), PyTorch's default for recurrent layers; the first state too.
    """
    shape = build.shapes["input"]
    if len(shape) != 2:
        raise NetworkError(f"got shape {shape}; expected (length, features): give shape= of a sequence of vectors")
    length, features = shape
    size = features if hidden is None else hidden
    bound = 1 / math.sqrt(size)
    state = build.parameter("state.weight", build.uniform((1, size), bound))
    build.shapes[state] = (size,)
    for step in range(length):
        weights = "cell" if tied else f"cell{step}"
        for gate in range(0 if tied and step else GATES):
            for side, rows in (("w", features), ("u", size)):
                build.parameter(f"{weights}.{side}{gate}.weight", build.uniform((rows, size), bound))
        index = build.constant(f"step{step}.index", np.array(step, np.int64))
        x = build.node("Gather", ["input", index], f"step{step}.input", (features,), axis=1)
        state = _cell(build, x, state, f"step{step}", size, weights)
    return build.classify(state, "fc", classes)
