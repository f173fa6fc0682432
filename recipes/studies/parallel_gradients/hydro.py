"""The shock-hydrodynamics proxy's problem: a part of a box of hexahedra, with the blast of Sedov in its corner.

The box is divided among ranks in blocks. Everything is a function of the whole box, so that it is the same however many
ranks there are; perturbed, because a symmetric start lies on kinks where finite differences say nothing.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recipes.studies.parallel_gradients import proxy
from recipes.studies.parallel_gradients.proxy import Arrays

Integers = np.ndarray

REGIONS = ((1.4, 0.0), (5 / 3, 0.0), (2.0, 0.005))
"""Ratio of specific heats and stiffness of each kind of gas."""
BLAST = 0.5
BACKGROUND = 0.05
"""Energy per mass of what is not in the blast."""


class Links(ctypes.Structure):
    """The links of movement.hpp."""

    _fields_ = [
        *((name, ctypes.c_long) for name in ("sources", "targets", "width", "blocks")),
        *((name, ctypes.c_void_p) for name in ("source_of", "start", "readers")),
    ]


class ExchangeStruct(ctypes.Structure):
    """The exchange of deep500/communication.h."""

    _fields_ = [
        *((name, ctypes.c_long) for name in ("neighbours", "width")),
        *((name, ctypes.c_void_p) for name in ("ranks", "send_start", "send", "receive_start", "receive")),
    ]


class Mesh(ctypes.Structure):
    """The mesh of hydro.cpp."""

    _fields_ = [
        *((name, ctypes.c_long) for name in ("nodes", "elements", "ghosts", "blocks", "steps", "regions")),
        ("first_step", ctypes.c_double),
        *(
            (name, ctypes.c_void_p)
            for name in ("mass", "nodal_mass", "free", "region_start", "region_elements", "gases")
        ),
    ]


class Ways(ctypes.Structure):
    """The ways of hydro.cpp."""

    _fields_ = [("corners", Links), ("beside", Links), ("shared", ExchangeStruct), ("borders", ExchangeStruct)]


@dataclass(frozen=True)
class Box:
    """The problem to solve.

    Attributes:
        shape: elements in each direction, of the whole box.
        ranks: parts in each direction.
        steps: of time.
        regions: kinds of gas, 1 to 3.
        blocks: that each loop is divided into; at least as many as threads.
        perturbation: of the start, as a part of a cell; 0 is Sedov's problem itself.
    """

    shape: tuple[int, int, int]
    ranks: tuple[int, int, int] = (1, 1, 1)
    steps: int = 5
    regions: int = 3
    blocks: int = 8
    perturbation: float = 0.1


def parts_of(ranks: int) -> tuple[int, int, int]:
    """Ranks in each direction, as near to a cube as whole numbers allow.

    Example:
        >>> parts_of(4)
        (1, 2, 2)
    """
    whole = [(a, b, ranks // (a * b)) for a in range(1, ranks + 1) for b in range(a, ranks + 1) if ranks % (a * b) == 0]
    return min((t for t in whole if t[1] <= t[2]), key=lambda t: t[2] - t[0])


def _bounds(cells: int, parts: int, part: int) -> tuple[int, int]:
    return cells * part // parts, cells * (part + 1) // parts


class BoxPart(proxy.ProblemPart):
    """One rank's part of a box: arrays, and the structures that hold their addresses.

    Args:
        box: the whole.
        rank: whose part.

    Inputs are position and velocity (three for each node), energy per mass (of each element) and the time; so are
    results.
    """

    name, in_place = "hydro", True

    def __init__(self, box: Box, rank: int) -> None:
        self.box, self.rank = box, rank
        self.kept: Arrays = []
        self.limits = [self._limits(other) for other in range(int(np.prod(box.ranks)))]
        self.nodes, self.elements = self._nodes(self.limits[rank]), self._elements(self.limits[rank])
        others = [self._nodes(limits) for limits in self.limits]
        mine = np.ones(len(self.nodes))
        for other in range(rank):  # a node on a border belongs to the first rank that has it
            mine[np.isin(self.nodes, others[other])] = 0
        nodal = (3 * self.nodes[:, None] + np.arange(3)).ravel()
        self.at = self.result_at = [nodal, nodal, self.elements, np.zeros(1, dtype=int)]
        first = np.array([float(rank == 0)])
        self.result_owned = [np.repeat(mine, 3), np.repeat(mine, 3), np.ones(len(self.elements)), first]
        self.sizes = self.result_sizes = [3 * int(np.prod([n + 1 for n in box.shape]))] * 2 + [
            int(np.prod(box.shape)),
            1,
        ]
        self.start = self._start()
        corners = self._corners()
        shared = {p: np.flatnonzero(np.isin(self.nodes, others[p])) for p in range(len(others)) if p != rank}
        beside, sent, received, ghosts = self._borders()
        mesh = self._mesh(ghosts)
        ways = Ways(
            self._links(corners, len(self.nodes), 3),
            self._links(beside, 3 * (len(self.elements) + ghosts), 1),
            self._exchange(shared, shared, 3),
            self._exchange(sent, received, 3),
        )
        self.constants, self.constant_count = [mesh, ways], len(self.kept)
        shadow = Mesh.from_buffer_copy(mesh)
        for name, size in (("mass", len(self.mass)), ("nodal_mass", len(self.nodes)), ("free", 3 * len(self.nodes))):
            setattr(shadow, name, self._keep(np.zeros(size)).ctypes.data)
        shadow.gases = self._keep(np.zeros(np.size(REGIONS))).ctypes.data
        self.constant_shadows = [shadow]

    def unchanged(self) -> Arrays:
        """Of mesh and links, without the shadows' work space."""
        return self.kept[: self.constant_count]

    def _limits(self, rank: int) -> list[tuple[int, int]]:
        place = np.unravel_index(rank, self.box.ranks)
        return [_bounds(n, p, int(i)) for n, p, i in zip(self.box.shape, self.box.ranks, place, strict=True)]

    def _nodes(self, limits: Sequence[tuple[int, int]]) -> Integers:
        grid = np.meshgrid(*(np.arange(low, high + 1) for low, high in limits), indexing="ij")
        return np.ravel_multi_index([g.ravel() for g in grid], [n + 1 for n in self.box.shape])

    def _elements(self, limits: Sequence[tuple[int, int]]) -> Integers:
        grid = np.meshgrid(*(np.arange(low, high) for low, high in limits), indexing="ij")
        return np.ravel_multi_index([g.ravel() for g in grid], self.box.shape)

    def _start(self) -> list[np.ndarray]:
        """Of the whole box, cut to this part; components that a plane of symmetry holds stay where they are."""
        rng, size = np.random.default_rng(0), [n + 1 for n in self.box.shape]
        cell = 1 / max(self.box.shape)
        places = np.stack(np.unravel_index(np.arange(np.prod(size)), size), axis=1)
        self.free = self._keep((places[self.nodes] > 0).astype(float).ravel())
        noise = self.box.perturbation * rng.uniform(-1, 1, (2, *places.shape)) * (places > 0)
        energy = BACKGROUND * (1 + self.box.perturbation * rng.uniform(-1, 1, np.prod(self.box.shape)))
        energy[0] += BLAST / cell**3 / 8
        count = np.where((places == 0) | (places == self.box.shape), 1, 2).prod(axis=1)
        self.nodal_mass = self._keep(count[self.nodes] * cell**3 / 8)
        self.mass = self._keep(np.full(len(self.elements), cell**3))
        position, velocity = (places + noise[0]) * cell, noise[1] * 0.5
        return [position[self.nodes].ravel(), velocity[self.nodes].ravel(), energy[self.elements], np.zeros(1)]

    def _corners(self) -> Integers:
        """Node of every corner: eight for an element, numbered by bits of x, y, z."""
        places = np.stack(np.unravel_index(self.elements, self.box.shape), axis=1)
        steps = np.array([[c & 1, c >> 1 & 1, c >> 2] for c in range(8)])
        corners = (places[:, None] + steps).reshape(-1, 3).T
        return np.searchsorted(self.nodes, np.ravel_multi_index(corners, [n + 1 for n in self.box.shape]))

    def _borders(self) -> tuple[Integers, dict[int, Integers], dict[int, Integers], int]:
        """From where each element reads its six neighbours' gradients, what is sent to whom, what comes, ghosts.

        An element at the end of the box is its own neighbour.
        """
        places = np.stack(np.unravel_index(self.elements, self.box.shape), axis=1)
        owner = np.empty(np.prod(self.box.shape), dtype=int)
        for rank, limits in enumerate(self.limits):
            owner[self._elements(limits)] = rank
        beside = np.empty((len(places), 6), dtype=int)
        for d in range(3):
            for side, step in enumerate((-1, 1)):
                moved = places.copy()
                moved[:, d] = np.clip(places[:, d] + step, 0, self.box.shape[d] - 1)
                beside[:, 2 * d + side] = np.ravel_multi_index(moved.T, self.box.shape)
        foreign = owner[beside] != self.rank
        ghosts = np.unique(beside[foreign])
        ghosts = ghosts[np.argsort(owner[ghosts], kind="stable")]
        slots = {int(e): len(self.elements) + i for i, e in enumerate(ghosts)}
        local = np.searchsorted(self.elements, np.where(foreign, self.elements[0], beside))
        local[foreign] = [slots[int(e)] for e in beside[foreign]]
        flat = 3 * local + np.repeat(np.arange(3), 2)
        neighbours = np.unique(owner[ghosts])
        received = {int(p): np.array([slots[int(e)] for e in ghosts[owner[ghosts] == p]]) for p in neighbours}
        sent = {int(p): np.flatnonzero(((owner[beside] == p) & foreign).any(axis=1)) for p in neighbours}
        return flat.ravel(), sent, received, len(ghosts)

    def _mesh(self, ghosts: int) -> Mesh:
        count = self.box.regions
        kind = np.random.default_rng(1).integers(0, count, np.prod(self.box.shape))[self.elements]
        start = np.concatenate([[0], np.cumsum(np.bincount(kind, minlength=count))])
        return Mesh(
            len(self.nodes),
            len(self.elements),
            ghosts,
            self.box.blocks,
            self.box.steps,
            count,
            1e-3 / max(self.box.shape),
            *(a.ctypes.data for a in (self.mass, self.nodal_mass, self.free)),
            *(self._keep(a).ctypes.data for a in (start, np.argsort(kind, kind="stable"), np.array(REGIONS))),
        )

    def _links(self, source_of: Integers, sources: int, width: int) -> Links:
        start = np.concatenate([[0], np.cumsum(np.bincount(source_of, minlength=sources))])
        arrays = (source_of, start, np.argsort(source_of, kind="stable"))
        return Links(sources, len(source_of), width, self.box.blocks, *(self._keep(a).ctypes.data for a in arrays))

    def _exchange(self, sent: dict[int, Integers], received: dict[int, Integers], width: int) -> ExchangeStruct:
        ranks = [p for p in sent if len(sent[p])]
        arrays: list[Integers] = [np.array(ranks, dtype=int)]
        for lists in (sent, received):
            parts = [lists[p] for p in ranks]
            arrays.append(np.cumsum([0, *(len(part) for part in parts)]))
            arrays.append(np.concatenate([np.zeros(0, dtype=int), *parts]))
        return ExchangeStruct(len(ranks), width, *(self._keep(a).ctypes.data for a in arrays))

    def _keep(self, array: np.ndarray) -> np.ndarray:
        """In memory that stays, as C++ reads it."""
        array = np.ascontiguousarray(array, dtype=float if array.dtype.kind == "f" else np.int64)
        self.kept.append(array)
        return array
