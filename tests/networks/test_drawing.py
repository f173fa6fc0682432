"""Initial values that are drawn later are those that a network would have had."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from deep500.errors import InputError, NetworkError
from deep500.frameworks import reference
from deep500.networks import add_loss, create, undrawn
from deep500.networks.drawing import Undrawn, draw, hollow, names_of_undrawn
from deep500.networks.network import Network, Parameter
from deep500.transformations.mixed_precision import mixed_precision


@pytest.mark.parametrize(
    "name", ["mlp", "lenet", "resnet", "transformer", "causal_transformer", "lstm", "actor_critic"]
)
def test_the_bits_are_those_of_the_whole(name):
    options = {"mlp": {"shape": (4,)}, "actor_critic": {"shape": (4,)}, "resnet": {"depth": 8}}.get(name, {})
    whole = create(name, seed=5, **options)
    with undrawn():
        later = create(name, seed=5, **options)
    assert create(name, seed=5, **options) == whole, "undrawn() did not end"
    values = {n: p.value for n, p in later.parameters.items()}
    draw(later, values.__setitem__)
    assert values.keys() == whole.parameters.keys()
    for n, parameter in whole.parameters.items():
        assert values[n].dtype == parameter.value.dtype and np.array_equal(values[n], parameter.value), n


def test_it_survives_copies_casts_and_a_loss_and_nothing_that_needs_values():
    with undrawn():
        later = add_loss(create("mlp", shape=(4,), hidden=(300, 300)))
    copy = mixed_precision(later.copy(), "bf16")
    names = names_of_undrawn(later)
    assert names == names_of_undrawn(copy) == later.trainable()
    assert all(p.value.strides in ((0, 0), (0,)) for p in copy.parameters.values() if p.trainable)
    for use in (later.content_hash, later.to_onnx, lambda: reference.from_model(later)):
        with pytest.raises(InputError, match=r"got parameter 'fc1\.weight', whose initial value is not drawn, for "):
            use()


def test_a_call_that_draws_something_else_a_second_time_is_named():
    numbers = itertools.count()
    later = Undrawn("a call", lambda take: take(f"w{next(numbers)}", np.ones(2, np.float32)), "w0")
    network = Network("odd")
    network.put_parameters({"w0": Parameter(hollow((2,), np.dtype("float32")), undrawn=later)})
    draw(network, lambda name, array: None)
    with pytest.raises(NetworkError, match=r"got no initial value of \['w0'\] from a call"):
        draw(network, lambda name, array: None)
