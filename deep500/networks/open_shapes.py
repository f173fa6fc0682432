"""Shapes that ONNX's inference leaves open, by numbers in place of the symbolic sizes.

Three each: 1 (11, where windows need it), a larger one, and one above all numbers in the network: cuts at 2 and at 512
tell. A size that is the same each time is a constant, one that follows a symbol is that symbol, others stay unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from deep500.tensors import Dim, TensorDescriptor

SMALL = (1, 11)
PRIMES = (61, 67, 71, 73, 79, 83, 89, 97, 101, 103)
MOST = 2**14  # numbers up to this may be where a size is cut off; larger ones stand for no end
Descriptors = dict[str, TensorDescriptor]


def infer_by_numbers(
    symbols: Sequence[str],
    symbolic: Descriptors,
    operands: Iterable[np.ndarray],
    infer: Callable[[Mapping[str, int]], Descriptors | None],
) -> Descriptors:
    """Descriptors, completed by what holds for several numbers; ``operands`` are arrays that may decide about shapes.

    Example:
        >>> known = lambda n: {"y": TensorDescriptor("float32", (min(n["N"], 512), n["N"]))}
        >>> infer_by_numbers(["N"], {"y": TensorDescriptor("float32", (None, None))}, [np.array(512)], known)["y"].shape
        (None, 'N')
    """
    if len(symbols) > len(PRIMES):
        return symbolic
    above = max((int(n) for array in operands if array.dtype.kind == "i" for n in array.flat if n <= MOST), default=0)
    # Different primes for all, so that a product or a sum of sizes is hardly mistaken for a symbol.
    several = (PRIMES, [max(above, PRIMES[-1]) + prime for prime in PRIMES])
    larger = (dict(zip(symbols, numbers, strict=False)) for numbers in several)
    votes = [(binding, known) for binding in larger if (known := infer(binding))]
    smalls = (dict.fromkeys(symbols, number) for number in SMALL)
    smallest = next(((binding, known) for binding in smalls if (known := infer(binding))), None)
    votes += [smallest] if smallest else []
    if len(votes) < 2:
        return symbolic
    bindings = [binding for binding, _ in votes]
    return {name: _agree(symbolic[name], [known[name] for _, known in votes], bindings) for name in symbolic}


def _agree(
    plain: TensorDescriptor, several: Sequence[TensorDescriptor], bindings: Sequence[Mapping[str, int]]
) -> TensorDescriptor:
    """Combine the symbolic result with those for several choices of numbers."""
    dtype = plain.dtype or several[-1].dtype
    shapes = [known.shape for known in several if known.shape is not None]
    if len(shapes) < len(several) or len(set(map(len, shapes))) > 1:
        return TensorDescriptor(dtype, plain.shape)
    symbol_of = {tuple(binding[symbol] for binding in bindings): symbol for symbol in bindings[0]}
    sizes: list[Dim] = [
        (numbers[0] if len({*numbers}) == 1 else symbol_of.get(numbers)) if None not in numbers else None
        for numbers in zip(*shapes, strict=True)
    ]
    if plain.shape is not None and len(plain.shape) == len(sizes):
        sizes = [s if p is None else p for p, s in zip(plain.shape, sizes, strict=True)]
    return TensorDescriptor(dtype, tuple(sizes))
