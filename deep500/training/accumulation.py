"""Gradient accumulation: a batch runs in pieces, whose gradients add up to that of the whole, so that it needs the
memory of a piece.

``batch_size`` stays that of an update: schedules, epochs, metrics and results are those of the run without. The loss
must be a mean, as for several ranks: pieces count by what their loss divides by (samples, or labels that count and
weights of classes), so that a smaller last one is weighted rightly. What normalises over the batch
(:func:`batch_statistics`) sees a piece at a time, and random numbers are drawn for each: there the two runs differ.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from deep500.errors import AccumulationWarning, InputError
from deep500.networks.execution.bound import BoundNetwork
from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.network import Network
from deep500.training.batch_weights import BatchWeights
from deep500.training.loss_scaling import SCALE, SCALED, LossScaling


def batch_statistics(network: Network) -> list[str]:
    """Names of the nodes that normalise over the samples of a batch in training mode."""
    return [node.name for node in network.nodes if node.op_type == "BatchNormalization" and not node.domain]


def check_accumulation(network: Network, loss: str, count: Any) -> str | None:
    """Whether a batch may run in so many pieces.

    Returns:
        in what the result differs from that of whole batches; None if it does not, except for random numbers.

    Raises:
        InputError: no whole number of at least 1, a network of one batch size, or a loss that is no mean.
    """
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InputError(f"got accumulate={count!r}; expected a whole number of at least 1: choose how many pieces")
    if count == 1:
        return None
    from deep500.transformations.denominators import loss_denominator  # here, because few runs have pieces

    loss_denominator(network, loss).check(loss, f"accumulate={count}")
    fixed = [n for n, d in network.inputs.items() if d.shape and isinstance(d.shape[0], int)]
    if len(fixed) == len(network.inputs):
        raise InputError(
            f"got accumulate={count} for a network whose inputs have a fixed first size ({fixed[0]!r}: "
            f"{network.inputs[fixed[0]]}); expected a symbolic one: make the network without batch=..."
        )
    normalised = batch_statistics(network)
    if not normalised:
        return None
    return (
        f"accumulate={count}: {len(normalised)} BatchNormalization nodes see one piece of each batch at a time: their "
        "means and variances are those of fewer samples, and running statistics move once per piece"
    )


def warn_of_pieces(network: Network, loss: str, count: Any) -> None:
    """:func:`check_accumulation`, whose difference is a warning."""
    if difference := check_accumulation(network, loss, count):
        warnings.warn(difference, AccumulationWarning, stacklevel=3)


def pieces(network: Network, inputs: Mapping[str, Any], count: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """A batch in ``count`` parts of nearly equal size, none empty: number of samples, and inputs.

    Inputs whose first size is symbolic are divided, others go whole into every part.

    Raises:
        InputError: inputs with different numbers of samples.

    Example:
        >>> network = Network(); network.add_input("x", ("N", 2))
        >>> [(size, piece["x"].shape) for size, piece in pieces(network, {"x": np.ones((5, 2), "float32")}, 2)]
        [(3, (3, 2)), (2, (2, 2))]
    """
    divided = {
        name: value
        for name, value in inputs.items()
        if name in network.inputs and (shape := network.inputs[name].shape) and not isinstance(shape[0], int)
    }
    lengths = {int(value.shape[0]) for value in divided.values()}
    if len(lengths) != 1:
        raise InputError(
            f"got inputs with {sorted(lengths)} samples; expected one number, so that the batch can be divided: give "
            "all inputs the same, or leave accumulate out"
        )
    length, begin = lengths.pop(), 0
    for number in range(min(count, length)):
        size = length // count + (number < length % count)
        yield size, {**inputs, **{name: value[begin : begin + size] for name, value in divided.items()}}
        begin += size


def backprop_in_pieces(
    executor: GraphExecutor,
    inputs: Mapping[str, Any],
    loss: str,
    parameters: Sequence[str],
    gradients: Sequence[str],
    count: int,
    scaling: LossScaling | None,
    weights: BatchWeights,
) -> dict[str, Any]:
    """Forward and backward over a batch in pieces; the executor holds the whole batch's gradients afterwards.

    Args:
        executor: runs the pieces, one after the other.
        inputs, loss: of the batch, as ``inference_and_backprop`` takes them.
        parameters, gradients: names, in one order.
        count: how many pieces.
        scaling: multiplies the loss, and the gradients are divided again; None: neither.
        weights: what pieces count, where it is not their samples.

    Returns:
        outputs of the whole batch: pieces of outputs with a sample axis in a row, means of the loss and other scalars.
    """
    network = executor.network
    scale = 1.0 if scaling is None else scaling.scale
    more = {} if scaling is None else {SCALE: np.array(scale, np.float32)}
    parts = [(None, dict(inputs))] if count == 1 else list(pieces(network, inputs, count))
    counts = counts_of(parts, weights) if len(parts) > 1 else [1]
    results, sums, shares = [], None, [weight / sum(counts) for weight in counts]
    for (_, part), share in zip(parts, shares, strict=True):
        results.append(executor.inference_and_backprop({**part, **more}, loss if scaling is None else SCALED))
        fetched = network.fetch_tensors(gradients)
        if len(parts) == 1 and scaling is None:
            return results[0]
        if share:  # a mean over nothing is NaN
            terms, factors = ([fetched], [share / scale]) if sums is None else ([sums, fetched], [1.0, share / scale])
            sums = network.weighted_sum(terms, factors)
    network.leave_gradients(dict(zip(parameters, sums or [], strict=True)))
    return outputs_together(network, results, [size or 1 for size, _ in parts], {loss: counts})


def counts_of(parts: Sequence[tuple[int | None, Mapping[str, Any]]], weights: BatchWeights) -> list[float]:
    """Weights of pieces, of so many samples each, in the mean loss of the batch; as samples where nothing counts."""
    sizes: list[float] = [size or 1 for size, _ in parts]
    counts = [weights(part) for _, part in parts] if weights.counted else sizes
    return counts if any(counts) else sizes


def outputs_together(
    network: BoundNetwork,
    results: Sequence[Mapping[str, Any]],
    sizes: Sequence[int],
    counts: Mapping[str, Sequence[float]],
) -> dict[str, Any]:
    """Outputs of a batch from those of its pieces, without the scaled loss.

    Args:
        network: of tensors.
        results: of each piece.
        sizes: samples of each piece.
        counts: what each piece counts in a mean, by name of the output; its samples if it is not in there.
    """
    names = [name for name in results[0] if name != SCALED]
    if len(results) == 1:
        return {name: results[0][name] for name in names}
    pieces_of = {name: [result[name] for result in results] for name in names}
    return {name: _whole(network, name, pieces_of[name], sizes, counts.get(name, sizes)) for name in names}


def _whole(
    network: BoundNetwork, name: str, values: Sequence[Any], sizes: Sequence[int], counts: Sequence[float]
) -> Any:
    shapes = [tuple(value.shape) for value in values]
    if all(shape == () for shape in shapes):
        counted = [(value, count) for value, count in zip(values, counts, strict=True) if count]
        return network.weighted_sum([[value] for value, _ in counted], [n / sum(counts) for _, n in counted])[0]
    if all(shape and shape[0] == size for shape, size in zip(shapes, sizes, strict=True)):
        return network.concatenate(values)
    raise InputError(
        f"output {name!r}: got shapes {shapes} from pieces of {list(sizes)} samples; expected a scalar or one row per "
        "sample, from which the batch's can be made: remove that output, or leave accumulate out"
    )
