"""Counted operations against PyTorch's own counter, which sees the products alone, and against counts by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deep500.networks import Network, add_loss, create
from deep500.networks.flops import FORMULAS, count_flops, flop_count

PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
NETWORKS = [  # (network, arguments, how much more the emitted gradient may compute than PyTorch's)
    ("resnet", {"depth": 20}, 0.007),  # strided convolutions: one row more, cut off
    ("lenet", {}, 0.003),
    ("transformer", {}, 0.001),
    ("vgg16", {}, 0.001),
]


def biases(network: Network, batch: int) -> int:
    """Additions of biases, which PyTorch's counter leaves out."""
    shapes = network.descriptors()
    sizes = [shapes[n.outputs[0]].shape or () for n in network.nodes if n.op_type in PRODUCTS and len(n.inputs) == 3]
    return sum(int(np.prod([batch if isinstance(s, str) else s for s in shape])) for shape in sizes)


def products(count: Any) -> int:
    return sum(count.operators.get(name, 0) for name in PRODUCTS)


@pytest.mark.backend("pytorch")
@pytest.mark.parametrize(("name", "arguments", "more"), NETWORKS)
def test_products_are_those_that_pytorch_counts(name: str, arguments: dict[str, Any], more: float) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    import deep500.frameworks.pytorch as d5fw

    network = add_loss(create(name, **arguments))
    executor, rng = d5fw.from_model(network, recognise=False), np.random.default_rng(0)
    inputs = {
        key: rng.integers(0, 10, size).astype("int64") if "int" in str(d.dtype) else rng.random(size, np.float32)
        for key, d in network.inputs.items()
        for size in [tuple(2 if isinstance(s, str) else s for s in d.shape or ())]
    }
    with FlopCounterMode(display=False) as forward:
        executor.inference(inputs)
    with FlopCounterMode(display=False) as step:
        executor.inference_and_backprop(inputs)
    counted, whole = flop_count(network, 2), flop_count(network, 2, "loss")
    assert not counted.unknown and not whole.unknown
    assert products(counted) - biases(network, 2) == forward.get_total_flops()
    assert 0 <= products(whole) - biases(network, 2) - step.get_total_flops() <= more * step.get_total_flops()


def attention(shapes: dict[str, tuple[int, ...]], outputs: int = 1, **attributes: Any) -> int | None:
    net = Network()
    for name, shape in shapes.items():
        net.add_input(name, shape)
    net.add_node("Attention", list(shapes), ["y", "k2", "v2"][:outputs], name="it", **attributes)
    return count_flops(net)["it"]


def test_attention_by_hand() -> None:
    flat = {"q": (2, 5, 12), "k": (2, 7, 12), "v": (2, 7, 6)}
    split = {"q": (2, 3, 5, 4), "k": (2, 3, 7, 4), "v": (2, 3, 7, 2)}
    want = 2 * 3 * 5 * 7 * (2 * 4 + 2 * 2 + 6)
    assert attention(flat, q_num_heads=3, kv_num_heads=3) == attention(split) == want
    assert attention({**split, "mask": (5, 7)}) == want + 2 * 3 * 5 * 7
    past = {**split, "mask": (5, 10), "past_k": (2, 3, 3, 4), "past_v": (2, 3, 3, 2)}
    assert attention(past, outputs=3) == 2 * 3 * 5 * 10 * (2 * 4 + 2 * 2 + 6 + 1)


def test_what_is_unknown_is_named_and_leaves_no_total() -> None:
    net = Network()
    net.add_input("x", ("N", 3))
    net.add_node("Relu", "x", "a", name="known")
    net.add_node("Foo", "a", "b", domain="mine", name="own")
    net.add_output("a")
    count = net.flops(batch=4)
    assert count.unknown == ("own (Foo)",) and count.total is None
    assert count.known == 12 and count.operators == {"Relu": 12}


def test_moving_data_is_nothing_even_where_shapes_are_unknown() -> None:
    net = Network()
    net.add_input("x", ("N", 3))
    net.add_input("where", ("K",), "int64")
    net.add_node("Reshape", ["x", "where"], ["y"], name="reshape")
    net.add_output("y")
    assert net.flops().total == 0 and "Reshape" in FORMULAS
