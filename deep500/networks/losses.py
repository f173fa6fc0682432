"""A loss on top of a network, which recipes name and training differentiates, and the names of its gradients."""

from __future__ import annotations

from deep500.errors import NetworkError, nearest
from deep500.networks.network import Network

LOSSES = ("cross_entropy", "mean_squared_error")


def add_loss(
    network: Network, kind: str = "cross_entropy", output: str | None = None, label: str = "label", loss: str = "loss"
) -> Network:
    """Add an input ``label`` and a scalar output ``loss`` (the mean over the batch) to a network, and return it.

    Args:
        network: is edited.
        kind: ``"cross_entropy"`` (label: int64 class numbers; Softmax is part of the loss, as in PyTorch's
            ``cross_entropy``) or ``"mean_squared_error"`` (label: like the output).
        output: what is compared with the label; the network's first output if None.
        label: name of the new input.
        loss: name of the new output.
    """
    if kind not in LOSSES:
        raise NetworkError(f"got loss {kind!r}; expected one of {LOSSES}: {nearest(kind, LOSSES)}")
    output = network.outputs[0] if output is None else output
    described = network.descriptors()[output]
    shape = described.shape or ("N", None)
    if kind == "cross_entropy":
        network.add_input(label, (shape[0], *shape[2:]), "int64")
        network.add_node("SoftmaxCrossEntropyLoss", [output, label], [loss], name=loss, reduction="mean")
    else:
        network.add_input(label, shape, described.dtype or "float32")
        difference, square = network.fresh_name("difference"), network.fresh_name("square")
        network.add_node("Sub", [output, label], [difference])
        network.add_node("Mul", [difference, difference], [square])
        network.add_node("ReduceMean", [square], [loss], name=loss, keepdims=0)
    network.add_output(loss)
    return network


def find_loss(network: Network, loss: str) -> str:
    """The loss's name if the network has such a value, else NetworkError with the cure."""
    if not network.has_value(loss):
        raise NetworkError(
            f"got loss {loss!r}; expected a value of the network: {nearest(loss, network.outputs)} "
            "Add one with deep500.networks.add_loss(network)"
        )
    return loss


def gradient_name(parameter: str) -> str:
    """Name under which a run leaves the gradient of a parameter: ``"conv1.weight" -> "conv1.weight.grad"``."""
    return f"{parameter}.grad"
