"""Episodes of an environment in the place of samples: a data set of seeds.

Training data are made by acting, which a task does (:mod:`deep500.tasks.control`); what a sampler can shuffle, divide
among ranks and resume are the seeds of it. Seeds of episodes that are judged by are never those that training begins
with.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from deep500.errors import InputError
from deep500.tasks.environments import maker, spaces_of
from deep500.training.data.dataset import Batch, Dataset, Index, as_index

FIRST_FRESH, FIRST_LAST = 2**31, 2**31 + 2**30
"""Seeds from here on are for episodes of validations, and for those that judge once, at the end."""


class Episodes(Dataset):
    """Seeds of an environment.

    Args:
        environment: a gymnasium id, or a callable that returns an environment.
        length: samples in an epoch: transitions that are trained on, each as often as it is used, or episodes.
        first: the smallest seed.
        keywords: for the environment.

    Attributes:
        make: makes one environment.
        classes: number of actions; ``shape`` is that of what is observed.

    Raises:
        InputError: no such environment, or spaces that do not fit, see :func:`deep500.tasks.environments.spaces_of`.
    """

    input_name = "input"  # what the network reads is made by acting
    label_name = "seed"

    def __init__(self, environment: str | Callable[..., Any], length: int, first: int = 0, **keywords: Any) -> None:
        if length < 1:
            raise InputError(f"got {length} samples of an environment; expected at least 1")
        self.name = environment if isinstance(environment, str) else getattr(environment, "__name__", "environment")
        self.make = maker(environment, **keywords)
        spaces = spaces_of(self.make, self.name)
        self.shape, self.classes = spaces.observation, spaces.actions
        self.first, self.keywords, self._length = first, keywords, length
        self.provenance = f"environment {self.name}" + (f" with {keywords}" if keywords else "")

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Index) -> Batch:
        where = as_index(index)
        return {"seed": np.asarray(np.arange(self.first, self.first + len(self))[where])}

    def digest(self) -> str:
        text = f"{self.name} {sorted(self.keywords.items())} {self.first} {len(self)} {self.shape} {self.classes}"
        return hashlib.sha256(text.encode()).hexdigest()


def episodes(
    environment: str | Callable[..., Any], samples: int = 8192, judged: int = 100, **keywords: Any
) -> tuple[Episodes, Episodes, Episodes]:
    """Make the data of the recipe key ``environment``: acting to train, fresh episodes to validate, others at the end.

    Args:
        environment: a gymnasium id such as ``"CartPole-v1"``, or a callable.
        samples: transitions that an epoch trains on, each as often as it is used.
        judged: episodes of each validation, and as many at the end.
        keywords: for the environment.
    """
    return (
        Episodes(environment, samples, **keywords),
        Episodes(environment, judged, FIRST_FRESH, **keywords),
        Episodes(environment, judged, FIRST_LAST, **keywords),
    )
