"""Right operators, and ways to get their gradients wrong: what ``check_op_gradient`` is judged by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

import deep500 as d5

Arrays = list[np.ndarray]
Forward = Callable[..., Arrays]
Backward = Callable[[Arrays, Arrays, Arrays], Arrays]


class Given(d5.CustomPythonOp):
    """An operator from two functions, which takes and computes in one dtype only, as compiled ones do."""

    def __init__(self, forward: Forward, backward: Backward, dtypes: Sequence[str]) -> None:
        super().__init__([d5.TensorDescriptor(dtype, None) for dtype in dtypes])
        self._forward, self._backward, self.dtype = forward, backward, dtypes[0]

    def _rounded(self, arrays: Arrays) -> Arrays:
        return [np.asarray(a).astype(self.dtype) for a in arrays]

    def forward(self, inputs: Sequence[np.ndarray]) -> Arrays:
        return self._rounded(self._forward(*inputs))

    def backward(self, grads: Arrays, fwd_inputs: Arrays, fwd_outputs: Arrays) -> Arrays:
        gradients = self._backward(list(grads), list(fwd_inputs), list(fwd_outputs))
        return [g if g is None else np.asarray(g).astype(self.dtype) for g in gradients]


@dataclass(frozen=True)
class Case:
    """A right operator, the shapes of its inputs for a full and for a directional check, and own mutants."""

    name: str
    forward: Forward
    backward: Backward
    small: tuple[tuple[int, ...], ...]
    large: tuple[tuple[int, ...], ...]
    wrong: tuple[Backward, ...] = ()
    positive: bool = False
    indices: int | None = None

    def inputs(self, dtype: str, seed: int, large: bool = False) -> Arrays:
        """Random inputs; the last one whole numbers below ``indices`` if that is given."""
        random = np.random.default_rng(seed)
        made = [random.normal(size=shape) for shape in (self.large if large else self.small)]
        arrays = [(np.abs(x) + 0.3 if self.positive else x).astype(dtype) for x in made]
        if self.indices is not None:
            arrays[-1] = random.integers(0, self.indices, arrays[-1].shape)
        return arrays

    def operator(self, dtype: str, backward: Backward | None = None) -> Given:
        """The operator in a dtype, with its own gradient or another."""
        dtypes = [dtype] * len(self.small)
        if self.indices is not None:
            dtypes[-1] = "int64"
        return Given(self.forward, backward or self.backward, dtypes)


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return [e / e.sum(-1, keepdims=True)]


def _rms(x, w):
    return [x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w]


def _rms_back(g, i, o):
    x, w = i
    r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
    return [r * w * g[0] - x * r**3 * (g[0] * w * x).mean(-1, keepdims=True), (g[0] * x * r).sum(0)]


def _conv(x, w):
    return [np.stack([np.convolve(row, w[::-1], "valid") for row in x])]


def _conv_back(g, i, o):
    x, w = i
    width = len(w)
    dx = np.stack([np.convolve(row, w, "full") for row in g[0]])
    dw = np.array([(g[0] * x[:, k : k + g[0].shape[1]]).sum() for k in range(width)])
    return [dx, dw]


def _scatter(g, i, o):
    table = np.zeros_like(i[0])
    np.add.at(table, i[1], g[0])
    return [table, None]


def _scatter_last(g, i, o):
    table = np.zeros_like(i[0])
    table[i[1]] = g[0]  # equal indices overwrite instead of adding
    return [table, None]


def _attention(q, k, v):
    p = _softmax(q @ k.T / np.sqrt(q.shape[-1]))[0]
    return [p @ v]


def _attention_back(g, i, o, scale=True, through_softmax=True):
    q, k, v = i
    root = np.sqrt(q.shape[-1]) if scale else 1.0
    p = _softmax(q @ k.T / np.sqrt(q.shape[-1]))[0]
    dp = g[0] @ v.T
    ds = p * (dp - (dp * p).sum(-1, keepdims=True)) if through_softmax else p * dp
    return [ds @ k / root, ds.T @ q / root, p.T @ g[0]]


# fmt: off
CASES = [
    Case(
        "cube", lambda x: [x**3], lambda g, i, o: [3 * g[0] * i[0] ** 2], ((6,),), ((30, 40),),
        (lambda g, i, o: [3 * g[0] * i[0]], lambda g, i, o: [g[0] * i[0] ** 2], lambda g, i, o: [3 * g[0] * i[0] ** 3]),
    ),
    Case(
        "multiply_add", lambda a, b, c: [a * b + c], lambda g, i, o: [g[0] * i[1], g[0] * i[0], g[0].sum(0)],
        ((3, 4), (3, 4), (4,)), ((30, 40), (30, 40), (40,)),
        (
            lambda g, i, o: [g[0] * i[0], g[0] * i[1], g[0].sum(0)],
            lambda g, i, o: [g[0] * i[1], g[0] * i[0], g[0].mean(0)],
            lambda g, i, o: [g[0] * i[1], g[0] * i[0], g[0][-1]],
        ),
    ),
    Case(
        "matmul", lambda a, b: [a @ b], lambda g, i, o: [g[0] @ i[1].T, i[0].T @ g[0]], ((4, 4), (4, 4)),
        ((24, 24), (24, 24)),
        (
            lambda g, i, o: [g[0] @ i[1], i[0].T @ g[0]],
            lambda g, i, o: [g[0] @ i[1].T, i[0] @ g[0]],
            lambda g, i, o: [g[0] @ i[1].T, (i[0].T @ g[0]).T],
        ),
    ),
    Case(
        "softmax", _softmax, lambda g, i, o: [o[0] * (g[0] - (g[0] * o[0]).sum(-1, keepdims=True))],
        ((2, 5),), ((30, 40),),
        (
            lambda g, i, o: [o[0] * g[0]],
            lambda g, i, o: [o[0] * (g[0] - g[0].sum(-1, keepdims=True))],
            lambda g, i, o: [o[0] * (g[0] - (g[0] * o[0]).sum(0, keepdims=True))],
            lambda g, i, o: [o[0] * (1 - o[0]) * g[0]],
        ),
    ),
    Case(
        "rmsnorm", _rms, _rms_back, ((3, 5), (5,)), ((30, 40), (40,)),
        (
            lambda g, i, o: [i[1] * g[0] / np.sqrt((i[0] ** 2).mean(-1, keepdims=True)), _rms_back(g, i, o)[1]],
            lambda g, i, o: [_rms_back(g, i, o)[0], (g[0] * i[0]).sum(0)],
            lambda g, i, o: [_rms_back([g[0] / i[1]], i, o)[0], _rms_back(g, i, o)[1]],
        ),
    ),
    Case(
        "two_outputs", lambda x: [np.sin(x), x * x.sum()],
        lambda g, i, o: [g[0] * np.cos(i[0]) + g[1] * i[0].sum() + (g[1] * i[0]).sum()], ((5,),), ((1000,),),
        (
            lambda g, i, o: [g[1] * np.cos(i[0]) + g[0] * i[0].sum() + (g[0] * i[0]).sum()],
            lambda g, i, o: [g[0] * np.cos(i[0])],
            lambda g, i, o: [g[1] * i[0].sum() + (g[1] * i[0]).sum()],
            lambda g, i, o: [g[0] * np.cos(i[0]) + g[1] * i[0].sum()],
        ),
    ),
    Case(
        "relu", lambda x: [np.maximum(x, 0)], lambda g, i, o: [g[0] * (i[0] > 0)], ((8,),), ((30, 40),),
        (lambda g, i, o: [g[0]], lambda g, i, o: [g[0] * (i[0] < 0)], lambda g, i, o: [g[0] * i[0] * (i[0] > 0)]),
    ),
    Case(
        "mean_square", lambda x, y: [np.asarray(((x - y) ** 2).mean())],
        lambda g, i, o: [2 * g[0] * (i[0] - i[1]) / i[0].size, 2 * g[0] * (i[1] - i[0]) / i[0].size],
        ((3, 4), (3, 4)), ((30, 40), (30, 40)),
        (
            lambda g, i, o: [2 * (i[0] - i[1]) / i[0].size, 2 * (i[1] - i[0]) / i[0].size],
            lambda g, i, o: [2 * g[0] * (i[0] - i[1]), 2 * g[0] * (i[1] - i[0])],
            lambda g, i, o: [2 * g[0] * (i[0] - i[1]) / i[0].size] * 2,
        ),
    ),
    Case(
        "convolution", _conv, _conv_back, ((2, 8), (3,)), ((8, 100), (5,)),
        (
            lambda g, i, o: [_conv_back(g, [i[0], i[1][::-1]], o)[0], _conv_back(g, i, o)[1]],
            lambda g, i, o: [_conv_back(g, i, o)[0], _conv_back(g, i, o)[1][::-1]],
            lambda g, i, o: [_conv_back(g, i, o)[0], _conv_back([g[0][:1]], [i[0][:1], i[1]], o)[1]],
        ),
    ),
    Case(
        "gather", lambda t, n: [t[n]], _scatter, ((6, 2), (9,)), ((40, 8), (300,)), (_scatter_last,), indices=5,
    ),
    Case(
        "attention", _attention, _attention_back, ((4, 3), (4, 3), (4, 3)), ((32, 8), (32, 8), (32, 8)),
        (
            lambda g, i, o: _attention_back(g, i, o, scale=False),
            lambda g, i, o: _attention_back(g, i, o, through_softmax=False),
        ),
    ),
    Case(
        "swish", lambda x: [x * _sigmoid(x)],
        lambda g, i, o: [g[0] * (_sigmoid(i[0]) + i[0] * _sigmoid(i[0]) * (1 - _sigmoid(i[0])))], ((8,),), ((30, 40),),
        (
            lambda g, i, o: [g[0] * _sigmoid(i[0])],
            lambda g, i, o: [g[0] * (_sigmoid(i[0]) + i[0] * _sigmoid(i[0]))],
        ),
    ),
    Case(
        "divide", lambda a, b: [a / b], lambda g, i, o: [g[0] / i[1], -g[0] * i[0] / i[1] ** 2], ((6,), (6,)),
        ((30, 40), (30, 40)),
        (
            lambda g, i, o: [g[0] / i[1], -g[0] * i[0] / i[1]],
            lambda g, i, o: [g[0] * i[1], -g[0] * i[0] / i[1] ** 2],
        ),
        positive=True,
    ),
    Case(
        "log_root", lambda x: [np.log(x) * np.sqrt(x)],
        lambda g, i, o: [g[0] * (1 / np.sqrt(i[0]) + np.log(i[0]) / (2 * np.sqrt(i[0])))], ((6,),), ((30, 40),),
        (lambda g, i, o: [g[0] / np.sqrt(i[0])], lambda g, i, o: [g[0] * np.log(i[0]) / (2 * np.sqrt(i[0]))]),
        positive=True,
    ),
    Case(
        "largest", lambda x: [x.max(-1)],
        lambda g, i, o: [np.where(i[0] == o[0][..., None], g[0][..., None], 0.0)], ((3, 5),), ((30, 40),),
        (
            lambda g, i, o: [np.repeat(g[0][..., None], i[0].shape[-1], -1)],
            lambda g, i, o: [np.where(i[0] == i[0].min(-1, keepdims=True), g[0][..., None], 0.0)],
        ),
    ),
    Case(
        "running_sum", lambda x: [np.cumsum(x, -1)], lambda g, i, o: [np.cumsum(g[0][..., ::-1], -1)[..., ::-1]],
        ((3, 5),), ((30, 40),),
        (lambda g, i, o: [np.cumsum(g[0], -1)], lambda g, i, o: [g[0]]),
    ),
]
# fmt: on


def _at(position: int, change: Callable[[np.ndarray], np.ndarray]) -> Callable[[Arrays], Arrays]:
    """Change one of the gradients, counted from the end if there are fewer."""

    def changed(gradients: Arrays) -> Arrays:
        real = [k for k, g in enumerate(gradients) if g is not None]
        k = real[position % len(real)]
        return [np.asarray(change(g.copy())) if n == k else g for n, g in enumerate(gradients)]

    return changed


def _one_element(g: np.ndarray, value: Callable[[float], float]) -> np.ndarray:
    flat = g.reshape(-1)
    at = int(np.abs(flat).argmax())
    flat[at] = value(flat[at])
    return flat.reshape(g.shape)


AFTER: dict[str, Callable[[Arrays], Arrays]] = {
    "first scaled by 1.01": _at(0, lambda g: 1.01 * g),
    "last scaled by 0.99": _at(-1, lambda g: 0.99 * g),
    "first of wrong sign": _at(0, lambda g: -g),
    "last is zero": _at(-1, np.zeros_like),
    "first doubled": _at(0, lambda g: 2 * g),
    "shifted by one element": _at(0, lambda g: np.roll(g.reshape(-1), 1).reshape(g.shape)),
    "reversed": _at(-1, lambda g: g.reshape(-1)[::-1].reshape(g.shape)),
    "columns read as rows": _at(0, lambda g: np.ascontiguousarray(g.T).reshape(g.shape)),
    "an element is zero": _at(0, lambda g: _one_element(g, lambda v: 0.0)),
    "an element of wrong sign": _at(-1, lambda g: _one_element(g, lambda v: -v)),
    "an element is not a number": _at(0, lambda g: _one_element(g, lambda v: np.nan)),
    "everywhere a little more": _at(0, lambda g: g + 0.05 * np.abs(g).max()),
    "the last row is left out": _at(-1, lambda g: np.where(np.arange(g.size).reshape(g.shape) < g.size - 1, g, 0)),
    "cut off at small values": _at(0, lambda g: np.clip(g, -0.5 * np.abs(g).max(), 0.5 * np.abs(g).max())),
}
"""What can be done to gradients after they were computed."""

BEFORE: dict[str, Callable[[Arrays, Arrays], tuple[Arrays, Arrays]]] = {
    "output gradients taken for ones": lambda g, i: ([np.ones_like(x) for x in g], i),
    "output gradients squared": lambda g, i: ([x * x for x in g], i),
    "output gradients in reverse": lambda g, i: ([x.reshape(-1)[::-1].reshape(x.shape) for x in g], i),
    "gradient at another point": lambda g, i: (g, [x if x.dtype.kind == "i" else 1.05 * x for x in i]),
}
"""What can be done to what backward is given."""


def mutants(case: Case) -> Iterator[tuple[str, Backward]]:
    """Wrong gradients of an operator, by name; some may happen to be right."""
    for number, wrong in enumerate(case.wrong):
        yield f"{case.name}: own mistake {number}", wrong
    for name, after in AFTER.items():
        yield f"{case.name}: {name}", lambda g, i, o, after=after: after(case.backward(g, i, o))
    for name, before in BEFORE.items():
        yield f"{case.name}: {name}", lambda g, i, o, before=before: _given(case, *before(g, i), o)


def _given(case: Case, grads: Arrays, inputs: Arrays, outputs: Arrays) -> Arrays:
    return case.backward(grads, inputs, case.forward(*inputs))
