"""Several environments side by side, as `gymnasium` defines them: observations, actions, rewards.

Rewards that are no numbers are an error when they come, and an episode that does not end is cut off: a run that hangs,
or that goes on with NaN, would waste hours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.errors import InputError, MissingBackend, nearest

MOST_STEPS = 10_000
"""An episode is cut off after so many steps, unless its environment ends it before."""


@dataclass(frozen=True)
class Spaces:
    """The observations and actions of an environment.

    Attributes:
        observation: shape of what is observed.
        actions: number of actions.
    """

    observation: tuple[int, ...]
    actions: int


def maker(environment: str | Callable[..., Any], **keywords: Any) -> Callable[[], Any]:
    """A function that makes one environment.

    Args:
        environment: an id such as ``"CartPole-v1"``, or a callable that returns an environment.
        keywords: for it.

    Raises:
        MissingBackend: gymnasium is not installed.
        InputError: no environment of that id.
    """
    if callable(environment):
        return lambda: environment(**keywords)
    try:
        import gymnasium
    except ImportError as error:
        raise MissingBackend(
            "got no gymnasium; expected it for environments: pip install 'deep500[control]'"
        ) from error
    if environment not in gymnasium.registry:
        raise InputError(
            f"got environment {environment!r}; expected one that gymnasium knows: "
            f"{nearest(environment, gymnasium.registry)}"
        )
    return lambda: gymnasium.make(environment, **keywords)


def spaces_of(make: Callable[[], Any], name: str) -> Spaces:
    """The spaces of an environment.

    Raises:
        InputError: observations that are no array of numbers, or actions that are not numbered.
    """
    environment = make()
    try:
        observed, taken = environment.observation_space, environment.action_space
        shape, actions = getattr(observed, "shape", None), getattr(taken, "n", None)
        if not shape or not np.issubdtype(getattr(observed, "dtype", np.dtype(object)), np.number):
            raise InputError(
                f"environment {name!r}: got observations {observed}; expected a Box of numbers: wrap the environment, "
                "states that are numbered by gymnasium.wrappers.FlattenObservation"
            )
        if actions is None or getattr(taken, "start", 0) != 0 or getattr(taken, "shape", ()) != ():
            raise InputError(
                f"environment {name!r}: got actions {taken}; expected Discrete(n), which these algorithms need: choose "
                "another environment or number its actions by a wrapper"
            )
        return Spaces(tuple(shape), int(actions))
    finally:
        environment.close()


class Environments:
    """Environments that are stepped together; one that ends begins anew by itself.

    Args:
        make: makes one.
        count: how many.
        name: for errors.
        most_steps: longest episode.
    """

    def __init__(self, make: Callable[[], Any], count: int, name: str = "environment", most_steps: int = MOST_STEPS):
        self.environments = [make() for _ in range(count)]
        self.name, self.most_steps = name, most_steps
        self.steps = np.zeros(count, np.int64)

    def reset(self, seeds: Iterable[int]) -> np.ndarray:
        """Begin an episode in each; returns what is observed, float32 (count, ...)."""
        self.steps[:] = 0
        return np.stack(
            [
                _seen(environment.reset(seed=int(seed))[0])
                for environment, seed in zip(self.environments, seeds, strict=True)
            ]
        )

    def step(self, actions: np.ndarray, alive: np.ndarray | None = None, again: bool = True) -> Step:
        """Act in each.

        Args:
            actions: (count,).
            alive: those that are not are left alone, and pay nothing.
            again: begin anew where an episode ends.

        Raises:
            InputError: a reward or an observation that is no finite number.
        """
        count = len(self.environments)
        result = Step(np.zeros(0), np.zeros(0), np.zeros(count), np.zeros(count, bool), np.zeros(count, bool))
        after: list[np.ndarray | None] = []
        final: list[np.ndarray | None] = []
        for number, environment in enumerate(self.environments):
            if alive is not None and not alive[number]:
                after.append(None)
                final.append(None)
                continue
            seen, reward, result.terminated[number], cut, _ = environment.step(int(actions[number]))
            self.steps[number] += 1
            result.truncated[number] = (cut or self.steps[number] >= self.most_steps) and not result.terminated[number]
            result.rewards[number] = reward
            observed = _seen(seen)
            if not np.isfinite(result.rewards[number]) or not np.isfinite(observed).all():
                raise InputError(
                    f"environment {self.name!r}: got reward {reward} and observation {observed.tolist()} in step "
                    f"{self.steps[number]} of an episode; expected finite numbers: mend the environment"
                )
            final.append(observed)
            if again and (result.terminated[number] or result.truncated[number]):
                self.steps[number] = 0
                observed = _seen(environment.reset()[0])
            after.append(observed)
        blank = np.zeros_like(next(value for value in final if value is not None))
        result.observations = np.stack([blank if value is None else value for value in after])
        result.final = np.stack([blank if value is None else value for value in final])
        return result

    def close(self) -> None:
        """Free what they hold."""
        for environment in self.environments:
            environment.close()


@dataclass
class Step:
    """The outcome of one action in each environment.

    Attributes:
        observations: where the next step begins: after an end, in a new episode.
        final: where this step led.
        rewards: what was paid.
        terminated: the episode has ended by its rules.
        truncated: it was cut off, though it would go on.
    """

    observations: np.ndarray
    final: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray

    @property
    def ended(self) -> np.ndarray:
        """Return whether the episode is over, for either reason."""
        return self.terminated | self.truncated


def _seen(observation: Any) -> np.ndarray:
    """A copy, as an environment may fill one array again and again."""
    return np.array(observation, np.float32)
