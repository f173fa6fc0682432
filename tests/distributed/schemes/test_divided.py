"""`DividedNetwork` against serial training: five backends, one to four ranks, states, batches of other sizes, norms."""

from __future__ import annotations

import hashlib
import tracemalloc
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500.distributed import Threads
from deep500.distributed.rank_runs import is_collective, phases
from deep500.distributed.schemes import DividedNetwork
from deep500.errors import BudgetError, CommunicationError, InputError, PlanError
from deep500.networks import Network, add_loss, create
from deep500.networks.dtype import to_dtype
from deep500.networks.node import Node
from deep500.operators.registry import DOMAIN
from deep500.training.clipping import ClipGradientNorm
from deep500.training.optimizers import AdamOptimizer, MomentumOptimizer
from deep500.transformations.parallel.costs import USUAL_COSTS, StepCosts
from deep500.transformations.parallel.plan_file import ParallelPlan, load_parallel_plan
from deep500.transformations.parallel.planning import Wishes, parallelize
from tests.conftest import load_backend

pytestmark = pytest.mark.slow

CHEAP = Wishes(model=StepCosts(latency=1e-9, start=1e-9))
"""A machine whose messages cost next to nothing: plans divide what they can."""
MODELS: dict[str, dict[str, Any]] = {
    "mlp": {"shape": (6,), "hidden": (8,), "classes": 4},
    "lenet": {"shape": (1, 16, 16), "classes": 4},
    "causal_transformer": {"shape": (4,), "classes": 8, "width": 8, "heads": 4, "layers": 1},
    "lstm_language_model": {"shape": (3,), "classes": 8, "width": 8, "embedding": 6},
    "resnet": {"shape": (3, 8, 8), "classes": 4, "depth": 20},
}
BATCH = 8


def network_of(model: str, dtype: str = "float64") -> Network:
    return to_dtype(add_loss(create(model, **MODELS[model])), dtype)


def batch_of(network: Network, step: int, size: int = BATCH) -> dict[str, np.ndarray]:
    rng, feeds = np.random.default_rng(step), {}
    for name, about in network.inputs.items():
        shape = tuple(size if isinstance(n, str) else n for n in about.shape or ())
        integers = "int" in str(about.dtype)
        feeds[name] = rng.integers(0, 4, shape) if integers else rng.normal(size=shape).astype(about.dtype)
    return feeds


@cache
def plan_of(model: str, ranks: int, dtype: str = "float64") -> ParallelPlan:
    network = network_of(model, dtype)
    return parallelize(network, ranks, {n: v.shape for n, v in batch_of(network, 0).items()}, wishes=CHEAP)


def train(
    backend: str, model: str, ranks: int, steps: int, rule: Any = AdamOptimizer, dtype: str = "float64", **options: Any
) -> list[dict[str, Any]]:
    """Steps of all ranks: losses, outputs, the network's and the optimizer's state."""
    from_model = load_backend(backend).from_model
    network = network_of(model, dtype)
    plan = options.pop("plan", None) or (plan_of(model, ranks, dtype) if ranks > 1 else None)

    def work(comm: d5.Communicator) -> dict[str, Any]:
        scheme = DividedNetwork(rule(from_model(network), lr=0.01, **options), comm, plan=plan)
        losses, outputs = [], []
        for step in range(steps):
            whole = batch_of(network, step)
            mine = {name: np.array_split(value, comm.size)[comm.rank] for name, value in whole.items()}
            before = comm.traffic.payload_bytes
            results = {n: scheme.network.to_numpy(v) for n, v in scheme.step(mine).items()}
            losses.append(float(results["loss"]))
            outputs.append(np.array(results["output"]))
        sent = comm.traffic.payload_bytes - before - sum(value.nbytes for value in mine.values())
        shapes = scheme.shapes() if comm.size > 1 else {}
        state = {"network": scheme.network.state(), "optimizer": scheme.state_dict()}
        return {"losses": losses, "outputs": outputs, "sent": sent, "shapes": shapes, **state}

    return Threads(ranks).run(work)


def apart(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> float:
    assert left.keys() >= right.keys()
    return max(float(np.abs(left[name] - right[name]).max()) for name in right)


def digest(arrays: dict[str, np.ndarray]) -> str:
    return hashlib.sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays))).hexdigest()


def check(backend: str, model: str, ranks: int, steps: int, most: float = 1e-12, **options: Any) -> None:
    serial, outcomes = train(backend, model, 1, steps, **options)[0], train(backend, model, ranks, steps, **options)
    initial = network_of(model, options.get("dtype", "float64")).parameters
    trained = {name: value for name, value in serial["network"].items() if initial[name].trainable}
    assert apart(trained, {n: p.value for n, p in initial.items() if p.trainable}) > 1e-3, "nothing was trained"
    for outcome in outcomes:
        assert apart(outcome["network"], serial["network"]) <= most
        assert apart(outcome["optimizer"], {n: v for n, v in serial["optimizer"].items() if "/" in n}) <= most
        np.testing.assert_allclose(outcome["losses"], serial["losses"], rtol=max(most, 1e-11))
    assert len({digest(outcome["network"]) for outcome in outcomes}) == 1, "ranks differ"
    for step, outputs in enumerate(serial["outputs"]):
        together = np.concatenate([outcome["outputs"][step] for outcome in outcomes])
        np.testing.assert_allclose(together, outputs, rtol=1e-9, atol=max(most, 1e-11))
    plan = options.get("plan") or plan_of(model, ranks, options.get("dtype", "float64"))
    assert plan.strategies, "nothing was divided"


EACH = pytest.mark.parametrize("backend", [pytest.param(b, marks=pytest.mark.backend(b)) for b in d5.registry.BACKENDS])


@EACH
def test_twenty_steps_of_adam_equal_serial_training_on_every_backend(backend: str) -> None:
    check(backend, "mlp", 2, 20)


@pytest.mark.backend("reference")
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("model", ["mlp", "lenet", "causal_transformer", "lstm_language_model"])
def test_networks_divided_among_ranks_equal_serial_training(model: str, ranks: int) -> None:
    check("reference", model, ranks, 3)


@pytest.mark.long
@EACH
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("model", ["mlp", "lenet", "causal_transformer", "lstm_language_model"])
def test_every_backend_divides_every_network(backend: str, model: str, ranks: int) -> None:
    check(backend, model, ranks, 20)


@pytest.mark.long
@pytest.mark.backend("reference")
@pytest.mark.parametrize("ranks", [2, 4])
def test_statistics_of_a_divided_batch_are_those_of_the_whole(ranks: int) -> None:
    """ResNet-20: gradients behind 20 normalisations magnify rounding, so descent, not Adam, which divides by it."""
    check("reference", "resnet", ranks, 3, most=1e-9, rule=MomentumOptimizer)


def in_long_double(model: str, steps: int) -> dict[str, np.ndarray]:
    """Parameters after serial steps of Adam whose arithmetic has 64 bits of mantissa, not 53."""
    network = network_of(model)
    executor = load_backend("reference").from_model(network)
    optimizer = AdamOptimizer(executor, lr=0.01)
    executor._training("loss")  # compiled as float64, which ONNX has; kernels take what comes
    assert optimizer.parameter_names()
    for name in network.parameters:
        parameter = executor.network.parameter(name)
        if parameter.value.dtype == np.float64:
            parameter.value = parameter.value.astype(np.longdouble)
    for step in range(steps):
        optimizer.step(batch_of(network, step))
    return {name: executor.network.parameter(name).value for name, p in network.parameters.items() if p.trainable}


@pytest.mark.long
@pytest.mark.backend("reference")
@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="long double is no wider than double here")
def test_a_divided_network_rounds_no_worse_than_serial_training() -> None:
    """ResNet-20 under Adam: serial training is itself 1.5e-12 from the truth, divided training 0.7e-12 to 2.1e-12."""
    exact = in_long_double("resnet", 4)
    lost = max(float(np.abs(value - value.astype(np.float64)).max()) for value in exact.values())
    assert lost > 1e-17, "the truth was computed in double"
    serial = apart(train("reference", "resnet", 1, 4)[0]["network"], exact)
    for ranks in (2, 4):
        assert apart(train("reference", "resnet", ranks, 4)[0]["network"], exact) < 4 * serial


@pytest.mark.backend("reference")
def test_float32_stays_within_rounding() -> None:
    check("reference", "causal_transformer", 2, 5, most=1e-5, dtype="float32")


@pytest.mark.backend("reference")
def test_one_rank_is_serial_training_bit_by_bit() -> None:
    network = network_of("mlp")
    executor = load_backend("reference").from_model(network)
    optimizer = AdamOptimizer(executor, lr=0.01)
    for step in range(5):
        optimizer.step(batch_of(network, step))
    assert digest(train("reference", "mlp", 1, 5)[0]["network"]) == digest(executor.network.state())


@pytest.mark.backend("reference")
def test_ranks_that_a_trainer_seeds_otherwise_drop_the_same() -> None:
    network = Network("dropped")
    network.add_input("input", ("N", 4))
    network.add_input("label", ("N",), "int64")
    network.add_parameter("fc.weight", np.random.default_rng(0).normal(size=(4, 3)).astype("float32"))
    network.add_parameter("ratio", np.array(0.5, "float32"), trainable=False)
    network.add_node("Dropout", ["input", "ratio"], ["dropped"], "drop")
    network.add_node("MatMul", ["dropped", "fc.weight"], ["output"], "fc")
    network.add_output("output")
    network = add_loss(network)

    def work(comm: d5.Communicator) -> Any:
        executor = load_backend("reference").from_model(network)
        scheme, begin = DividedNetwork(AdamOptimizer(executor), comm), executor.network.state()
        for epoch in range(2):
            executor.reseed(10 * epoch + comm.rank)
            outputs = scheme.step({"input": np.ones((4, 4), "float32"), "label": np.zeros(4, "int64")})
        return scheme.network.state(), begin, outputs["output"]

    results = Threads(2).run(work)
    assert len({digest(state) for state, _, _ in results}) == 1
    assert apart(results[0][0], results[0][1]) > 1e-3 and len(np.unique(results[0][2], axis=0)) > 1


@pytest.mark.backend("reference")
def test_bytes_sent_and_parts_held_are_the_plan_s() -> None:
    plan = plan_of("causal_transformer", 2)
    outcomes = train("reference", "causal_transformer", 2, 2)
    network = network_of("causal_transformer")
    for rank, outcome in enumerate(outcomes):
        assert outcome["sent"] == plan.nbytes > 0
        for name, shape in outcome["shapes"].items():
            whole, text = network.parameter(name).value.shape, plan.sources.get(name, "R")
            expected = [n // 2 if text == f"S{axis}" else n for axis, n in enumerate(whole)]
            assert list(shape) == expected, (rank, name)
    assert any(text != "R" for name, text in plan.sources.items() if network.has_parameter(name))


@pytest.mark.backend("reference")
def test_the_norm_of_all_gradients_is_counted_once() -> None:
    check("reference", "mlp", 2, 4, gradient_transform=ClipGradientNorm(0.05))
    check("reference", "mlp", 3, 4, gradient_transform=ClipGradientNorm(0.05))


@pytest.mark.parametrize(
    "backend", [pytest.param(b, marks=pytest.mark.backend(b)) for b in ("pytorch", "jax", "tensorflow")]
)
def test_parts_are_updated_as_one_and_take_what_is_loaded(backend: str) -> None:
    network, from_model = network_of("mlp"), load_backend(backend).from_model

    def go(comm: d5.Communicator) -> Any:
        scheme = DividedNetwork(AdamOptimizer(from_model(network), lr=0.01), comm, plan=plan_of("mlp", 2))
        batch = {n: np.array_split(v, comm.size)[comm.rank] for n, v in batch_of(network, 0).items()}
        states = [(scheme.whole_state(), scheme.state_dict())]
        for step in range(4):
            if step == 2:  # back to the beginning
                scheme.load_whole_state(states[0][0])
                scheme.load_state_dict(states[0][1])
            scheme.step(batch)
            states.append((scheme.whole_state(), scheme.state_dict()))
        return states, scheme.base_optimizer.updates.refusal

    for states, refusal in Threads(2).run(go):
        assert not refusal, "the rule ran parameter by parameter"
        assert apart(states[2][0], states[1][0]) > 1e-4
        for before, after in ((1, 3), (2, 4)):
            assert digest(states[before][0]) == digest(states[after][0])
            assert digest(states[before][1]) == digest(states[after][1])


@pytest.mark.backend("reference")
def test_states_are_those_of_the_whole_and_batches_may_change_size() -> None:
    """Two steps on two ranks, and on from there on three; a step of another size in between; a validation."""
    from_model = load_backend("reference").from_model
    network = network_of("mlp")
    sizes = [8, 5, 8, 7]

    def go(comm: d5.Communicator, steps: range, state: Any = None) -> Any:
        scheme = DividedNetwork(AdamOptimizer(from_model(network), lr=0.01), comm)
        scheme.wishes = CHEAP
        if state is not None:
            scheme.network.load_state(state[0])
            scheme.load_state_dict(state[1])
        for step in steps:
            whole = batch_of(network, step, sizes[step])
            scheme.step({n: np.array_split(v, comm.size)[comm.rank] for n, v in whole.items()})
        with scheme.evaluation():
            feeds = batch_of(network, 9)
            judged = np.asarray(scheme.executor.inference(feeds, ["loss"])["loss"])
        return scheme.network.state(), scheme.state_dict(), judged

    serial = Threads(1).run(go, range(4))[0]
    half = Threads(2).run(go, range(2))[0]
    for ranks in (1, 2, 3):
        for outcome in Threads(ranks).run(go, range(2, 4), half):
            assert apart(outcome[0], serial[0]) < 1e-12
            np.testing.assert_allclose(outcome[2], serial[2], rtol=1e-12)


@pytest.mark.backend("reference")
def test_a_plan_is_refused_on_other_ranks_for_other_networks_and_where_ranks_differ(tmp_path: Path) -> None:
    from_model = load_backend("reference").from_model
    network = network_of("mlp")
    path = str(plan_of("mlp", 2).save(tmp_path / "plan.json"))

    def go(comm: d5.Communicator, plans: list[Any], model: Network = network, **options: Any) -> Any:
        scheme = DividedNetwork(AdamOptimizer(from_model(model), **options), comm, plan=plans[comm.rank])
        whole = batch_of(model, 0)
        return scheme.step({n: np.array_split(v, comm.size)[comm.rank] for n, v in whole.items()})

    assert "loss" in Threads(2).run(go, [path, path])[0]
    with pytest.raises(CommunicationError, match="got a plan for 2 ranks on 3"):
        Threads(3).run(go, [path] * 3)
    other = to_dtype(add_loss(create("mlp", shape=(6,), hidden=(10,), classes=4)), "float64")
    with pytest.raises(PlanError, match="plan again for this network"):
        Threads(2).run(go, [path, path], other)
    shapes = {n: v.shape for n, v in batch_of(network, 0).items()}
    second = parallelize(network, 2, shapes, wishes=Wishes(pins={"fc1": "m"}))
    with pytest.raises(CommunicationError, match="got different plans on the ranks"):
        Threads(2).run(go, [path, second])
    with pytest.raises(InputError, match="got accumulate or loss scaling with DividedNetwork"):
        Threads(2).run(lambda comm: DividedNetwork(AdamOptimizer(from_model(network), accumulate=2), comm))


@pytest.mark.backend("reference")
def test_a_plan_says_by_which_costs_it_was_made(tmp_path: Path) -> None:
    network = network_of("mlp")
    given = StepCosts(latency=1e-9)

    def go(comm: d5.Communicator, costs: Any) -> Any:
        scheme = DividedNetwork(AdamOptimizer(load_backend("reference").from_model(network)), comm, costs=costs)
        for step in range(2):
            scheme.step({n: np.array_split(v, 2)[comm.rank] for n, v in batch_of(network, step, 4 + 4 * step).items()})
        return scheme.plan

    plans = {str(costs): Threads(2).run(go, costs) for costs in (None, given, "measured")}
    assert all(first == second for first, second in plans.values())
    by = {costs: found[0] for costs, found in plans.items()}
    assert by["None"].costs == USUAL_COSTS.data() and "not measured" in by["None"].about()
    assert by[str(given)].costs == given.data() and by[str(given)].costs_from == "as given"
    measured = by["measured"]
    assert measured.costs_from.startswith("measured between 2 ranks by messages and sums over threads")
    assert measured.costs["latency"] != USUAL_COSTS.latency and measured.costs_from in measured.about()
    assert load_parallel_plan(measured.save(tmp_path / "plan.json")) == measured
    with pytest.raises(InputError, match="got costs='guessed'; expected 'measured', StepCosts"):
        Threads(2).run(go, "guessed")


@pytest.mark.backend("reference")
def test_a_rank_lost_in_a_collective_ends_the_others() -> None:
    from_model = load_backend("reference").from_model
    network = network_of("mlp")

    def go(comm: d5.Communicator) -> None:
        scheme = DividedNetwork(AdamOptimizer(from_model(network)), comm, plan=plan_of("mlp", 3))
        for step in range(3):
            if comm.rank == 1 and step == 1:
                raise RuntimeError("power cut")
            scheme.step({n: np.array_split(v, 3)[comm.rank] for n, v in batch_of(network, step, 9).items()})

    with pytest.raises(RuntimeError, match="power cut") as caught:
        Threads(3).run(go)
    assert "[rank 1]" in caught.value.__notes__


def deep_network() -> Network:
    """Four products, each with three functions behind it, of which backward nodes read the results."""
    network, rng, value = Network("deep"), np.random.default_rng(0), "input"
    network.add_input("input", ("N", 12), "float64")
    network.add_input("label", ("N",), "int64")
    for i in range(4):
        network.add_parameter(f"fc{i}.weight", 0.3 * rng.normal(size=(24 if i else 12, 24)))
        network.add_node("MatMul", [value, f"fc{i}.weight"], [f"fc{i}"], f"fc{i}")
        for before, operator in zip(("fc", "tanh", "exp"), ("Tanh", "Exp", "Sigmoid"), strict=True):
            value = f"{operator.lower()}{i}"
            network.add_node(operator, [f"{before}{i}"], [value], value)
    network.add_node("Identity", [value], ["output"], "last")
    network.add_output("output")
    return add_loss(network)


def train_again(recompute: Any, sizes: list[int], pins: dict[str, str], **options: Any) -> list[Any]:
    """By two ranks: states, plans, the nodes that communicate in their order, and those that run again."""
    network = deep_network()

    def work(comm: d5.Communicator) -> Any:
        optimizer = MomentumOptimizer(load_backend("reference").from_model(network), lr=0.01)
        scheme = DividedNetwork(optimizer, comm, pins=pins, recompute=recompute, **options)
        for step, size in enumerate(sizes):
            scheme.step({n: np.array_split(v, 2)[comm.rank] for n, v in batch_of(network, step, size).items()})
        run, _ = next(iter(scheme._runs.values()))
        meetings = [node.name for phase in run.phases for node in phase.meetings]
        again = [node for node in run.network.nodes if node.name.startswith("again/")]
        return scheme.network.state(), scheme.plan, meetings, again

    return Threads(2).run(work)


@pytest.mark.backend("reference")
@pytest.mark.parametrize("pins", [{"input": "S0", "label": "S0"}, {"fc0": "n", "fc1": "k", "fc2": "n"}])
def test_recomputation_in_a_divided_network_changes_no_bit_and_repeats_no_collective(pins: dict[str, str]) -> None:
    kept, again = train_again(None, [64, 64, 33], pins), train_again(0.8, [64, 64, 33], pins)
    assert len({digest(outcome[0]) for outcome in (*kept, *again)}) == 1
    for (_, plan, meetings, repeated), (_, without, as_before, none) in zip(again, kept, strict=True):
        assert plan.peaks[0] <= 0.8 * plan.peaks[1] and not without.again and not none
        assert repeated and not any(is_collective(node) for node in repeated)
        assert sorted(meetings) == sorted(as_before) and plan.strategies == without.strategies
    assert again[0][2] == again[1][2] and [n.name for n in again[0][3]] == [n.name for n in again[1][3]]


@pytest.mark.backend("reference")
def test_what_runs_again_is_part_of_the_plan_and_out_of_reach_is_said(tmp_path: Path) -> None:
    network = deep_network()
    shapes = {n: v.shape for n, v in batch_of(network, 0, 64).items()}
    plan = parallelize(network, 2, shapes, wishes=Wishes(recompute=0.8))
    path = plan.save(tmp_path / "plan.json")
    assert load_parallel_plan(path) == plan
    assert f"{len(plan.again)} regions run again, {plan.peaks[0]} of {plan.peaks[1]} bytes" in plan.about()
    with pytest.raises(BudgetError, match="expected at least"):
        parallelize(network, 2, shapes, wishes=Wishes(recompute=100))
    with pytest.raises(InputError, match="got a plan and recompute"):
        train_again(0.8, [64], {}, plan=str(path))
    edited = replace(plan, again=(("nothing",),))
    with pytest.raises(PlanError, match="nothing"):
        train_again(None, [64], {}, plan=edited)


@pytest.mark.backend("reference")
def test_memory_of_a_divided_step_falls_by_what_runs_again() -> None:
    """Bytes that NumPy allocates, of both ranks in one process, for activations many times the parameters."""
    network, traced = deep_network(), []
    batch = batch_of(network, 0, 2000)

    def work(comm: d5.Communicator, recompute: float | None) -> tuple[int, ...]:
        optimizer = MomentumOptimizer(load_backend("reference").from_model(network), lr=0.01)
        pins = {"input": "S0", "label": "S0"}
        scheme = DividedNetwork(optimizer, comm, pins=pins, recompute=recompute)
        for step in range(2):
            comm.barrier()
            if step and comm.rank == 0:
                tracemalloc.start()
            comm.barrier()
            scheme.step({n: np.array_split(v, 2)[comm.rank] for n, v in batch.items()})
        if comm.rank == 0:
            traced.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert scheme.plan is not None
        return tuple(scheme.plan.peaks)

    Threads(2).run(work, None)
    planned, whole = Threads(2).run(work, 0.7)[0]
    assert traced[1] / traced[0] < (1 + planned / whole) / 2


@pytest.mark.backend("reference")
def test_a_batch_all_of_whose_labels_are_ignored_changes_nothing() -> None:
    """As in serial training, whose loss is then NaN with gradients of 0."""
    network = Network("ignoring")
    network.add_input("x", ("N", 4), "float64")
    network.add_input("label", ("N",), "int64")
    network.add_parameter("w", np.random.default_rng(0).normal(size=(4, 3)))
    network.add_node("MatMul", ["x", "w"], ["scores"], "fc")
    network.add_node("SoftmaxCrossEntropyLoss", ["scores", "label"], ["loss"], "loss", ignore_index=2)
    network.add_output("loss")

    def work(comm: d5.Communicator, label: int) -> Any:
        executor = load_backend("reference").from_model(network)
        scheme = DividedNetwork(MomentumOptimizer(executor), comm, pins={"fc": "m"})
        result = scheme.step({"x": np.ones((4, 4))[comm.rank :: comm.size], "label": np.full(4 // comm.size, label)})
        return float(np.asarray(result["loss"])), scheme.network.state()["w"]

    for ranks in (1, 2):
        for loss, state in Threads(ranks).run(work, 2):
            assert np.isnan(loss) and np.array_equal(state, network.parameter("w").value)
    (_, serial), (_, divided) = Threads(1).run(work, 1)[0], Threads(2).run(work, 1)[0]
    np.testing.assert_allclose(divided, serial, rtol=1e-12)
    assert not np.array_equal(serial, network.parameter("w").value)


def test_nodes_run_late_where_they_may() -> None:
    work = [Node("Relu", ("x",), ("a",), "a"), Node("AllReduce", ("a",), ("b",), "b", DOMAIN)]
    work += [Node("Neg", ("x",), ("c",), "c"), Node("Add", ("b", "c"), ("d",), "d")]
    assert [[n.name for n in computing] for computing, _ in phases(work)] == [["a", "c"], ["d"]]
    assert [[n.name for n in computing] for computing, _ in phases(work, {"c", "d"})] == [["a"], ["c", "d"]]
    gathered = [*work[:3], Node("AllGather", ("c",), ("e",), "e", DOMAIN), Node("Add", ("b", "e"), ("d",), "d")]
    late = [*gathered, Node("AllReduce", ("d",), ("f",), "f", DOMAIN), Node("Add", ("f", "e"), ("g",), "g")]
    assert [[n.name for n in meeting] for _, meeting in phases(late, {"c", "e"})] == [["b", "e"], ["f"], []]
