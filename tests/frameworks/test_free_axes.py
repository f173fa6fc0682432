"""Axes beyond the batch that stay free in an imported model, in every framework that has objects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deep500.errors import InputError, NetworkError
from deep500.networks import as_network
from tests.conftest import load_backend
from tests.tolerances import as_numpy, assert_close

AXES = {"input": {1: "length"}}
WIDTH = 4


def torch_attention() -> tuple[Any, Any]:
    import torch

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.places = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Parameter(torch.randn(9, WIDTH))

        def forward(self, x: Any) -> Any:
            batch, length, width = x.shape
            q, k, v = (self.qkv(x) + self.places[:length].repeat(1, 3)).view(batch, length, 3, width).unbind(2)
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).flatten(1)

    torch.manual_seed(0)
    module = Attention().double()
    return module, lambda x: module(torch.from_numpy(x)).detach().numpy()


def torch_by_export() -> tuple[Any, Any]:
    """A module whose loop a trace would unroll, so that only torch.export has it."""
    import torch

    class Counted(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            places = torch.arange(len(x[0]), dtype=x.dtype)  # len() is a number to a tracer
            return torch.tanh(self.layer(x)) * places[:, None]

    torch.manual_seed(0)
    module = Counted().double()
    return module, lambda x: module(torch.from_numpy(x)).detach().numpy()


def keras_convolution() -> tuple[Any, Any]:
    import keras

    keras.utils.set_random_seed(0)
    layers = [keras.Input((None, WIDTH), dtype="float64"), keras.layers.Conv1D(5, 3, padding="same", dtype="float64")]
    model = keras.Sequential([*layers, keras.layers.GlobalAveragePooling1D(dtype="float64")])
    return model, lambda x: np.asarray(model(x))


def tensorflow_function() -> tuple[Any, Any]:
    import tensorflow as tf

    weight = tf.Variable(np.random.default_rng(0).normal(size=(WIDTH, 3)), name="weight")
    function = tf.function(lambda x: tf.reduce_max(tf.tanh(tf.einsum("nlw,wo->nlo", x, weight)), 1), autograph=False)
    return function, lambda x: function(x).numpy()


def jax_function() -> tuple[Any, Any]:
    import jax.numpy as jnp

    parameters = {"w": np.random.default_rng(0).normal(size=(WIDTH, 3))}
    return (lambda p, x: jnp.tanh(x @ p["w"]).mean(1), parameters), lambda x: np.tanh(x @ parameters["w"]).mean(1)


MODELS = {
    "attention": ("pytorch", torch_attention),
    "torch.export": ("pytorch", torch_by_export),
    "keras": ("tensorflow", keras_convolution),
    "tf.function": ("tensorflow", tensorflow_function),
    "jax": ("jax", jax_function),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.slow
def test_a_free_axis_takes_every_length(name: str) -> None:
    framework, make = MODELS[name]
    load_backend(framework)
    model, run = make()
    generator = np.random.default_rng(1)
    network = as_network(model, generator.normal(size=(1, 5, WIDTH)), dynamic_axes=AXES)
    assert network.inputs["input"].shape == ("N", "length", WIDTH)
    (output,) = network.outputs
    for backend in ("reference", framework):
        executor = load_backend(backend).from_model(network)
        for length in (2, 8):
            x = generator.normal(size=(3, length, WIDTH))
            assert_close(as_numpy(executor.inference({"input": x})[output]), run(x), "forward")
    fixed = as_network(model, generator.normal(size=(1, 5, WIDTH)))
    assert fixed.inputs["input"].shape == ("N", 5, WIDTH)


@pytest.mark.backend("pytorch")
def test_axes_that_are_not_free_are_named() -> None:
    import torch

    class Fixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(20, 3)

        def forward(self, x: Any) -> Any:
            return self.head(x.flatten(1))

    x = np.ones((2, 5, 4), "float32")
    with pytest.raises(NetworkError, match=r"dynamic_axes length, and no other size that the model itself takes"):
        as_network(Fixed(), x, dynamic_axes=AXES)
    with pytest.raises(InputError, match="got dynamic_axes of 'x'; expected names of inputs: input"):
        as_network(Fixed(), x, dynamic_axes={"x": {1: "length"}})
    with pytest.raises(InputError, match="got dynamic_axes with axis 3 of 'input'"):
        as_network(Fixed(), x, dynamic_axes={"input": [3]})
    with pytest.raises(InputError, match="got dynamic_axes with 's' for sizes 5 and 4; expected two names"):
        as_network(Fixed(), x, dynamic_axes={"input": {1: "s", 2: "s"}})


@pytest.mark.backend("pytorch")
def test_a_trace_that_holds_the_length_is_no_network() -> None:
    """Neither route has a branch on the length: the check at a second one finds it."""
    import torch

    class Branch(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            y = self.head(x)
            return y * 2 if x.shape[1] > 5 else y

    with pytest.raises(NetworkError, match="on 3 samples, length 6; expected the model's own output"):
        as_network(Branch(), np.ones((2, 5, 4), "float32"), dynamic_axes=AXES)
