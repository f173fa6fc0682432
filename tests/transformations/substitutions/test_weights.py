"""Weights through a merge: where they went, and checkpoints both ways."""

from __future__ import annotations

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import InputError
from deep500.networks import Network
from deep500.transformations.substitutions import History, merged_weights, original_weights, weight_places
from deep500.transformations.substitutions.graph.importing import import_network
from deep500.transformations.substitutions.optimize import replay_history
from deep500.transformations.substitutions.search.backtracking import State
from tests.transformations.substitutions.samples import acnet, assert_same, branches, optimized


def checkpoint(network: Network, seed: int = 7) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    rng, known = np.random.default_rng(seed), network.parameters
    return {name: rng.uniform(0.5, 1.5, np.shape(p.value)).astype("float32") for name, p in known.items()}


def loaded(network: Network, weights: dict[str, np.ndarray]) -> Network:  # type: ignore[type-arg]
    twin = network.copy()
    for name, value in weights.items():
        twin.set_parameter(name, value)
    return twin


@pytest.mark.parametrize("make", [branches, lambda: acnet(1, 4, 6)])
def test_a_checkpoint_goes_through_the_merge(make: object) -> None:
    network = make()  # type: ignore[operator]
    result = optimized(network)
    weights = checkpoint(network)
    merged = merged_weights(network, result.history, weights)
    assert merged.keys() == result.network.parameters.keys()
    assert_same(loaded(network, weights), loaded(result.network, merged), 1e-4, N=3)
    with pytest.raises(InputError, match="got weights other"):
        merged_weights(network, result.history, {"other": np.ones(1)})


def test_what_lies_side_by_side_comes_back_to_the_bit() -> None:
    network = branches()
    result = optimized(network)
    places = weight_places(network, result.history)
    (name,) = {place.name for (place,) in places.values()}
    order = name.split("+")
    assert sorted(order) == ["w0", "w1", "w2"]
    assert [places[part][0].begin for part in order] == [0, 16, 32]
    weights = checkpoint(network)
    merged = merged_weights(network, result.history, weights)
    back = original_weights(network, result.history, merged)
    assert all(np.array_equal(back[name], weights[name]) for name in weights)
    with pytest.raises(InputError, match="got no weight 'w"):
        original_weights(network, result.history, {})


def test_what_lies_turned_comes_back_to_the_bit() -> None:
    """As a linear layer of PyTorch, exported without folding: alone, and side by side with another."""
    rng, network = np.random.default_rng(0), Network("linear")
    network.add_input("x", (4, 6))
    for name in "qkv":
        network.add_parameter(name, rng.normal(size=(5, 6)).astype("float32"))
        network.add_node("Transpose", [name], [f"{name}.turned"], perm=[1, 0])
        network.add_node("MatMul", ["x", f"{name}.turned"], [f"{name}.product"])
        network.add_output(f"{name}.product")
    for result in (optimized(network), optimized(network, budget=0)):
        weights = checkpoint(network)
        merged = merged_weights(network, result.history, weights)
        back = original_weights(network, result.history, merged)
        assert all(np.array_equal(back[name], weights[name]) for name in "qkv")
    places = weight_places(network, optimized(network).history)
    assert {place.axes for (place,) in places.values()} == {(1, 0)}
    assert len({place.name for (place,) in places.values()}) == 1, "they were merged"


def test_what_was_computed_with_has_no_way_back_and_says_so() -> None:
    network = acnet(1, 4, 6)
    result = optimized(network)
    (place,) = weight_places(network, result.history)["b0.conv1.weight"]
    assert place.mixed and place.name == "b0.conv0+conv1+conv2+conv3.weight", place
    assert all(place.mixed for place in weight_places(network, result.history)["b0.norm0.variance"])
    merged = {name: np.asarray(p.value) for name, p in result.network.parameters.items()}
    with pytest.raises(InputError, match="training=True"):
        original_weights(network, result.history, merged)


def test_in_training_all_stay_where_they_are_and_train_to_the_same() -> None:
    network = branches()
    network.add_node("ReduceMean", ["y"], ["loss"], keepdims=0)
    network.add_output("loss")
    result = optimized(network, training=True)
    assert len(result.network.nodes) != len(network.nodes), "something was merged"
    assert all(place.name == name for name, (place,) in weight_places(network, result.history).items())
    assert result.equivalence is not None and result.equivalence.gradients is not None
    assert result.equivalence.gradients < 1e-10
    trained = []
    for subject in (network, result.network):
        executor = d5.load_backend("reference").from_model(subject)
        optimizer = d5.optimizers.GradientDescent(executor, lr=0.1)
        for seed in range(3):
            optimizer.step({"x": np.random.default_rng(seed).normal(size=(4, 16)).astype("float32")})
        trained.append(executor.network.fetch_tensors(["w0", "w1", "w2"]))
    for first, second in zip(*trained, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-5, atol=1e-6)


def test_numbers_of_the_structure_come_back_as_they_are() -> None:
    """Targets of reshapes and sizes of parts are read while a network is rewritten; they are no weights."""
    rng, network = np.random.default_rng(0), Network("heads")
    network.add_input("x", ("N", 6, 8))
    for name, value in (("heads", [0, 6, 2, 4]), ("parts", [2, 4])):
        network.add_parameter(name, np.array(value), trainable=False)
    network.add_parameter("weight", rng.normal(size=(8, 8)).astype("float32"))
    network.add_parameter("other", rng.normal(size=(8, 8)).astype("float32"))
    for name in ("weight", "other"):
        network.add_node("MatMul", ["x", name], [f"{name}.product"])
        network.add_node("Reshape", [f"{name}.product", "heads"], [f"{name}.heads"])
        network.add_output(f"{name}.heads")
    network.add_node("Split", ["x", "parts"], ["a", "b"], axis=1)
    network.add_output("b")
    imported = import_network(network)
    history = History.from_search(imported, State(imported.graph, 0.0))  # written anew, with nothing merged
    weights = {name: parameter.value for name, parameter in replay_history(network, history).parameters.items()}
    back = original_weights(network, history, weights)
    assert "parts" not in weights
    assert all(np.array_equal(back[name], parameter.value) for name, parameter in network.parameters.items())
