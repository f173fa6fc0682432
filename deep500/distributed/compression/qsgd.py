"""`QSGD`: each element rounded at random to one of a few levels, so that its mean is right."""

from __future__ import annotations

import numpy as np

from deep500.distributed.compression.base import Encoded, Flat, as_bytes
from deep500.distributed.transports.communicator import Communicator
from deep500.training.optimizers.base import Optimizer


def quantize(values: np.ndarray, levels: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Signed level and norm: ``sign(v_i) (l + b) `` with ``l + f = s |v_i| / |v|``, ``l`` whole, ``b = 1`` with
    probability ``f`` (Alistarh et al. 2017, arXiv 1610.02132, section 3.1).

    ``|v| code / s`` is an unbiased estimate of v, of variance at most ``min(n / s^2, sqrt(n) / s) |v|^2`` (lemma 3.1).

    Args:
        values: (rows, n) floats; each row has a norm of its own.
        levels: ``s``.
        rng: draws one number per element.

    Returns:
        (rows, n) int64 codes in -s .. s, and (rows,) norms of the values' dtype. A row without a finite norm has codes
        0, which stand for NaN.

    Example:
        >>> codes, norms = quantize(np.array([[3.0, -4.0]]), 5, np.random.default_rng(0))
        >>> (norms[:, None] * codes / 5).tolist()          # 3/5 and 4/5 are levels: nothing to round
        [[3.0, -4.0]]
    """
    norms = np.linalg.norm(values.astype(np.float64), axis=1).astype(values.dtype)
    usable = np.isfinite(norms) & (norms > 0)
    with np.errstate(invalid="ignore"):
        scaled = np.abs(values.astype(np.float64)) / np.where(usable, norms, 1)[:, None] * levels
    scaled[~usable] = 0
    codes = np.minimum(np.floor(scaled + rng.random(values.shape)), levels)  # the norm is rounded, so s is exceeded
    return np.where(np.signbit(values), -codes, codes).astype(np.int64), norms


def bits_of(levels: int) -> int:
    """Bits that tell ``2 levels + 1`` codes apart.

    Example:
        >>> [bits_of(s) for s in (1, 3, 4, 127)]
        [2, 3, 4, 8]
    """
    return (2 * levels).bit_length()


def pack(codes: np.ndarray, bits: int) -> np.ndarray:
    """Whole numbers from 0 to 2^bits - 1 as bytes: the lowest bit of all, then the next, ...

    Example:
        >>> packed = pack(np.array([0, 5, 7]), 3)
        >>> packed.size, unpack(packed, 3, 3).tolist()
        (3, [0, 5, 7])
    """
    return np.concatenate([np.packbits((codes >> bit & 1).astype(np.uint8)) for bit in range(bits)])


def unpack(packed: np.ndarray, bits: int, count: int) -> np.ndarray:
    """The ``count`` int64 numbers that :func:`pack` made bytes of."""
    planes = packed.reshape(bits, -1)
    codes = np.zeros(count, np.int64)
    for bit in range(bits):
        codes |= np.unpackbits(planes[bit], count=count).astype(np.int64) << bit
    return codes


class QSGD(Encoded):
    """Quantised SGD (Alistarh et al. 2017, arXiv 1610.02132): :func:`quantize`, with a norm for every ``chunk``
    consecutive elements (section 4, where it is called bucket): shorter chunks cost norms and save variance.

    The estimate is unbiased, so the error is not fed back. The draws are a function of seed, rank and step.

    Payload per step and rank: ``itemsize ceil(n / chunk) + bits ceil(n / 8)`` bytes with ``bits =
    ceil(log2(2 levels + 1))``, for n gradient elements. (The paper's Elias code has fewer bits where most codes are 0,
    and a length that differs between ranks.)

    Args:
        base_optimizer, comm: see :class:`~deep500.distributed.optimizer.DistributedOptimizer`; native ones work too.
        levels: ``s``, positive levels beside 0; 1 is ternary, 7 are 4 bits, 127 are 8 bits.
        seed: of the draws; every rank makes its own of it.
        chunk: elements that share a norm.

    Raises:
        InputError: ``levels`` or ``chunk`` below 1, a seed below 0.
    """

    error_feedback = False

    @classmethod
    def on_other_ranks(cls) -> str:
        return f"{super().on_other_ranks()}, and to its draws"

    def __init__(
        self,
        base_optimizer: Optimizer,
        comm: Communicator | None = None,
        levels: int = 7,
        seed: int = 0,
        chunk: int = 512,
    ) -> None:
        from deep500.training.data.samplers import checked_integer

        self.levels, self.chunk = checked_integer("levels", levels, 1), checked_integer("chunk", chunk, 1)
        self.seed = checked_integer("seed", seed, 0)
        super().__init__(base_optimizer, comm)

    def encode(self, flat: Flat) -> np.ndarray:
        """Norms, then codes."""
        rng = np.random.default_rng([self.seed, self.comm.rank, self.steps, flat.number])
        codes, norms = quantize(self._rows(flat.values), self.levels, rng)
        return as_bytes(norms, pack(codes.ravel()[: flat.values.size] + self.levels, bits_of(self.levels)))

    def add(self, message: np.ndarray, flat: Flat, into: np.ndarray) -> None:
        """Add ``norm code / s``."""
        count = -(-into.size // self.chunk)
        border = count * into.itemsize
        codes = unpack(message[border:], bits_of(self.levels), into.size) - self.levels
        scale = np.repeat(message[:border].view(into.dtype), self.chunk)[: into.size]
        with np.errstate(invalid="ignore"):
            into += scale * codes.astype(into.dtype) / into.dtype.type(self.levels)

    def _rows(self, values: np.ndarray) -> np.ndarray:
        """Chunks; the last is filled up with zeros."""
        rows = np.zeros((-(-values.size // self.chunk), self.chunk), values.dtype)
        rows.ravel()[: values.size] = values
        return rows
