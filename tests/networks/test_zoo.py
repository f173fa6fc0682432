"""The model zoo against published parameter counts and against PyTorch's own modules with the same weights."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import deep500.networks as d5nt
from deep500.errors import NetworkError
from deep500.frameworks.reference import Executor
from deep500.networks import Network
from tests.tolerances import as_numpy, assert_close

COUNTS = [  # model, arguments, trainable parameters, source
    ("resnet", dict(depth=20), 272_474, "He et al. 2015: 0.27M"),
    ("resnet", dict(depth=20, shortcut="A"), 269_722, "He et al. 2015: 0.27M"),
    ("resnet", dict(depth=32), 466_906, "He et al. 2015: 0.46M"),
    ("resnet", dict(depth=44), 661_338, "He et al. 2015: 0.66M"),
    ("resnet", dict(depth=56), 855_770, "He et al. 2015: 0.85M"),
    ("resnet", dict(depth=110), 1_730_714, "He et al. 2015: 1.7M"),
    ("resnet", dict(depth=110, shortcut="A"), 1_727_962, "He et al. 2015: 1.7M"),
    ("resnet50", dict(classes=1000), 25_557_032, "torchvision's resnet50"),
    ("mixed_resnet", dict(), 2_786_602, "by hand: see test_mixed_resnet_by_hand"),
    (
        "nested_resnet",
        dict(counts=(2, 1, 2)),
        27 * 4 + 2 * (36 * 4 + 8) + 36 * 8 + 2 * (72 * 8 + 16) + 24 + 90,
        "by hand",
    ),
    ("unet", dict(width=2, levels=1), 9 * (3 * 2 + 2 * 2 + 2 * 4 + 4 * 4 + 4 * 2 + 2 * 2) + 32 + 32 + 30, "by hand"),
    ("resnext50", dict(classes=1000), 25_028_904, "torchvision's resnext50_32x4d"),
    ("squeezenet", dict(classes=1000), 1_235_496, "torchvision's squeezenet1_1"),
    ("squeezenet", dict(classes=1000, version="1.0"), 1_248_424, "torchvision's squeezenet1_0"),
    ("inception_v3", dict(classes=1000), 27_161_264 - 3_326_696, "torchvision's inception_v3 without its AuxLogits"),
    ("nasnet_a", dict(classes=1000, cells=4, last_reduction=False), 5_289_978, "Cadene's nasnetamobile, Keras's too"),
    ("repvgg", dict(classes=1000), 9_108_968, "Ding et al. 2021: 9.11M with the branches of training"),
    ("bert", dict(classes=2), 109_482_240 + 2 * 768 + 2, "bert-base-uncased with its pooler, and a classifier"),
    ("wide_resnet", dict(), 36_479_194, "Zagoruyko & Komodakis 2016: 36.5M"),
    ("wide_resnet", dict(depth=16, widen_factor=4), 2_748_890, "Zagoruyko & Komodakis 2016: 2.7M"),
    ("vgg16", dict(), 14_728_266, "the usual CIFAR form: 13 convolutions with bias and batch normalization, one fc"),
    ("vgg16", dict(classes=1000, shape=(3, 224, 224)), 138_357_544, "torchvision's vgg16"),
    ("lenet", dict(shape=(1, 28, 28)), 61_706, "LeNet-5 with full connections between its feature maps"),
    ("lenet", dict(shape=(3, 32, 32)), 62_006, "PyTorch's CIFAR-10 tutorial"),
    ("mlp", dict(shape=(784,), hidden=(500, 100)), 784 * 500 + 500 + 500 * 100 + 100 + 1010, "by hand"),
    ("conv1d", dict(), 13 * 64 * 5 + 2 * 64 * 64 * 5 + 3 * 64 + 65 * 10, "the formula of its docstring"),
    ("conv1d_ctc", dict(classes=11), 13 * 64 * 7 + 3 * 64 * 64 * 7 + 4 * 64 + 65 * 11 + 2 * 4 * 64, "its docstring"),
    ("bigru", dict(), 2 * (3 * 64 * (13 + 64) + 6 * 64) + 129 * 10, "nn.GRU(13, 64, bidirectional=True) and nn.Linear"),
    ("simple_cnn", dict(), 16 * 9 + 16 + 32 * 16 * 9 + 32 + 32 * 49 * 64 + 64 + 650, "by hand"),
]

SMALL: list[tuple[str, dict[str, Any]]] = [  # every model, cheap to run
    ("mlp", dict(shape=(1, 8, 8), hidden=(32,))),
    ("mlp", dict(shape=(7,), hidden=())),
    ("lenet", dict(shape=(1, 8, 8))),
    ("lenet", dict(shape=(1, 28, 28))),
    ("lenet", dict()),
    ("simple_cnn", dict()),
    ("resnet", dict(depth=8)),
    ("resnet", dict(depth=14, shortcut="A", shape=(1, 9, 11))),
    ("resnet50", dict(shape=(3, 32, 32))),
    ("mixed_resnet", dict(width=4, blocks=(1, 2, 1, 2), shape=(3, 16, 16))),
    ("nested_resnet", dict(counts=(2, 2, 2), shape=(3, 8, 8))),
    ("unet", dict(width=4, levels=2, shape=(3, 8, 12))),
    ("wide_resnet", dict(depth=10, widen_factor=2)),
    ("vgg16", dict()),
    ("transformer", dict(shape=(12,), vocabulary=50, width=16)),
    ("transformer", dict(shape=(12, 5), width=16, layers=1, dropout=0.1)),
    ("lstm", dict(shape=(9, 5), width=16)),
    ("resnext50", dict(shape=(3, 32, 32), groups=8, blocks=(1, 1))),
    ("squeezenet", dict(shape=(3, 64, 64))),
    ("squeezenet", dict(shape=(1, 64, 72), version="1.0", dropout=0.0)),
    ("inception_v3", dict(shape=(3, 75, 75))),
    ("inception_v3", dict(shape=(3, 75, 75), modules=(1, 0, 1))),
    ("nasnet_a", dict(shape=(3, 45, 52), cells=1, filters=8, groups=2)),
    ("nasnet_a", dict(shape=(3, 32, 32), cells=2, filters=12, groups=1, stem=8, last_reduction=False)),
    ("repvgg", dict(shape=(3, 32, 32), blocks=(2, 1), widths=(8, 16))),
    ("repvgg", dict(shape=(3, 32, 32), blocks=(2, 1), widths=(8, 16), branches=3)),
    ("bert", dict(shape=(12,), vocabulary=50, width=16, heads=4, layers=2)),
    ("bert", dict(shape=(7, 16), width=16, heads=2, layers=1, hidden=20, dropout=0.1)),
    ("attention_block", dict(shape=(7, 16), heads=4, layers=2)),
    ("nasrnn", dict(shape=(3, 6), hidden=9)),
    ("nasrnn", dict(shape=(3, 6), tied=False)),
    ("conv1d", dict(shape=(9, 5), width=16)),
    ("bigru", dict(shape=(9, 5), width=16)),
]
IDS = [f"{name} {options}" for name, options in SMALL]


def count(network: Network) -> int:
    return sum(p.value.size for p in network.parameters.values() if p.trainable)


def sample(network: Network, size: int = 3, seed: int = 0) -> np.ndarray:
    rng, described = np.random.default_rng(seed), network.inputs["input"]
    shape = (size, *described.shape[1:])  # type: ignore[index]
    return rng.integers(0, 50, shape) if described.dtype == "int64" else rng.normal(size=shape).astype(described.dtype)


def logits(network: Network, x: np.ndarray) -> np.ndarray:
    return Executor(network).inference({"input": x})["output"]


@pytest.mark.parametrize("case", COUNTS, ids=lambda c: f"{c[0]} {c[1]}")
def test_parameter_counts_are_the_published_ones(case: Any) -> None:
    name, options, expected, source = case
    assert count(d5nt.create(name, **options)) == expected, source


def test_mixed_resnet_by_hand() -> None:
    """Its weights, block by block: 3x3 of 32; 1x1, 3x3, 1x1 of 32 to 128; 3x3 of 128; 1x1, 3x3, 1x1 of 128 to 512."""

    def bottleneck(before: int, mid: int) -> int:
        return before * mid + 9 * mid * mid + 4 * mid * mid + 2 * (mid + mid + 4 * mid)

    basic = [2 * (9 * n * n + 2 * n) for n in (32, 128)]
    shortcuts = [before * after + 2 * after for before, after in ((32, 128), (128, 128), (128, 512))]
    stem, head = 27 * 32 + 64, 512 * 10 + 10
    blocks = 4 * basic[0] + bottleneck(32, 32) + 4 * bottleneck(128, 32) + 4 * basic[1]
    blocks += bottleneck(128, 128) + 4 * bottleneck(512, 128)
    network = d5nt.create("mixed_resnet")
    assert count(network) == stem + blocks + sum(shortcuts) + head
    described = network.descriptors()
    shapes = [
        described[f"layer{g}.{b}.relu{2 if g in (1, 3) else 3}"].shape for g, b in ((1, 3), (2, 4), (3, 3), (4, 4))
    ]
    assert shapes == [("N", 32, 64, 64), ("N", 128, 32, 32), ("N", 128, 16, 16), ("N", 512, 8, 8)]


ELSEWHERE = {
    "ssd": "tests/tasks/test_detection.py",
    "actor_critic": "tests/tasks/test_control.py",
    "q_network": "tests/tasks/test_control.py",
    "conv1d_ctc": "tests/networks/zoo/test_speech.py",
    "gru_language_model": "tests/text/test_text.py",
    "lstm_language_model": "tests/text/test_text.py",
    "causal_transformer": "tests/text/test_text.py",
    "encoder_decoder": "tests/text/test_text.py",
}
"""Models whose output is not one score per class."""


def test_every_model_is_tested() -> None:
    assert {name for name, _ in SMALL} | set(ELSEWHERE) == set(d5nt.model_names())
    assert all(name in (Path(__file__).parents[2] / file).read_text() for name, file in ELSEWHERE.items())


@pytest.mark.parametrize(("name", "options"), SMALL, ids=IDS)
def test_models_run_and_say_something(name: str, options: dict[str, Any]) -> None:
    network = d5nt.create(name, **options)
    assert list(network.inputs) == ["input"] and network.outputs == ["output"]
    assert network.descriptors()["output"].shape == ("N", 10)
    got = logits(network, sample(network))
    assert got.shape == (3, 10) and got.dtype == np.float32
    assert np.abs(got).max() > 1e-3, "the logits vanish"
    assert np.abs(got - got[0]).max() > 1e-4, "all samples get the same answer"


@pytest.mark.parametrize(("name", "options"), SMALL, ids=IDS)
def test_models_are_valid_onnx_and_functions_of_their_seed(name: str, options: dict[str, Any]) -> None:
    network = d5nt.create(name, seed=1, **options)
    onnx.checker.check_model(network.to_onnx(), full_check=True)
    assert network.content_hash() == d5nt.create(name, seed=1, **options).content_hash()
    other = d5nt.create(name, seed=2, **options)
    assert network.content_hash() != other.content_hash()
    for parameter, value in network.parameters.items():  # what is random is so for every seed
        constant = not value.trainable or np.ptp(value.value) == 0
        assert np.array_equal(value.value, other.parameters[parameter].value) == constant, parameter
        assert value.value.dtype == np.float32 or not value.trainable


def test_the_batch_is_free_or_fixed() -> None:
    assert d5nt.create("mlp").inputs["input"].shape == ("N", 3, 32, 32)
    fixed = d5nt.create("resnet", batch=4, classes=7, depth=8)
    assert fixed.descriptors()["output"].shape == (4, 7)
    assert logits(fixed, sample(fixed, 4)).shape == (4, 7)


MISTAKES = [
    (("resnt",), {}, r"did you mean 'resnet'"),
    (("resnet",), dict(dept=20), r"did you mean 'depth'"),
    (("resnet",), dict(depth=21), r"got resnet depth 21; expected 6n \+ 2"),
    (("wide_resnet",), dict(depth=20), r"expected 6n \+ 4"),
    (("resnet",), dict(shortcut="C"), r"expected 'A' or 'B'"),
    (("mixed_resnet",), dict(blocks=(1, 2, 3)), r"got blocks=\(1, 2, 3\); expected 4 whole numbers"),
    (("mixed_resnet",), dict(blocks=(1, 0, 1, 1)), "expected 4 whole numbers >= 1"),
    (("nested_resnet",), dict(counts=(4, 5)), r"got counts=\(4, 5\); expected 3 whole numbers"),
    (("unet",), dict(shape=(3, 30, 32)), "whose height and width are multiples of 8"),
    (("unet",), dict(levels=0), "got levels=0; expected a whole number >= 1"),
    (("unet",), dict(shape=(32,)), r"got a unet of 3 levels for shape \(32,\)"),
    (("mlp",), dict(batch=0), "got batch 0"),
    (("mlp",), dict(classes=0), "got classes 0"),
    (("mlp",), dict(shape=(3, 0)), "got shape 0"),
    (("lenet",), dict(shape=(5,)), r"layer 'conv1'"),
    (("vgg16",), dict(shape=(3, 8, 8)), r"layer 'pool4': got an image of 1x1"),
    (("vgg16",), dict(shape=(3, 64, 64), dropout=1.0), "dropout rate"),
    (("transformer",), dict(shape=(3, 32, 32)), r"expected \(length,\) or \(length, features\)"),
    (("transformer",), dict(width=30), "30 and 4 heads"),
    (("lstm",), dict(shape=(28,)), r"expected \(length, features\)"),
    (("resnext50",), dict(blocks=()), r"one per stage: give \(3, 4, 6, 3\)"),
    (("resnext50",), dict(groups=0), "got groups=0"),
    (("squeezenet",), dict(version="2"), "expected '1.0' or '1.1'"),
    (("inception_v3",), dict(shape=(3, 64, 64)), r"layer 'mixed7a.branch1_last.conv': got an image of \dx\d; expected"),
    (("inception_v3",), dict(modules=(4, 4, 2)), r"at most \(3, 4, 2\)"),
    (("nasnet_a",), dict(filters=6), "a multiple of 4 filters"),
    (("repvgg",), dict(blocks=(1,)), "as many blocks as widths"),
    (("bert",), dict(shape=(64, 512)), r"expected \(length,\) or \(length, 768\)"),
    (("bert",), dict(shape=(600,)), "at most 512"),
    (("bert",), dict(heads=7), "multiple of the heads"),
    (("attention_block",), dict(shape=(768,)), r"expected \(length, width\)"),
    (("nasrnn",), dict(shape=(5,)), r"expected \(length, features\)"),
    (("nasrnn",), dict(hidden=0), "got hidden=0"),
]


@pytest.mark.parametrize("case", MISTAKES, ids=str)
def test_mistakes_are_errors_that_say_what_to_do(case: Any) -> None:
    arguments, options, message = case
    with pytest.raises(NetworkError, match=message):
        d5nt.create(*arguments, **options)


@pytest.mark.parametrize("name", d5nt.model_names())
def test_no_value_of_an_option_ends_raw(name: str) -> None:
    small = {"bert": dict(width=64, heads=1, layers=1, vocabulary=9), "attention_block": dict(heads=1)}
    for option, default in d5nt.model_options(name).items():
        wrong = [[0.5], {}, float("nan")] + ([] if isinstance(default, float) else [-1, 1.5, 2**62])
        for value in [*wrong, *([] if isinstance(default, str) else [""]), *([] if default is None else [None])]:
            if (option, value) != ("batch_norm", None):  # None: as the paper has it
                with pytest.raises(NetworkError, match=f"got {option}="):
                    d5nt.create(name, **{**small.get(name, {}), option: value})


def test_options_are_listed_with_their_defaults() -> None:
    assert d5nt.model_options("resnet") == {"depth": 20, "shortcut": "B"}
    assert d5nt.model_options("lenet") == {}


# -- initialisation ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["resnet", "wide_resnet", "vgg16"])
def test_convolutions_are_kaiming_normal_by_fan_out(name: str) -> None:
    network = d5nt.create(name, **({"depth": 10, "widen_factor": 4} if name == "wide_resnet" else {}))
    for node in network.nodes:
        weight = network.parameters[node.inputs[1]].value if node.op_type == "Conv" else None
        if weight is not None and weight.size > 5000:
            want = math.sqrt(2 / (weight.shape[0] * weight.shape[2] * weight.shape[3]))
            assert weight.std() == pytest.approx(want, rel=0.05), node.name  # about 5 standard errors at 5000
            assert abs(weight.mean()) < 0.1 * want


@pytest.mark.parametrize("name", ["mlp", "lenet", "simple_cnn"])
def test_the_rest_is_pytorchs_default(name: str) -> None:
    network = d5nt.create(name)
    for key, parameter in network.parameters.items():
        weight = network.parameters[key.replace(".bias", ".weight")].value
        bound = 1 / math.sqrt(np.prod(weight.shape[1:]))
        assert np.abs(parameter.value).max() <= bound, key
        assert parameter.value.size < 80 or np.abs(parameter.value).max() > 0.95 * bound, key


# -- PyTorch's modules ------------------------------------------------------------------------------------------------
def load_into(module: Any, network: Network, prefix: str = "") -> Any:
    """Copy our parameters into a PyTorch module with the same names."""
    import torch

    state = {k: v for k, v in module.state_dict().items() if not k.endswith("num_batches_tracked")}
    values = {k: torch.tensor(network.parameters[prefix + k].value) for k in state}
    missing, unexpected = module.load_state_dict(values, strict=False)
    assert not unexpected and all(k.endswith("num_batches_tracked") for k in missing)
    return module.eval()


def test_resnet20_is_the_hand_written_module() -> None:
    torch = pytest.importorskip("torch")
    from tests.benchmarks.overhead.pytorch import ResNet20

    network = d5nt.to_dtype(d5nt.create("resnet", depth=20, seed=3), "float64")
    module = load_into(ResNet20().double(), network)
    x = sample(network)
    with torch.no_grad():
        assert_close(logits(network, x), module(torch.from_numpy(x)))


@pytest.mark.parametrize("floats", [False, True])
def test_transformer_is_pytorchs_encoder(floats: bool) -> None:
    torch = pytest.importorskip("torch")
    network = d5nt.create("transformer", shape=(7, 5) if floats else (7,), vocabulary=50, width=12, heads=3, hidden=20)
    network = d5nt.to_dtype(network, "float64")
    x = sample(network)
    value = {name: torch.from_numpy(p.value) for name, p in network.parameters.items()}
    tensor, f = torch.from_numpy(x), torch.nn.functional
    if floats:
        h = f.linear(tensor, value["embedding.weight"], value["embedding.bias"])
    else:
        h = f.embedding(tensor, value["embedding.weight"])
    h = h + value["position.weight"]
    form = dict(batch_first=True, norm_first=True, dtype=torch.float64)
    for i in range(2):
        layer = torch.nn.TransformerEncoderLayer(12, 3, 20, 0.0, "gelu", **form)
        h = load_into(layer, network, f"layers.{i}.")(h)
    h = f.layer_norm(h, (12,), value["norm.weight"], value["norm.bias"]).mean(1)
    assert_close(logits(network, x), f.linear(h, value["fc.weight"], value["fc.bias"]).detach())


def test_lstm_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    network = d5nt.to_dtype(d5nt.create("lstm", shape=(6, 5), width=8), "float64")
    value = {name: p.value for name, p in network.parameters.items()}
    bias = value["lstm.bias"].reshape(2, 4, 8)
    np.testing.assert_array_equal(bias[:, 2], [[1.0] * 8, [0.0] * 8])  # the forget gate's
    order = [0, 2, 3, 1]  # i o f c (ONNX) to i f c o (PyTorch)
    module = torch.nn.LSTM(5, 8, batch_first=True, dtype=torch.float64)
    for name in ("weight_ih", "weight_hh"):
        gates = value[f"lstm.{name}"].reshape(4, 8, -1)[order].reshape(32, -1)
        getattr(module, f"{name}_l0").data = torch.from_numpy(gates)
    for which, name in enumerate(("bias_ih_l0", "bias_hh_l0")):
        getattr(module, name).data = torch.from_numpy(bias[which, order].ravel())
    x = sample(network)
    _, (last, _) = module(torch.from_numpy(x))
    want = torch.nn.functional.linear(last[0], *(torch.from_numpy(value[f"fc.{n}"]) for n in ("weight", "bias")))
    assert_close(logits(network, x), want.detach())


# -- precision --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["lenet", "resnet", "transformer", "lstm"])
def test_the_float64_copy_computes_the_same(name: str) -> None:
    network = d5nt.create(name)
    double = d5nt.to_dtype(network, "float64")
    x = sample(network)
    result = logits(double, x if x.dtype == np.int64 else x.astype(np.float64))
    assert result.dtype == np.float64
    assert_close(logits(network, x), result, dtype="float32")
    assert d5nt.to_dtype(double, "float32", source="float64").content_hash() == network.content_hash()


def test_the_float64_copy_has_zeros_in_float64_where_their_dtype_is_left_out() -> None:
    network = Network()
    network.add_input("size", (1,), "int64")
    network.add_node("ConstantOfShape", "size", "zeros")
    network.add_output("zeros")
    assert d5nt.to_dtype(network, "float64").descriptors()["zeros"].dtype == "float64"


def test_the_float64_copy_keeps_what_an_operator_wants_in_float32() -> None:
    network = Network()
    network.add_input("x", (1, 1, 4))
    network.add_parameter("scales", np.array([1, 1, 2], np.float32), trainable=False)
    network.add_node("Resize", ["x", "", "scales"], "y", mode="nearest")
    network.add_node("Cast", "y", "z", to=onnx.TensorProto.FLOAT)
    network.add_output("z")
    double = d5nt.to_dtype(network, "float64")
    assert double.parameters["scales"].value.dtype == np.float32
    assert as_numpy(Executor(double).inference({"x": np.ones((1, 1, 4))})["z"]).dtype == np.float64
