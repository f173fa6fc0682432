"""Small shapes to try an operator with: what its descriptors leave open is filled in several ways."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from deep500.errors import Deep500Error
from deep500.tensors import TensorDescriptor

Shapes = list[tuple[int, ...]]
Infer = Callable[[list[TensorDescriptor]], Sequence[TensorDescriptor]]

RANKS = ((5,), (4, 5), (2, 3, 4, 5), (3, 4, 5))
"""What stands for a shape of None, the same for every input that has it."""


def examples(inputs: Sequence[TensorDescriptor], infer: Infer) -> list[tuple[Shapes, Shapes]]:
    """Shapes of inputs and of outputs that fit the descriptors, the likeliest first.

    Symbols get sizes that fall in the order of their appearance (data before kernels), then equal, then rising ones.

    Args:
        inputs: as declared.
        infer: gives descriptors of the outputs; what it refuses is left out.

    Example:
        >>> from deep500 import tensordesc
        >>> examples([tensordesc(("N", 3))], lambda inputs: inputs)[0]
        ([(4, 3)], [(4, 3)])
    """
    found = []
    for shapes in _candidates(inputs):
        described = [TensorDescriptor(one.dtype, shape) for one, shape in zip(inputs, shapes, strict=True)]
        try:
            outputs = list(infer(described))
        except (Deep500Error, ArithmeticError, LookupError, TypeError, ValueError):
            continue
        static = [one.shape or () for one in outputs if one.is_static]
        known = [tuple(size for size in shape if isinstance(size, int)) for shape in static]
        if (
            len(known) == len(outputs)
            and all(size > 0 for one in known for size in one)
            and (shapes, known) not in found
        ):
            found.append((shapes, known))
    return found


def _candidates(inputs: Sequence[TensorDescriptor]) -> Iterator[Shapes]:
    names = list(dict.fromkeys(_keys(inputs)))
    count = len(names)
    for rank in RANKS if any(one.shape is None for one in inputs) else RANKS[:1]:
        for sizes in ([count + 3 - i for i in range(count)], [4] * count, [i + 2 for i in range(count)]):
            known = dict(zip(names, sizes, strict=True))
            yield [_filled(i, one, known, rank) for i, one in enumerate(inputs)]


def _keys(inputs: Sequence[TensorDescriptor]) -> Iterator[object]:
    for i, one in enumerate(inputs):
        for axis, size in enumerate(one.shape or ()):
            if not isinstance(size, int):
                yield _key(i, axis, size)


def _key(index: int, axis: int, size: object) -> object:
    return (index, axis) if size is None else size


def _filled(index: int, one: TensorDescriptor, known: dict[object, int], rank: tuple[int, ...]) -> tuple[int, ...]:
    if one.shape is None:
        return rank
    return tuple(s if isinstance(s, int) else known[_key(index, axis, s)] for axis, s in enumerate(one.shape))
