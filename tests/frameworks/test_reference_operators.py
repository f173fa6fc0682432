"""Kernels of the reference backend against ONNX's own node tests and against PyTorch's functions.

All inputs are handed over read-only, so a kernel that writes into them fails.
"""

from __future__ import annotations

import inspect
import warnings
from collections import defaultdict
from typing import Any

import numpy as np
import onnx
import pytest

from deep500.compare.conformance.suite import loosened
from deep500.errors import InputError
from deep500.frameworks.reference import from_onnx
from deep500.frameworks.reference.operators import OPS, Random, bind, find
from deep500.networks.execution.fallback import make_kernel
from deep500.networks.node import Node, find_schema
from tests.tolerances import assert_close

RNG = np.random.default_rng(5)
OWN = sorted(name for domain, name in OPS if not domain)
RANDOM = "draws random numbers: ONNX's expected values are those of its own generator"
EXCEPTIONS = {
    "test_bernoulli": RANDOM,
    "test_bernoulli_double": RANDOM,
    "test_bernoulli_seed": RANDOM,
    "test_loop16_seq_none": "compares objects, passes nowhere",
    "test_scan_sum": "opset 8, whose batch axis later ones lack",
}


def read_only(value: Any) -> Any:
    if isinstance(value, list):
        return [read_only(v) for v in value]
    if value is None:
        return None
    array = onnx.numpy_helper.to_array(value).copy() if isinstance(value, onnx.TensorProto) else np.array(value)
    array.flags.writeable = False
    return array


# -- ONNX's own tests -------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def onnx_cases() -> dict[str, list[Any]]:
    """ONNX's node tests by operator: those that consist of one node."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they divide by zero on purpose
        every = collect_testcases(None)
    cases = defaultdict(list)
    for case in every:
        if len(case.model.graph.node) == 1 and case.name not in EXCEPTIONS:
            cases[case.model.graph.node[0].op_type].append(case)
    assert sum(map(len, cases.values())) > 1000
    return cases


def check_case(case: Any) -> None:
    executor = from_onnx(case.model)
    names = [v.name for v in case.model.graph.input]
    for inputs, outputs in case.data_sets:
        got = executor.inference({n: read_only(v) for n, v in zip(names, inputs, strict=True)})
        for name, want in zip(executor.network.outputs, outputs, strict=True):
            pairs = zip(got[name], want, strict=True) if isinstance(want, list) else [(got[name], want)]
            for g, w in pairs:
                check_value(np.asarray(g), np.asarray(read_only(w)), case)


def check_value(got: np.ndarray, want: np.ndarray, case: Any) -> None:
    assert got.dtype == want.dtype or want.dtype.kind in "OSU", case.name
    if want.dtype.kind in "OSU":
        np.testing.assert_array_equal(got.astype(object), want.astype(object), err_msg=case.name)
        return
    if want.dtype.kind == "V":  # bfloat16 and narrower
        got, want = got.astype(np.float32), want.astype(np.float32)
    atol = loosened(case.name) or case.atol  # of sums below round-off, as in the conformance table
    np.testing.assert_allclose(got, want, case.rtol, atol, err_msg=case.name)


@pytest.mark.parametrize("op_type", [name for name in OWN if name not in ("RandomNormal", "RandomUniform")])
def test_onnx_node_cases(op_type: str, onnx_cases: dict[str, list[Any]]) -> None:
    for case in onnx_cases[op_type]:
        check_case(case)


@pytest.mark.parametrize("op_type", ["RoiAlign", "Attention", "GroupNormalization", "Unique", "SequenceMap"])
def test_onnx_node_cases_of_the_fallback(op_type: str, onnx_cases: dict[str, list[Any]]) -> None:
    assert ("", op_type) not in OPS and onnx_cases[op_type]
    for case in onnx_cases[op_type][:8]:
        check_case(case)


@pytest.mark.parametrize("op_type", OWN)
def test_kernels_take_every_attribute_of_their_operator(op_type: str) -> None:
    entry, schema = OPS["", op_type], find_schema(op_type)
    function = entry.function
    assert schema is not None
    if isinstance(function, np.ufunc):
        assert not schema.attributes
        return
    parameters = inspect.signature(function).parameters.values()
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        refused = {"Dropout": {"seed"}, "Bernoulli": {"seed"}}.get(op_type, set())  # those nodes are the fallback's
        assert set(schema.attributes) - refused <= entry.attributes


# -- PyTorch's functions ----------------------------------------------------------------------------------------------
def run(op_type: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
    """One node, without a network around it."""
    names = tuple("" if v is None else f"x{i}" for i, v in enumerate(inputs))
    node = Node(op_type, names, tuple(f"y{i}" for i in range(outputs)), "node", "", attributes)
    entry = find(node)
    assert entry is not None, f"{op_type} has no kernel of its own"
    result = bind(entry, node, Random(0), lambda graph: graph)(*map(read_only, inputs))
    return (
        [np.asarray(r) for r in result] if outputs > 1 else np.asarray(result[0] if type(result) is tuple else result)
    )


CONVOLUTIONS = [  # x, w, strides, pads (both ends), dilations, group
    ((2, 3, 9), (4, 3, 3), 1, 1, 1, 1),
    ((2, 4, 8, 7), (6, 4, 3, 3), 1, 1, 1, 1),
    ((2, 4, 8, 7), (6, 2, 3, 3), 2, 1, 1, 2),
    ((2, 4, 9, 9), (4, 1, 3, 3), 1, 2, 2, 4),
    ((2, 4, 9, 9), (8, 1, 5, 5), 3, 2, 1, 4),
    ((2, 4, 6, 6), (3, 4, 1, 1), 2, 0, 1, 1),
    ((3, 4, 9, 8), (5, 4, 8, 8), 1, 0, 1, 1),  # more kernel than output: the other way to multiply
    ((3, 4, 12, 12), (6, 2, 5, 5), 1, 0, 2, 2),
    ((2, 2, 5, 6, 4), (3, 2, 3, 3, 3), 1, 1, 1, 1),
    ((2, 4, 5, 6, 5), (4, 2, 2, 3, 2), 2, 1, 1, 2),
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_conv_is_pytorchs(case: Any, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    x_shape, w_shape, stride, pad, dilation, group = case
    rank = len(x_shape) - 2
    x, w, b = (RNG.standard_normal(s).astype(dtype) for s in (x_shape, w_shape, w_shape[:1]))
    function = [torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d][rank - 1]
    want = function(*map(torch.from_numpy, (x, w, b)), stride, pad, dilation, group)
    got = run(
        "Conv", x, w, b, strides=(stride,) * rank, pads=(pad,) * 2 * rank, group=group, dilations=(dilation,) * rank
    )
    assert_close(got, want)
    assert got.dtype == dtype


TRANSPOSED = [  # x, w, strides, pads, dilations, group, output_padding
    ((2, 3, 5), (3, 4, 3), 2, 1, 1, 1, 1),
    ((2, 4, 5, 6), (4, 3, 3, 3), 1, 1, 1, 1, 0),
    ((2, 4, 5, 6), (4, 3, 3, 3), 2, 1, 1, 2, 1),  # ONNX's evaluator refuses these groups
    ((2, 4, 5, 6), (4, 1, 3, 2), 3, 0, 2, 4, 2),
    ((2, 4, 3, 4, 3), (4, 2, 2, 3, 2), 2, 1, 1, 2, 1),
]


@pytest.mark.parametrize("case", TRANSPOSED, ids=str)
def test_conv_transpose_is_pytorchs(case: Any) -> None:
    torch = pytest.importorskip("torch")
    x_shape, w_shape, stride, pad, dilation, group, extra = case
    rank, f = len(x_shape) - 2, torch.nn.functional
    x, w, b = (RNG.standard_normal(s) for s in (x_shape, w_shape, (w_shape[1] * group,)))
    function = [f.conv_transpose1d, f.conv_transpose2d, f.conv_transpose3d][rank - 1]
    want = function(*map(torch.from_numpy, (x, w, b)), stride, pad, extra, group, dilation)
    got = run(
        "ConvTranspose",
        x,
        w,
        b,
        strides=(stride,) * rank,
        pads=(pad,) * 2 * rank,
        group=group,
        dilations=(dilation,) * rank,
        output_padding=(extra,) * rank,
    )
    assert_close(got, want)


POOLS = [  # shape, kernel, stride, pad, dilation, ceil
    ((2, 3, 8, 8), 2, 2, 0, 1, 0),
    ((2, 3, 8, 9), 3, 1, 1, 1, 0),  # overlapping, stride 1: where ONNX's evaluator has wrong indices
    ((2, 3, 9, 9), 3, 2, 1, 2, 0),
    ((2, 3, 8, 7), 3, 2, 1, 1, 1),
    ((2, 3, 11), 4, 3, 2, 1, 1),
    ((2, 2, 6, 5, 7), 2, 2, 0, 1, 1),
]


@pytest.mark.parametrize("case", POOLS, ids=str)
def test_max_pool_and_its_indices_are_pytorchs(case: Any) -> None:
    torch = pytest.importorskip("torch")
    shape, kernel, stride, pad, dilation, ceil = case
    rank, x = len(shape) - 2, RNG.standard_normal(shape)
    f = torch.nn.functional
    function = [f.max_pool1d, f.max_pool2d, f.max_pool3d][rank - 1]
    want, plane = function(torch.from_numpy(x), kernel, stride, pad, dilation, bool(ceil), return_indices=True)
    options = dict(
        kernel_shape=(kernel,) * rank,
        strides=(stride,) * rank,
        pads=(pad,) * 2 * rank,
        dilations=(dilation,) * rank,
        ceil_mode=ceil,
    )
    got, indices = run("MaxPool", x, outputs=2, **options)
    assert_close(got, want, "exact")
    assert_close(run("MaxPool", x, **options), want, "exact")
    first = np.arange(shape[0] * shape[1]).reshape(*shape[:2], *(1,) * rank) * int(np.prod(shape[2:]))
    np.testing.assert_array_equal(indices, plane.numpy() + first)
    np.testing.assert_array_equal(x.ravel()[indices], got)


@pytest.mark.parametrize("case", [c for c in POOLS if c[4] == 1], ids=str)
@pytest.mark.parametrize("include", [0, 1])
def test_average_pool_is_pytorchs(case: Any, include: int) -> None:
    torch = pytest.importorskip("torch")
    shape, kernel, stride, pad, _, ceil = case
    rank, x = len(shape) - 2, RNG.standard_normal(shape)
    f = torch.nn.functional
    function = [f.avg_pool1d, f.avg_pool2d, f.avg_pool3d][rank - 1]
    want = function(torch.from_numpy(x), kernel, stride, pad, bool(ceil), bool(include))
    got = run(
        "AveragePool",
        x,
        kernel_shape=(kernel,) * rank,
        strides=(stride,) * rank,
        pads=(pad,) * 2 * rank,
        ceil_mode=ceil,
        count_include_pad=include,
    )
    assert_close(got, want)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [None, -100, 2])
@pytest.mark.parametrize("shape", [(6, 4), (3, 4, 5, 2)], ids=str)
def test_losses_are_pytorchs(reduction: str, weighted: bool, ignored: int | None, shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    x, labels = RNG.standard_normal(shape) * 4, RNG.integers(0, 4, (shape[0], *shape[2:]))
    labels.flat[0] = labels.flat[0] if ignored is None else ignored
    weight = RNG.uniform(0.5, 2, 4) if weighted else None
    w = None if weight is None else torch.from_numpy(weight)
    tx, ty = torch.from_numpy(x), torch.from_numpy(labels)
    index = -1 if ignored is None else ignored
    options = {"reduction": reduction} | ({} if ignored is None else {"ignore_index": ignored})
    want = torch.nn.functional.cross_entropy(tx, ty, w, ignore_index=index, reduction=reduction)
    loss, log = run("SoftmaxCrossEntropyLoss", x, labels, weight, outputs=2, **options)
    assert_close(loss, want)
    assert_close(log, torch.log_softmax(tx, 1))
    assert_close(run("NegativeLogLikelihoodLoss", log, labels, weight, **options), want)


@pytest.mark.parametrize("label", [-1, 4])
def test_label_out_of_range_is_an_error(label: int) -> None:
    with pytest.raises(InputError, match=f"got class label {label}; expected 0 to 3"):
        run("SoftmaxCrossEntropyLoss", np.zeros((2, 4), np.float32), np.array([0, label]))


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_lstm_is_pytorchs(direction: str) -> None:
    torch = pytest.importorskip("torch")
    both = direction == "bidirectional"
    module = torch.nn.LSTM(5, 7, bidirectional=both, dtype=torch.float64)
    x = RNG.standard_normal((6, 3, 5))
    order = [0, 3, 1, 2]  # i f g o (PyTorch) to i o f g (ONNX)

    def weights(name: str) -> np.ndarray:
        both_ways = [name, f"{name}_reverse"][: 1 + both]
        stacked = np.stack([getattr(module, n).detach().numpy() for n in both_ways])
        return stacked.reshape(len(both_ways), 4, 7, -1)[:, order].reshape(stacked.shape)

    bias = np.concatenate([weights("bias_ih_l0"), weights("bias_hh_l0")], 1)
    start = [RNG.standard_normal((1 + both, 3, 7)) for _ in range(2)]
    got = run(
        "LSTM",
        x,
        weights("weight_ih_l0"),
        weights("weight_hh_l0"),
        bias,
        None,
        *start,
        outputs=3,
        hidden_size=7,
        direction=direction,
    )
    turned = x[::-1].copy() if direction == "reverse" else x
    with torch.no_grad():
        y, (h, c) = module(torch.from_numpy(turned), tuple(map(torch.from_numpy, start)))
    y = y.numpy().reshape(6, 3, 1 + both, 7).transpose(0, 2, 1, 3)
    for g, w in zip(got, (y[::-1] if direction == "reverse" else y, h, c), strict=True):
        assert_close(g, w)


@pytest.mark.parametrize(("direction", "layout"), [("forward", 0), ("forward", 1), ("bidirectional", 0)])
def test_lstm_with_peepholes_is_that_of_onnxs_evaluator(direction: str, layout: int) -> None:
    ways = 1 + (direction == "bidirectional")
    x, w, r = RNG.normal(size=(4, 4, 3)), RNG.normal(size=(ways, 20, 3)), RNG.normal(size=(ways, 20, 5))
    b, peepholes = RNG.normal(size=(ways, 40)), RNG.normal(size=(ways, 15))
    inputs = [x, w, r, b, None, None, None, peepholes]
    names = tuple(f"x{i}" if v is not None else "" for i, v in enumerate(inputs))
    options = dict(hidden_size=5, direction=direction, layout=layout)
    want = make_kernel(Node("LSTM", names, ("y", "h"), "node", "", options))(*inputs)
    for g, e in zip(run("LSTM", *inputs, outputs=2, **options), want, strict=True):
        assert_close(g, e)


ELEMENTWISE = [
    ("Gelu", "gelu", {}, {}),
    ("Gelu", "gelu", {"approximate": "tanh"}, {"approximate": "tanh"}),
    ("Sigmoid", "sigmoid", {}, {}),
    ("Softplus", "softplus", {}, {}),
    ("Elu", "elu", {"alpha": 0.5}, {"alpha": 0.5}),
    ("LeakyRelu", "leaky_relu", {"alpha": 0.25}, {"negative_slope": 0.25}),
    ("Softmax", "softmax", {"axis": 1}, {"dim": 1}),
    ("LogSoftmax", "log_softmax", {"axis": -2}, {"dim": -2}),
]


@pytest.mark.parametrize("case", ELEMENTWISE, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_activations_are_pytorchs(case: Any, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    op_type, name, attributes, options = case
    x = np.concatenate([RNG.standard_normal((3, 4, 5)), np.full((3, 4, 1), 90), np.full((3, 4, 1), -90)], -1).astype(
        dtype
    )
    got = run(op_type, x, **attributes)
    assert_close(got, getattr(torch.nn.functional, name)(torch.from_numpy(x), **options))
    assert got.dtype == dtype and np.isfinite(got).all()


@pytest.mark.parametrize("size", [(8, 8), (9, 5), (3, 12)], ids=str)
def test_resize_nearest_is_pytorchs(size: tuple[int, int]) -> None:
    torch = pytest.importorskip("torch")
    x = RNG.standard_normal((2, 3, 4, 6))
    modes = {"nearest": ("asymmetric", "floor"), "nearest-exact": ("half_pixel", "round_prefer_ceil")}
    for mode, (transformation, rounding) in modes.items():
        want = torch.nn.functional.interpolate(torch.from_numpy(x), size, mode=mode)
        got = run(
            "Resize",
            x,
            None,
            None,
            np.array([2, 3, *size]),
            mode="nearest",
            nearest_mode=rounding,
            coordinate_transformation_mode=transformation,
        )
        assert_close(got, want, "exact", err_msg=mode)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scatter_elements_is_pytorchs(reduction: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    names = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}
    for shape, axis in (((20,), 0), ((4, 5), 1), ((4, 5), 0)):
        x = RNG.standard_normal(shape).astype(dtype)
        repeated = RNG.integers(0, shape[axis], shape)
        indices = np.argsort(RNG.random(shape), axis) if reduction == "none" else repeated
        updates = RNG.standard_normal(shape).astype(dtype)
        arguments = (axis, torch.from_numpy(indices), torch.from_numpy(updates))
        tensor = torch.from_numpy(x.copy())
        want = (
            tensor.scatter(*arguments) if reduction == "none" else tensor.scatter_reduce(*arguments, names[reduction])
        )
        got = run("ScatterElements", x, indices, updates, axis=axis, reduction=reduction)
        assert_close(got, want, "forward")


def test_dropout_keeps_the_expected_share_and_scale() -> None:
    x = np.ones((200, 500), np.float32)
    y, mask = run("Dropout", x, np.float32(0.3), np.array(True), outputs=2)
    assert abs(mask.mean() - 0.7) < 0.01  # 100,000 draws: 7 standard deviations
    np.testing.assert_allclose(y, mask / np.float32(0.7), rtol=1e-6)
    np.testing.assert_array_equal(run("Dropout", x, np.float32(0.3)), x)
