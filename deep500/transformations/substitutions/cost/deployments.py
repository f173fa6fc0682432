"""Deployments: a backend as it shall run a network, its own compiler included, and how candidates for it are found.

Backends that run operators one by one are priced by operators that were measured. One that compiles networks leaves no
operators to price: it fuses elementwise work into products, folds constants and moves layouts. There the search goes by
formulas, one of which has fused what compilers fuse, and whole candidates are compiled and timed from end to end.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from deep500.errors import UnknownBackend, nearest
from deep500.measure.sampling import Clock
from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.graph import Graph
from deep500.registry import backend_names, is_own_backend, load_backend

_warmed = set[str]()
ONE_THREAD = frozenset({"reference", "pytorch", "onnxruntime"})
"""Backends that run on the CPU unless told otherwise, with OMP_NUM_THREADS threads."""
ONE_CPU = frozenset({"tensorflow"})
"""Backends that run there with threads of their own, which are one after the other where the process has one core."""


@dataclass(frozen=True)
class Deployment:
    """A way to run a network: a backend with options.

    Attributes:
        name: as users give it.
        backend: whose executor.
        options: of the executor.
        compiles: whether the backend rewrites networks itself, so that operators have no prices of their own.
        whole: whether it has kernels for attention in one operator, and does not find that in separate nodes.
    """

    name: str
    backend: str
    options: Mapping[str, Any] = field(default_factory=dict)
    compiles: bool = False
    whole: bool = False

    def clock(self) -> Clock:
        """The clock to compare networks with: what the CPU spends on this process where that is all there is.

        One thread that waits for nothing takes as long as it computes, and only what it computes is the same on a busy
        machine. With more threads, or in a backend that may run elsewhere, the time that passes is what counts.
        """
        alone = self.backend in ONE_THREAD or (self.backend in ONE_CPU and _pinned())
        alone = alone and os.environ.get("OMP_NUM_THREADS") == "1"
        return time.process_time_ns if alone else time.perf_counter_ns

    def prepare(self) -> None:
        """Load the backend, and its compiler by compiling one operator: what happens once is no part of a search.

        Raises:
            MissingBackend: it is not installed.
        """
        load_backend(self.backend)
        if self.compiles:
            _warm(self)

    def executor(self, network: Graph, device: Any = None) -> GraphExecutor:
        """The network as it would be deployed."""
        executor: GraphExecutor = load_backend(self.backend).from_model(network, device=device, **self.options)
        return executor


KNOWN: Mapping[str, Deployment] = MappingProxyType(
    {
        deployment.name: deployment
        for deployment in (
            Deployment("onnxruntime", "onnxruntime", {"optimization": "all"}, compiles=True, whole=True),
            Deployment("pytorch-compiled", "pytorch", {"compile": True}, compiles=True),
            Deployment("tensorflow", "tensorflow", compiles=True),
            Deployment("jax", "jax", compiles=True),
        )
    }
)
"""Deployments that are more than the name of a backend; every other backend runs operators one by one."""


def deployment_names() -> list[str]:
    """All names, of backends that are installed or not, and of deployments of their own.

    Example:
        >>> deployment_names()[:3]
        ['reference', 'pytorch', 'pytorch-compiled']
    """
    names = []
    for backend in backend_names():
        names += [
            backend,
            *(deployment.name for deployment in KNOWN.values() if deployment.backend == backend != deployment.name),
        ]
    return names


def deployment(name: str) -> Deployment:
    """The deployment of a name.

    Raises:
        UnknownBackend: nothing is called so.

    Example:
        >>> deployment("pytorch-compiled").backend, deployment("reference").compiles
        ('pytorch', False)
    """
    if name not in KNOWN and name not in backend_names() and not is_own_backend(name):
        raise UnknownBackend(
            f"got backend {name!r}; expected one of the known ones: {nearest(name, deployment_names())}"
        )
    return KNOWN.get(name) or Deployment(name, name)


def _pinned() -> bool:
    """Return whether this process may use one core only (``taskset -c 3``); False where the system does not tell."""
    allowed = getattr(os, "sched_getaffinity", None)
    return allowed is not None and len(allowed(0)) == 1


def _warm(place: Deployment) -> None:
    """Compile one operator, once per process: for their first, compilers look at the CPU and prepare headers."""
    if place.name in _warmed:
        return
    _warmed.add(place.name)
    network = Graph("one operator")
    network.add_input("x", (64,))
    network.add_node("Exp", ["x"], ["y"])
    network.add_output("y")
    executor = place.executor(network)
    executor.inference({"x": executor.network.to_tensor(np.zeros(64, "float32"))})
    executor.synchronize()
