"""Losses of reinforcement learning, as nodes: proximal policy optimization, and Q-learning's temporal difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from deep500.errors import NetworkError
from deep500.networks.emit import Emitter
from deep500.networks.graph import AnyGraph, Graph
from deep500.networks.node import Node

TARGET = "target/"
"""Before the names of a target network's parameters and values."""


def add_ppo_loss(
    network: AnyGraph,
    *,
    clip: float = 0.2,
    value_weight: float = 0.5,
    entropy_weight: float = 0.01,
    output: str | None = None,
    loss: str = "loss",
) -> AnyGraph:
    """Add the clipped surrogate of proximal policy optimization (Schulman et al. 2017, arXiv 1707.06347, equation 9).

    With r = pi(a|s) / pi_old(a|s) and advantage A, the mean over the batch of
    -min(r A, clip(r, 1 - clip, 1 + clip) A) + value_weight * (V - wanted)^2 - entropy_weight * entropy(pi).

    Args:
        network: its output (N, actions + 1) holds the logits of actions, then the value; it is edited.
        clip, value_weight, entropy_weight: as above.
        output: name of that output; the first if None.
        loss: name of the new output.

    Inputs that are added, all (N,): ``action`` int64, and of the network's dtype ``advantage``, ``wanted_value`` and
    ``log_probability``, that of the action when it was taken.

    Raises:
        NetworkError: an output of another shape.
    """
    output, batch, width, dtype = _rows(network, output)
    network.add_input("action", (batch,), "int64")
    for name in ("advantage", "wanted_value", "log_probability"):
        network.add_input(name, (batch,), dtype)
    op = Emitter(network, "ppo/")
    logits = op("Slice", output, op.ints(0), op.ints(width - 1), op.ints(1))
    value = op("Squeeze", op("Slice", output, op.ints(width - 1), op.ints(width), op.ints(1)), op.ints(1))
    log_policy = op("LogSoftmax", logits, axis=1)
    ratio = op("Exp", op("Sub", _taken(op, log_policy, width - 1, dtype), "log_probability"))
    ends = [op.constant(np.array(1 + sign * clip, dtype)) for sign in (-1, 1)]
    clipped = op("Min", op("Max", ratio, ends[0]), ends[1])
    surrogate = op("Min", op("Mul", ratio, "advantage"), op("Mul", clipped, "advantage"))
    error = op("Sub", value, "wanted_value")
    entropy = op("Neg", op("ReduceSum", op("Mul", op("Exp", log_policy), log_policy), op.ints(1), keepdims=0))
    of_value = op("Mul", op("Mul", error, error), op.constant(np.array(value_weight, dtype)))
    total = op("Sub", of_value, op("Add", surrogate, op("Mul", entropy, op.constant(np.array(entropy_weight, dtype)))))
    return _mean(network, total, loss)


def add_q_loss(
    network: AnyGraph, *, discount: float = 0.99, double: bool = True, output: str | None = None, loss: str = "loss"
) -> AnyGraph:
    """Add the loss of deep Q-learning (Mnih et al. 2015), whose target network is a part of the network.

    With y = reward + discount * (1 - ended) * Q_target(s', a'), the mean over the batch of Huber's loss of Q(s, a) - y.
    a' maximizes Q_target(s', .), or with ``double`` Q(s', .) (van Hasselt et al. 2016, arXiv 1509.06461). The target
    network is a copy whose parameters do not train, named ``target/<name>``: copy values into them from time to time.

    Args:
        network: its output (N, actions) holds the value of each action; it is edited. Its one input is what is
        observed.
        discount, double: as above.
        output: name of that output; the first if None.
        loss: name of the new output.

    Inputs that are added: ``next_<input>`` like the input, ``action`` int64 (N,), ``reward`` and ``ended`` (N,).

    Raises:
        NetworkError: an output of another shape, or more than one input.
    """
    output, batch, width, dtype = _rows(network, output)
    if len(network.inputs) != 1:
        raise NetworkError(
            f"got a network with inputs {', '.join(network.inputs)}; expected one, what is observed, to make a target "
            "network of: leave the others out"
        )
    (observed,) = network.inputs
    described = network.inputs[observed]
    following = f"next_{observed}"
    network.add_input(following, described.shape, described.dtype or "float32")
    network.add_input("action", (batch,), "int64")
    for name in ("reward", "ended"):
        network.add_input(name, (batch,), dtype)
    nodes, parameters = network.nodes, dict(network.parameters)
    for name, parameter in parameters.items():
        network.add_parameter(TARGET + name, parameter.value, trainable=False)
    renamed = {observed: following, **{name: TARGET + name for name in parameters}}
    target = _copy(network, nodes, renamed, TARGET)[output]
    op = Emitter(network, "q/")
    chosen = target
    if double:
        chosen = _copy(network, nodes, {observed: following, **{name: name for name in parameters}}, "again/")[output]
    best = op(
        "OneHot",
        op("ArgMax", chosen, axis=1, keepdims=0),
        op.constant(np.array(width, np.int64)),
        op.constant(np.array([0, 1], dtype)),
        axis=1,
    )
    after = op("ReduceSum", op("Mul", target, best), op.ints(1), keepdims=0)
    goes_on = op(
        "Sub", op.constant(np.array(discount, dtype)), op("Mul", "ended", op.constant(np.array(discount, dtype)))
    )
    goal = op("Add", "reward", op("Mul", goes_on, after))
    error = op("Abs", op("Sub", _taken(op, output, width, dtype), goal))
    near = op("Min", error, op.constant(np.array(1, dtype)))
    rest = op("Sub", error, op("Mul", near, op.constant(np.array(0.5, dtype))))
    return _mean(network, op("Mul", near, rest), loss)


def _rows(network: Graph, output: str | None) -> tuple[str, int | str, int, str]:
    """The output's name, batch size, width and dtype."""
    output = network.outputs[0] if output is None else output
    described = network.descriptors()[output]
    shape = described.shape or ()
    if len(shape) != 2 or not isinstance(shape[1], int) or shape[0] is None:
        raise NetworkError(f"got output {output!r} of shape {shape}; expected (N, numbers per action): choose another")
    return output, shape[0], shape[1], described.dtype or "float32"


def _taken(op: Emitter, values: str, actions: int, dtype: str) -> str:
    """The value (N,) of the action that was taken."""
    which = op(
        "OneHot", "action", op.constant(np.array(actions, np.int64)), op.constant(np.array([0, 1], dtype)), axis=1
    )
    return op("ReduceSum", op("Mul", values, which), op.ints(1), keepdims=0)


def _mean(network: AnyGraph, values: str, loss: str) -> AnyGraph:
    network.add_node("ReduceMean", [values], [loss], name=loss, keepdims=0)
    network.add_output(loss)
    return network


def _copy(network: Graph, nodes: Sequence[Node], renamed: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The nodes once more, reading and writing under other names; returns old name -> new name of every value."""
    names = dict(renamed)
    for node in nodes:
        names.update({value: f"{prefix}{value}" for value in node.outputs if value})
        inputs = [names.get(value, value) for value in node.inputs]
        outputs = [names[value] if value else "" for value in node.outputs]
        network.add_node(node.op_type, inputs, outputs, domain=node.domain, **node.attributes)
    return names
