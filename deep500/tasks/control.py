"""Control: a network acts in environments, learns from what it is paid, and is judged by fresh episodes.

Both algorithms are written once over ``executor.inference`` and what a batch feeds to ``optimizer.step``, so they run
on every backend. An epoch begins with new episodes, whose seeds come from its batches: a run that is resumed acts as
one that was never stopped.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from deep500.errors import InputError
from deep500.tasks.environments import MOST_STEPS, Environments
from deep500.tasks.gallery import Exhibit, Gallery
from deep500.tasks.task import Quality, Sums, Task

if TYPE_CHECKING:
    from deep500.networks.network import Network

JUDGED = ("episode_return", "episode_length")


class Control(Task):
    """The base of PPO and Q-learning: acting, and judging by greedy episodes.

    A batch of the sampler holds seeds; what the network is trained on is made by acting. Validation plays one episode
    for each seed of its batch, always with the best action, and sums up what is paid.

    Args:
        dataset: :class:`deep500.training.data.episodes.Episodes`, whose environments are acted in.
        environments: how many are acted in side by side.
        discount: of rewards, per step.
        most_steps: longest episode; one that would go on is cut off there.
        observed: the network's input.

    Attributes:
        counts: of this run, since it began or was resumed: environment steps and episodes of training, seconds of the
            environments and of the network in collecting them.
    """

    sample = "transition"
    qualities = (Quality("mean_return"), Quality("mean_episode_length"))
    judges_training = False

    def __init__(
        self,
        dataset: Any,
        *,
        environments: int = 8,
        discount: float = 0.99,
        most_steps: int = MOST_STEPS,
        observed: str = "input",
        label: str = "seed",
        output: str | None = None,
        loss: str = "loss",
    ) -> None:
        super().__init__(label, output, loss)
        if not callable(getattr(dataset, "make", None)):
            raise InputError(
                f"got data {getattr(dataset, 'name', dataset)!r}; expected episodes of an environment: give the recipe "
                "key 'environment', such as 'CartPole-v1'"
            )
        if environments < 1 or not 0 <= discount <= 1:
            raise InputError(
                f"got environments={environments}, discount={discount}; expected at least one, and a number from 0 to 1"
            )
        self.make, self.environment, self.actions = dataset.make, dataset.name, dataset.classes
        self.environments, self.discount, self.most_steps, self.observed = environments, discount, most_steps, observed
        self.counts = {"environment steps": 0, "episodes": 0, "environment seconds": 0.0, "inference seconds": 0.0}

    def __init_subclass__(cls, **options: Any) -> None:
        """Write out what ``**shared`` of a constructor stands for, because recipes are checked by its signature."""
        super().__init_subclass__(**options)
        constructor: Any = cls.__init__
        named = dict(inspect.signature(constructor).parameters)
        if "__init__" in cls.__dict__ and named.pop("shared", None) is not None:
            every = {**inspect.signature(Control.__init__).parameters, **named}
            order = [*named, *(name for name in every if name not in named)]
            constructor.__signature__ = inspect.Signature([every[name] for name in order], return_annotation="None")

    def count(self, batch: Mapping[str, Any]) -> int:
        """Transitions, or episodes where the batch is seeds."""
        first = next(iter(batch.values()))
        return int(np.shape(first)[0]) if np.shape(first) else 1

    # -- acting -----------------------------------------------------------------------------------------------------
    def infer(self, executor: Any, observations: np.ndarray) -> np.ndarray:
        """The judged output for what is observed, as a NumPy array."""
        begin = time.perf_counter()
        with _region(executor, "inference"):
            output = executor.inference({self.observed: observations}, [self.output])[self.output]
            array: np.ndarray = executor.network.to_numpy(output)
        self.counts["inference seconds"] += time.perf_counter() - begin
        return array

    def act(self, worlds: Environments, actions: np.ndarray) -> Any:
        """One step of training in every environment, counted."""
        begin = time.perf_counter()
        step = worlds.step(actions)
        self.counts["environment seconds"] += time.perf_counter() - begin
        self.counts["environment steps"] += len(actions)
        self.counts["episodes"] += int(step.ended.sum())
        return step

    def begin(self, seeds: np.ndarray) -> tuple[Environments, np.ndarray, np.random.Generator]:
        """Environments with new episodes, what is observed there, and a generator, all decided by a batch's seeds."""
        rng = np.random.default_rng([int(seed) for seed in np.ravel(seeds)[:8]])
        worlds = Environments(self.make, self.environments, self.environment, self.most_steps)
        return worlds, worlds.reset(rng.integers(0, 2**31, self.environments)), rng

    def best_actions(self, output: np.ndarray) -> np.ndarray:
        """The action that is best by the network's output (N, ...)."""
        best: np.ndarray = output[:, : self.actions].argmax(axis=1)
        return best

    def predict(self, executor: Any, batch: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
        """Return and length of one greedy episode for each seed; there is no loss."""
        seeds = np.asarray(batch[self.label])
        worlds = Environments(self.make, len(seeds), self.environment, self.most_steps)
        observed, alive = worlds.reset(seeds), np.ones(len(seeds), bool)
        returns, lengths = np.zeros(len(seeds)), np.zeros(len(seeds))
        while alive.any():
            # always all of them, so that compilers see one shape
            output = executor.network.to_numpy(
                executor.inference({self.observed: observed}, [self.output])[self.output]
            )
            step = worlds.step(self.best_actions(output), alive, again=False)
            returns += step.rewards
            lengths += alive
            observed = step.observations
            alive &= ~step.ended
        worlds.close()
        return dict(zip(JUDGED, (returns, lengths), strict=True))

    # -- judging ----------------------------------------------------------------------------------------------------
    def judged_outputs(self) -> tuple[str, ...]:
        """Return and length of episodes."""
        return JUDGED

    def zero(self) -> dict[str, np.ndarray]:
        """No episode played."""
        return {name: np.zeros(()) for name in ("returns", "lengths", "episodes")}

    def judge(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        """Sums of returns and lengths."""
        returns, lengths = (np.asarray(outputs[name]) for name in JUDGED)
        return {"returns": returns.sum(), "lengths": lengths.sum(), "episodes": returns.size}

    def measure(self, sums: Sums, loss: float | None) -> dict[str, float | None]:
        """Means over episodes; None without one."""
        count = float(sums["episodes"])
        values = [float(sums[name]) / count if count else None for name in ("returns", "lengths")]
        return dict(zip(("mean_return", "mean_episode_length"), values, strict=True))

    def decode(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> list[Any]:
        """Return and length of each episode."""
        pairs = zip(*(np.asarray(outputs[name]).tolist() for name in JUDGED), strict=True)
        return [{"return": value, "length": int(length)} for value, length in pairs]

    def gallery(self) -> Gallery:
        """Returns of the episodes that judged, and what training cost."""
        return ControlGallery(self)


@contextmanager
def _region(executor: Any, name: str) -> Iterator[None]:
    """Tell listeners of the executor that a region of :data:`deep500.events.REGIONS` begins and ends."""
    events = executor.events
    before, after = getattr(events, f"before_{name}"), getattr(events, f"after_{name}")
    if before:
        events.emit(before, executor)
    try:
        yield
    finally:
        if after:
            events.emit(after, executor)


class ControlGallery(Gallery):
    """A row per episode: its seed, return and length."""

    task: Control

    def zero(self) -> dict[str, np.ndarray]:
        """No episode."""
        return {"episodes": np.zeros((0, 3))}

    def judge(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        """Rows of a batch."""
        return {"episodes": np.column_stack([batch[self.task.label], *(outputs[name] for name in JUDGED)])}

    def exhibits(self, sums: Sums) -> list[Exhibit]:
        """Returns in order, and counts."""
        rows = sums["episodes"]
        if not len(rows):
            return []
        order = np.sort(rows[:, 1])[::-1]
        cost = [[name, round(value, 3)] for name, value in self.task.counts.items()]
        return [
            {
                "kind": "lines",
                "title": "What do fresh episodes come to?",
                "lines": {"return": [list(range(1, len(order) + 1)), order.tolist()]},
                "x_axis": "episode, best first",
                "y_axis": "return",
                "caption": f"{len(order)} greedy episodes of {self.task.environment}",
            },
            {
                "kind": "table",
                "title": "What did training act?",
                "columns": ["what", "how much"],
                "rows": cost,
                "caption": "since this process began; on several ranks, of the first one",
            },
        ]


class ProximalPolicyOptimization(Control):
    """PPO with clipping (Schulman et al. 2017, arXiv 1707.06347).

    All environments act for ``horizon`` steps; advantages are generalised estimates (Schulman et al. 2016, arXiv
    1506.02438, equation 16), normalised in each minibatch; then every transition is trained on ``passes`` times, in
    as few minibatches of at most the recipe's batch size as hold all, which differ by one at most.

    Args:
        dataset, shared: of :class:`Control`.
        horizon: steps of every environment between updates.
        passes: how often a transition is trained on.
        trace: lambda of the advantages' estimate.
        clip, value_weight, entropy_weight: of the loss, see :func:`deep500.networks.policy_losses.add_ppo_loss`.
    """

    name = "ppo"

    def __init__(
        self,
        dataset: Any,
        *,
        horizon: int = 128,
        passes: int = 4,
        trace: float = 0.95,
        clip: float = 0.2,
        value_weight: float = 0.5,
        entropy_weight: float = 0.01,
        **shared: Any,
    ) -> None:
        super().__init__(dataset, **shared)
        if horizon < 1 or passes < 1:
            raise InputError(f"got horizon={horizon}, passes={passes}; expected at least 1 of each")
        self.horizon, self.passes, self.trace = horizon, passes, trace
        self.clip, self.value_weight, self.entropy_weight = clip, value_weight, entropy_weight

    def add_loss(self, network: Network) -> Network:
        """The network with the clipped surrogate."""
        from deep500.networks.policy_losses import add_ppo_loss

        weights = {"value_weight": self.value_weight, "entropy_weight": self.entropy_weight}
        return add_ppo_loss(network, clip=self.clip, **weights, output=self.output, loss=self.loss)

    def batches(self, sampler: Any, executor: Any) -> Iterator[dict[str, Any]]:
        """Yield as many minibatches as the sampler has batches, of their size."""
        worlds: Environments | None = None
        ready: list[dict[str, Any]] = []
        for batch in sampler:
            seeds = batch[self.label]
            if worlds is None:
                worlds, observed, rng = self.begin(seeds)
            if not ready:
                with _region(executor, "collection"):
                    rollout, observed = self._rollout(executor, worlds, observed, rng)
                ready = list(self._minibatches(rollout, len(seeds), rng))[::-1]
            yield ready.pop()
        if worlds is not None:
            worlds.close()

    def _rollout(
        self, executor: Any, worlds: Environments, observed: np.ndarray, rng: np.random.Generator
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Transitions (horizon * environments, ...) by name, and what is observed after them."""
        collected: dict[str, list[np.ndarray]] = {}
        for _ in range(self.horizon):
            output = self.infer(executor, observed)
            logits, value = output[:, :-1], output[:, -1]
            log_policy = logits - logits.max(axis=1, keepdims=True)
            log_policy = log_policy - np.log(np.exp(log_policy).sum(axis=1, keepdims=True))
            # Gumbel's trick draws from the policy
            action = (log_policy + rng.gumbel(size=log_policy.shape)).argmax(axis=1)
            step = self.act(worlds, action)
            after = np.where(step.truncated, self._value(executor, step), 0.0)
            facts = {
                self.observed: observed,
                "action": action,
                "log_probability": log_policy[np.arange(len(action)), action],
                "value": value,
                "reward": step.rewards + self.discount * after,
                "ended": step.ended,
            }
            for name, fact in facts.items():
                collected.setdefault(name, []).append(fact)
            observed = step.observations
        transitions = {name: np.stack(facts) for name, facts in collected.items()}
        advantage = advantages(
            transitions["reward"],
            transitions["value"],
            transitions["ended"],
            self.infer(executor, observed)[:, -1],
            self.discount,
            self.trace,
        )
        transitions |= {"advantage": advantage, "wanted_value": advantage + transitions["value"]}
        used = (self.observed, "action", "log_probability", "advantage", "wanted_value")
        return {name: transitions[name].reshape(-1, *transitions[name].shape[2:]) for name in used}, observed

    def _value(self, executor: Any, step: Any) -> np.ndarray | float:
        """Return what episodes that were cut off would still have come to."""
        return self.infer(executor, step.final)[:, -1] if step.truncated.any() else 0.0

    def _minibatches(
        self, rollout: Mapping[str, np.ndarray], size: int, rng: np.random.Generator
    ) -> Iterator[dict[str, Any]]:
        transitions = len(rollout["action"])
        if size > transitions:
            raise InputError(
                f"got batch_size={size}; expected at most {transitions}, the {self.horizon} steps of "
                f"{self.environments} environments: make it smaller, or the horizon longer"
            )
        for _ in range(self.passes):
            # in as few parts of at most ``size`` as there can be, which differ by one
            for part in np.array_split(rng.permutation(transitions), -(-transitions // size)):
                some = {name: values[part] for name, values in rollout.items()}
                advantage = some["advantage"]
                some["advantage"] = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                yield {name: v if name == "action" else np.asarray(v, np.float32) for name, v in some.items()}


def advantages(
    rewards: np.ndarray, values: np.ndarray, ended: np.ndarray, last: np.ndarray, discount: float, trace: float
) -> np.ndarray:
    """Generalised estimates of the advantage, (steps, environments).

    A_t = d_t + discount * trace * (1 - ended_t) * A_{t+1} with d_t = r_t + discount * (1 - ended_t) * V_{t+1} - V_t.

    Args:
        rewards, values, ended: (steps, environments).
        last: value of what is observed after the last step.
        discount, trace: gamma and lambda.

    Example:
        >>> one = np.ones((2, 1))
        >>> advantages(one, 0 * one, np.array([[False], [True]]), np.array([9.0]), 0.5, 1.0).ravel().tolist()
        [1.5, 1.0]
    """
    estimates = np.zeros(rewards.shape)
    following, after = np.asarray(last, np.float64), np.zeros(rewards.shape[1:])
    for t in range(len(rewards) - 1, -1, -1):
        goes_on = 1.0 - ended[t]
        delta = rewards[t] + discount * goes_on * following - values[t]
        after = delta + discount * trace * goes_on * after
        estimates[t], following = after, values[t]
    return estimates


class DeepQLearning(Control):
    """Q-learning with a replay memory and a target network (Mnih et al. 2015; ``double``: van Hasselt et al. 2016).

    Between two updates the environments act ``acting`` steps, at random with a probability that falls from 1 to
    ``explore`` over the first ``exploring`` environment steps of a run. The memory begins empty with every epoch, so
    that a resumed run is one that was never stopped: make epochs long.

    Args:
        dataset, shared: of :class:`Control`.
        memory: transitions that are remembered.
        before: transitions that are collected before the first update of an epoch.
        acting: steps of all environments between two updates.
        explore, exploring: as above; steps are counted by updates, so that a resumed run goes on.
        refresh: updates between two copies of the parameters into the target network.
        double: see :func:`deep500.networks.policy_losses.add_q_loss`.
    """

    name = "dqn"

    def __init__(
        self,
        dataset: Any,
        *,
        memory: int = 50_000,
        before: int = 1_000,
        acting: int = 1,
        explore: float = 0.05,
        exploring: int = 10_000,
        refresh: int = 200,
        double: bool = True,
        **shared: Any,
    ) -> None:
        super().__init__(dataset, **shared)
        if min(memory, before, acting, refresh) < 1 or not 0 <= explore <= 1:
            raise InputError(
                f"got memory={memory}, before={before}, acting={acting}, refresh={refresh}, explore={explore}; "
                "expected at least 1 of each, and a probability"
            )
        self.memory, self.before, self.acting, self.refresh = memory, before, acting, refresh
        self.explore, self.exploring, self.double = explore, exploring, double

    def add_loss(self, network: Network) -> Network:
        """The network with its target network and the loss of its temporal differences."""
        from deep500.networks.policy_losses import add_q_loss

        return add_q_loss(network, discount=self.discount, double=self.double, output=self.output, loss=self.loss)

    def batches(self, sampler: Any, executor: Any) -> Iterator[dict[str, Any]]:
        """Yield as many minibatches from the memory as the sampler has batches, of their size."""
        worlds: Environments | None = None
        updates = len(sampler) * getattr(sampler, "epoch", 0)
        for batch in sampler:
            seeds = batch[self.label]
            if worlds is None:
                worlds, observed, rng = self.begin(seeds)
                memory = Memory(self.memory)
                while len(memory) < max(self.before, len(seeds)):
                    observed = self._act(executor, worlds, observed, memory, rng, updates)
            for _ in range(self.acting):
                observed = self._act(executor, worlds, observed, memory, rng, updates)
            if updates % self.refresh == 0:
                self._copy(executor.network)
            updates += 1
            yield memory.draw(len(seeds), rng)
        if worlds is not None:
            worlds.close()

    def _act(
        self,
        executor: Any,
        worlds: Environments,
        observed: np.ndarray,
        memory: Memory,
        rng: np.random.Generator,
        updates: int,
    ) -> np.ndarray:
        with _region(executor, "collection"):
            return self._explore(executor, worlds, observed, memory, rng, updates)

    def _explore(
        self,
        executor: Any,
        worlds: Environments,
        observed: np.ndarray,
        memory: Memory,
        rng: np.random.Generator,
        updates: int,
    ) -> np.ndarray:
        done = updates * self.acting * self.environments / max(self.exploring, 1)
        chance = max(self.explore, 1 - (1 - self.explore) * done)
        action = self.best_actions(self.infer(executor, observed))
        action = np.where(rng.random(len(action)) < chance, rng.integers(0, self.actions, len(action)), action)
        step = self.act(worlds, action)
        memory.add(
            {
                self.observed: observed,
                f"next_{self.observed}": step.final,
                "action": action,
                "reward": step.rewards.astype(np.float32),
                "ended": step.terminated.astype(np.float32),
            }
        )
        return np.asarray(step.observations)

    @staticmethod
    def _copy(network: Any) -> None:
        from deep500.networks.policy_losses import TARGET

        names = network.get_params()
        for name, value in zip(names, network.fetch_tensors(names), strict=True):
            network.feed_tensor(TARGET + name, value)


class Memory:
    """The newest transitions, as arrays that are written round.

    Args:
        most: how many.
    """

    def __init__(self, most: int) -> None:
        self.most, self.seen = most, 0
        self.arrays: dict[str, np.ndarray] = {}

    def __len__(self) -> int:
        return min(self.seen, self.most)

    def add(self, transitions: Mapping[str, np.ndarray]) -> None:
        """Remember some, in the place of the oldest."""
        count = len(next(iter(transitions.values())))
        places = np.arange(self.seen, self.seen + count) % self.most
        for name, values in transitions.items():
            if name not in self.arrays:
                self.arrays[name] = np.zeros((self.most, *values.shape[1:]), values.dtype)
            self.arrays[name][places] = values
        self.seen += count

    def draw(self, count: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Some of them, each as likely, with repetition."""
        places = rng.integers(0, len(self), count)
        return {name: values[places] for name, values in self.arrays.items()}
