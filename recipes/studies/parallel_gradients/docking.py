"""The docking proxy's problem: a protein, a ligand and poses, made up; the poses are divided among ranks."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

from recipes.studies.parallel_gradients import proxy
from recipes.studies.parallel_gradients.proxy import Arrays, address

TEMPERATURE = 5.0


class Deck(ctypes.Structure):
    """The deck of docking.cpp."""

    _fields_ = [
        *((name, ctypes.c_long) for name in ("poses", "ligands", "proteins", "blocks")),
        ("temperature", ctypes.c_double),
        ("ligand", ctypes.c_void_p),
        ("protein", ctypes.c_void_p),
    ]


@dataclass(frozen=True)
class Deal:
    """The problem to solve.

    Attributes:
        poses: of all ranks.
        ligands, proteins: atoms of the ligand and of the protein.
        ranks: that share the poses.
        blocks: that each loop is divided into; at least as many as threads.
    """

    poses: int
    ligands: int = 26
    proteins: int = 128
    ranks: int = 1
    blocks: int = 16


class PosesPart(proxy.ProblemPart):
    """One rank's poses.

    Args:
        deal: the whole.
        rank: whose part.

    Inputs are three angles and a translation for each pose; results its energy, and the free energy, which is rank 0's.
    """

    name, in_place = "docking", False

    def __init__(self, deal: Deal, rank: int) -> None:
        rng = np.random.default_rng(2)
        self.atoms = [_atoms(rng, deal.ligands, 4.0), _atoms(rng, deal.proteins, 9.0)]
        angles, places = rng.uniform(-np.pi, np.pi, (deal.poses, 3)), rng.uniform(-6, 6, (deal.poses, 3))
        low, high = (deal.poses * r // deal.ranks for r in (rank, rank + 1))
        self.start = [np.concatenate([angles, places], axis=1)[low:high].ravel()]
        self.sizes, self.at = [6 * deal.poses], [np.arange(6 * low, 6 * high)]
        self.result_sizes, self.result_at = [deal.poses, 1], [np.arange(low, high), np.zeros(1, dtype=int)]
        self.result_owned = [np.ones(high - low), np.array([float(rank == 0)])]
        self.work_space = [np.zeros_like(atoms) for atoms in self.atoms]
        sizes = (high - low, deal.ligands, deal.proteins, deal.blocks)
        self.constants = [Deck(*sizes, TEMPERATURE, *map(address, self.atoms))]
        self.constant_shadows = [Deck(*sizes, 0.0, *map(address, self.work_space))]

    def unchanged(self) -> Arrays:
        """The atoms."""
        return self.atoms


def _atoms(rng: np.random.Generator, count: int, extent: float) -> np.ndarray:
    """Position, radius, charge, hydrophobicity."""
    return np.concatenate(
        [
            rng.uniform(-extent, extent, (count, 3)),
            rng.uniform(1.2, 2.0, (count, 1)),
            rng.uniform(-0.8, 0.8, (count, 1)),
            rng.uniform(0, 1, (count, 1)),
        ],
        axis=1,
    )
