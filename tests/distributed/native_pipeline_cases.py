"""Cases on real ranks for pipelines by PyTorch's schedules: random networks and optimizers, in float64."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed.pipelining
import torch.fx.experimental.symbolic_shapes  # what fakes need: once, before ranks are forked

from deep500.distributed import Communicator, SchemeMesh
from deep500.distributed.schemes import NativePipeline, Pipeline
from deep500.errors import AccumulationWarning
from deep500.frameworks import pytorch, reference
from deep500.frameworks.pytorch.adapted_optimizer import optimizer_from_native
from deep500.frameworks.pytorch.layers import in_stages
from deep500.networks import add_loss
from deep500.networks.network import Network
from deep500.training import optimizers
from deep500.training.averaging import WeightAverage
from deep500.transformations.stages import layers
from tests.distributed.error_text import error_text
from tests.distributed.native_cases import STEPS, base, batches
from tests.distributed.scheme_table import digest, flat, parameters

Batches = Sequence[Mapping[str, np.ndarray]]


def deep(seed: int = 0, tied: bool = False) -> Network:
    """Nine dense layers of float64, of which values skip one here and there, and an output of an early one; the last
    has the weight of the first if they are ``tied``."""
    rng, net, x, before = np.random.default_rng(seed), Network("deep"), "input", "input"
    net.add_input("input", ("N", 6), "float64")
    for layer in range(9):
        weight = "w0" if tied and layer == 8 else f"w{layer}"
        if not net.has_parameter(weight):
            net.add_parameter(weight, rng.normal(size=(6, 6)) / 2)
        net.add_node("MatMul", [x, weight], [f"p{layer}"])
        net.add_node("Tanh", [f"p{layer}"], [f"h{layer}"])
        before, x = x, f"h{layer}"
        if layer in (2, 5):
            net.add_node("Add", [before, x], [f"s{layer}"])
            x = f"s{layer}"
    net.add_output("h1")
    net.add_output(x)
    return add_loss(net, output=x)


def given(seed: int, size: int) -> Batches:
    """Random batches for a network of ``native_cases``, or (negative) for :func:`deep`."""
    if seed >= 0:
        return batches(seed, [size], None)
    rng = np.random.default_rng(-seed)
    return [{"input": rng.normal(size=(size, 6)), "label": rng.integers(0, 6, size)} for _ in range(STEPS)]


def optimizer(seed: int, start: int, native: bool, **options: Any) -> Any:
    """For a network of ``native_cases``, or (negative) for :func:`deep`."""
    if seed >= 0:
        return base(seed, start, native, **options)
    kind = (pytorch if native else optimizers).AdamOptimizer
    return kind(pytorch.from_model(deep(start), "cpu"), "loss", lr=0.01, **options)


def trained(make: Callable[..., Any], seed: int, comm: Communicator, native: bool, stop: int = STEPS) -> Any:
    """A scheme after 20 steps of 7 samples, which micro-batches do not divide; after ``stop`` another one goes on from
    its state. Its parameters, and its last outputs."""
    scheme = make(optimizer(seed, comm.rank, native), comm)
    for number, batch in enumerate(given(seed, 7)):
        if number == stop:
            weights, state = scheme.network.state(), {n: array.copy() for n, array in scheme.state_dict().items()}
            scheme = make(optimizer(seed, 7, native), comm)
            scheme.network.load_state(weights)
            scheme.load_state_dict(state)
        mine = batch if comm.rank == 0 else {name: array[:0] for name, array in batch.items()}
        outputs = scheme.step(mine)
    return scheme, whole(scheme), {name: scheme.network.to_numpy(value) for name, value in outputs.items()}


def whole(scheme: Any) -> dict[str, np.ndarray]:
    """All parameters and statistics, as a validation sees them."""
    with scheme.evaluation():
        network, names = scheme.network, list(scheme.network.parameters)
        tensors = network.fetch_tensors(names)
        return {name: np.array(network.to_numpy(tensor)) for name, tensor in zip(names, tensors, strict=True)}


def serial(seed: int, pieces: int) -> dict[str, np.ndarray]:
    """One process, which accumulates as many pieces."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccumulationWarning)
        alone = optimizer(seed, 0, False, accumulate=pieces)
    for batch in given(seed, 7):
        alone.step(batch)
    return whole(alone)


def compared(comm: Communicator, cases: Sequence[tuple[int, str, int]]) -> list[dict[str, Any]]:
    """For networks, schedules and micro-batches: how far they are from ``Pipeline`` and from one process."""
    rows = []
    for number, (seed, schedule, pieces) in enumerate(cases):
        native, alone = number % 2 == 0, serial(seed, pieces)
        _, want, said = trained(partial(Pipeline, micro_batches=pieces), seed, comm, False)
        make = partial(NativePipeline, micro_batches=pieces, schedule=schedule)
        scheme, got, outputs = trained(make, seed, comm, native)
        assert outputs.keys() == said.keys()
        rows.append(
            {
                "case": f"{schedule}, network {seed}, {pieces} pieces, {'native' if native else 'ours'}",
                "apart": float(np.abs(flat(got) - flat(want)).max()),
                "serial": float(np.abs(flat(got) - flat(alone)).max()),
                "outputs": float(max((np.abs(outputs[name] - said[name]).max() for name in said), default=0.0)),
                "moved": float(np.abs(flat(got) - flat(parameters(optimizer(seed, 0, False)))).max()),
                "digest": digest(got),
                "resumed": digest(trained(make, seed, comm, native, stop=7)[1]),
                "ran": scheme.engine.ran,
                "holds": sum(not np.isnan(a).any() for a in scheme.arrays(scheme.parameters())),
                "trained": len(scheme.parameter_names()),
            }
        )
    return rows


def counted(comm: Communicator) -> dict[str, int]:
    """Bytes of a step that rank 0 sends: as the scheme counts them, and as PyTorch's profiler sees them."""
    scheme = NativePipeline(optimizer(-1, 0, True), comm, 4, "Interleaved1F1B")
    feeds = [b if comm.rank == 0 else {n: a[:0] for n, a in b.items()} for b in given(-1, 8)[:2]]
    scheme.step(feeds[0])
    with torch.profiler.profile(record_shapes=True) as profile:
        scheme.step(feeds[1])
    seen = sum(8 * int(np.prod(event.input_shapes[0])) for event in profile.events() if event.name == "gloo:send")
    return {"said": scheme.engine.sent["send"], "seen": seen}


def meshed(comm: Communicator) -> dict[str, Any]:
    """Two pipelines of two stages, whose gradients are averaged."""
    alone = optimizer(-1, 0, False)
    for batch in given(-1, 7)[:5]:
        alone.step(batch)
    make = SchemeMesh({"data": 2, "pipeline": 2}, {"pipeline": partial(NativePipeline, micro_batches=2)})
    scheme = make(optimizer(-1, comm.rank, True), comm)
    mine = {0: slice(0, 4), 2: slice(4, 7)}.get(comm.rank, slice(0, 0))
    for batch in given(-1, 7)[:5]:
        scheme.step({name: array[mine] for name, array in batch.items()})
    got = whole(scheme)
    return {"apart": float(np.abs(flat(got) - flat(whole(alone))).max()), "digest": digest(got), "title": scheme.title}


def chained(seed: int, count: int, copied: bool) -> bool:
    """Whether modules of so many stages, one after the other, give the outputs of the whole, bit by bit."""
    executor = optimizer(seed, 0, True).executor
    tensors = [torch.from_numpy(given(seed, 3)[0][name]) for name in executor.network.inputs]
    values: Sequence[torch.Tensor] = tensors
    executor.module.eval()
    for stage in in_stages(executor.module, layers(executor.network, count=count), count, copied):
        results = stage.eval()(*values)
        values = results if isinstance(results, tuple) else (results,)
    want = executor.module(*tensors)
    want = want if isinstance(want, tuple) else (want,)
    return all(torch.equal(a, b) for a, b in zip(values, want, strict=True))


def everything(comm: Communicator, cases: dict[str, Sequence[tuple[int, str, int]]]) -> dict[str, Any]:
    """All cases, in one start of the ranks."""
    if comm.size == 4:
        return meshed(comm)
    results: dict[str, Any] = {"compared": compared(comm, cases[str(comm.size)])}
    if comm.size == 2:
        results.update(counted=counted(comm), refused=refused(comm), ignored=ignored(comm), averaged=averaged(comm))
    return results


def averaged(comm: Communicator) -> list[float]:
    """How far averages of weights, of which each rank holds those of its stages, are from those of one process; and
    these from the weights."""
    scheme, alone = NativePipeline(optimizer(-1, comm.rank, True), comm, 4), optimizer(-1, 0, True)
    averages = WeightAverage(scheme.executor, 0.6, scheme), WeightAverage(alone.executor, 0.6)
    for batch in given(-1, 8)[:4]:
        scheme.step(batch if comm.rank == 0 else {name: array[:0] for name, array in batch.items()})
        alone.step(batch)
        for average, trained in zip(averages, (scheme, alone), strict=True):
            average.update(trained.judged_tensors)
    weights = whole(alone)
    averages[1].apply()
    with scheme.evaluation(), averages[0].evaluation():
        names = list(scheme.network.parameters)
        arrays = scheme.arrays(scheme.network.fetch_tensors(names))
        found = {name: np.array(array) for name, array in zip(names, arrays, strict=True)}
    return [float(np.abs(flat(found) - flat(other)).max()) for other in (whole(alone), weights)]


def ignored(comm: Communicator) -> float:
    """How far a step is from one process where labels do not count, all those of a micro-batch among them."""

    def make(start: int) -> Any:
        net = deep(start)
        net.remove_output("loss")
        net.remove_node(net.producer("loss").name)
        net.add_node("SoftmaxCrossEntropyLoss", ["h8", "label"], ["loss"], reduction="mean", ignore_index=-1)
        net.add_output("loss")
        return pytorch.MomentumOptimizer(pytorch.from_model(net, "cpu"), "loss", lr=0.1, momentum=0.9)

    batch = given(-1, 6)[0] | {"label": np.array([1, -1, 0, 2, -1, -1])}
    alone, scheme = make(0), NativePipeline(make(comm.rank), comm, 3)
    alone.step(batch)
    scheme.step(batch if comm.rank == 0 else {name: array[:0] for name, array in batch.items()})
    return float(np.abs(flat(whole(scheme)) - flat(whole(alone))).max())


def refused(comm: Communicator) -> dict[str, str]:
    """Each thing that it cannot do is one line with the cure."""
    plain, here = optimizer(-1, 0, True), NativePipeline(optimizer(-1, 0, True), comm)
    adapted = optimizer_from_native(torch.optim.RAdam, lr=0.01)
    module = pytorch.from_native(torch.nn.Linear(4, 3), torch.zeros(1, 4))
    fixed = deep()
    fixed.set_input("input", (4, 6))

    def by(net: Network) -> Any:
        return pytorch.GradientDescent(pytorch.from_model(net, "cpu"), "loss", lr=0.1)

    return {
        "schedule": error_text(lambda: NativePipeline(plain, comm, schedule="1F2B")),
        "stages": error_text(lambda: NativePipeline(plain, comm, stages_per_rank=2)),
        "backend": error_text(
            lambda: NativePipeline(optimizers.GradientDescent(reference.from_model(deep()), "loss", lr=0.1), comm)
        ),
        "accumulate": error_text(lambda: NativePipeline(optimizer(-1, 0, True, accumulate=2), comm)),
        "adapted": error_text(lambda: NativePipeline(adapted(pytorch.from_model(deep(), "cpu"), "loss"), comm)),
        "module": error_text(lambda: NativePipeline(pytorch.GradientDescent(module, "loss", lr=0.1), comm)),
        "fixed": error_text(lambda: NativePipeline(by(fixed), comm)),
        "tied": error_text(lambda: NativePipeline(by(deep(tied=True)), comm)),
        "many": error_text(lambda: NativePipeline(plain, comm, schedule="LoopedBFS", stages_per_rank=9)),
        "alone": error_text(lambda: here.executor.inference_and_backprop(given(-1, 2)[0])),
    }
