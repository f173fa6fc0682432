"""``profile_network``: steps with and without a framework's profiler, in turns, in one framework after the other."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from time import perf_counter
from typing import Any

import numpy as np

from deep500.errors import InputError, UnsupportedOperator
from deep500.keywords import takes
from deep500.measure.bounds import measure_roofs
from deep500.measure.environment import describe
from deep500.measure.statistics import paired_ratio
from deep500.networks.execution.capabilities import step_profiler
from deep500.networks.execution.step_profile import BACKWARD, FORWARD, run_step
from deep500.networks.network import Network
from deep500.profiling.profile import FrameworkProfile, NodeRow, Profile, in_rows
from deep500.profiling.work import Work, node_work

STEPS = 9
_UNFUSED = {"optimization": "disabled", "recognise": False}


@dataclass(frozen=True)
class ProfileOptions:
    """The options of :func:`profile_network`.

    Args:
        network: to be run; each backend gets a copy.
        inputs: arrays by input name.
        executors: for each framework what makes an executor of a network.
        loss: the scalar that training steps differentiate; None runs forward in evaluation mode.
        steps: how many are profiled, after one that is not counted.
        unfused: leave nodes as they are where a framework lets itself be told so (ONNX Runtime, PyTorch).
        subject: name for the profile.
    """

    network: Network
    inputs: Mapping[str, Any]
    executors: Mapping[str, Callable[[Network], Any]]
    _: KW_ONLY
    loss: str | None = "loss"
    steps: int = STEPS
    unfused: bool = False
    subject: str = ""


@takes(ProfileOptions)
def profile_network(options: ProfileOptions) -> Profile:
    """Profile a network in several frameworks.

    Raises:
        InputError: fewer than one step.
        UnsupportedOperator: a framework cannot run the network, or not be profiled as it is set up.

    Example:
        >>> import deep500.frameworks.reference as d5ref
        >>> from deep500.networks import add_loss, create
        >>> inputs = {"input": np.ones((2, 4), "float32"), "label": np.zeros(2, "int64")}
        >>> network = add_loss(create("mlp", shape=(4,)))
        >>> profile = profile_network(network, inputs, {"reference": d5ref.from_model}, steps=1)
        >>> profile.rows[0].name, profile.flops() == network.flops(2, "loss").total
        ('fc1', True)
    """
    if options.steps < 1:
        raise InputError(f"got {options.steps} steps; expected at least one: give a larger number")
    network, loss = options.network, options.loss
    work, elsewhere = node_work(network, options.inputs, loss)
    profiles = [_framework(name, make, options, work) for name, make in options.executors.items()]
    return Profile(
        options.subject or network.name,
        loss,
        {name: list(np.shape(array)) for name, array in options.inputs.items()},
        machine_facts(),
        measure_roofs(),
        _rows(network, work),
        elsewhere,
        profiles,
    )


def _rows(network: Network, work: Mapping[tuple[str, str], Work]) -> list[NodeRow]:
    producers = {value: node.name for node in network.nodes for value in node.writes}
    rows = []
    for node in network.nodes:
        parts = {phase: work[node.name, phase] for phase in (FORWARD, BACKWARD) if (node.name, phase) in work}
        before = dict.fromkeys(producers[value] for value in node.reads if value in producers)
        operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        rows.append(NodeRow(node.name, operator, parts, list(before)))
    return rows


def machine_facts() -> dict[str, Any]:
    """Facts that tell machines apart: the CPU, the cores that this process may use, memory and threads."""
    facts = describe()
    return {
        **{key: facts[key] for key in ("cpu", "cores", "usable_cores", "memory_bytes", "machine")},
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "system": platform.system(),
    }


def _framework(
    name: str, make: Callable[[Network], Any], options: ProfileOptions, work: Mapping[tuple[str, str], Work]
) -> FrameworkProfile:
    executor = make(options.network.copy())
    if options.unfused:
        for choice in set(_UNFUSED) & set(executor.choices):
            setattr(executor, choice, _UNFUSED[choice])
        executor = executor.like(options.network)
    if executor.device.kind != "cpu":
        raise UnsupportedOperator(
            f"got {executor.device} to profile on with {name}; expected the CPU, whose kernels end when their "
            "call does: ask for device cpu"
        )
    profiler = step_profiler(executor, options.loss)
    if profiler is None:
        raise UnsupportedOperator(
            f"got {name} to profile, which has no profiler; expected an executor with step_profiler(): "
            "name other --backend"
        )
    plain, inputs = [], options.inputs
    for _ in range(options.steps + 1):
        begin = perf_counter()
        run_step(executor, inputs, options.loss)
        executor.synchronize()
        plain.append(perf_counter() - begin)
        profiler.step(inputs)
    steps = profiler.finish()[1:]
    cost = paired_ratio([step.seconds for step in steps], plain[1:])
    fastest = min(steps, key=lambda step: step.seconds)  # the others' kernels waited for other programs, too
    step, fused = in_rows(fastest, options.network.nodes, work)
    versions = describe()["versions"]
    version = versions.get(_PACKAGES.get(name, name)) or versions.get(f"{name}-cpu") or ""
    return FrameworkProfile(name, version, float(np.median(plain[1:])), cost, step, fused)


_PACKAGES = {"reference": "numpy", "pytorch": "torch"}
