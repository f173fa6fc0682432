"""Control: environments, losses and estimates of PPO and Q-learning, and that both learn what takes seconds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import deep500.networks as d5nt
from deep500.errors import InputError, NetworkError, RecipeError
from deep500.metrics import TestQuality, TimingBreakdown
from deep500.networks.policy_losses import TARGET, add_ppo_loss, add_q_loss
from deep500.recipe import run_recipe
from deep500.results.verify import verify
from deep500.tasks import DeepQLearning, ProximalPolicyOptimization
from deep500.tasks.control import Memory, advantages
from deep500.tasks.environments import Environments, spaces_of
from deep500.training.data.episodes import FIRST_FRESH, episodes
from deep500.training.data.samplers import OrderedSampler, ShuffleSampler
from deep500.training.trainer import Trainer
from tests.tolerances import as_numpy, assert_close

gymnasium = pytest.importorskip("gymnasium")


class Corridor(gymnasium.Env):
    """Five places; the right action leads to the end and is paid 1 there, the other one back. Eight steps at most."""

    observation_space = gymnasium.spaces.Box(0, 1, (5,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, pay=1.0, endless=False):
        self.pay, self.endless = pay, endless

    def _see(self):
        return np.eye(5, dtype=np.float32)[self.place]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = int(self.np_random.integers(0, 3)), 0
        return self._see(), {}

    def step(self, action):
        self.place = min(self.place + 1, 4) if action == 1 else max(self.place - 1, 0)
        self.steps += 1
        over = self.place == 4 and not self.endless
        return self._see(), self.pay if over else -0.1, over, self.steps >= 8 and not self.endless, {}


class OneArray(Corridor):
    """Fills one array again and again, and reads it later."""

    def _see(self):
        self.seen = getattr(self, "seen", np.empty(5, np.float32))
        self.seen[:] = super()._see()
        return self.seen


@pytest.fixture
def reference():
    from deep500.frameworks import reference

    return reference


@pytest.mark.parametrize("made", [Corridor, OneArray])
def test_a_step_is_that_of_each_environment(made):
    worlds = Environments(made, 3)
    observed = worlds.reset([1, 2, 3])
    single = [Corridor() for _ in range(3)]
    assert np.array_equal(observed, [one.reset(seed=seed)[0] for one, seed in zip(single, [1, 2, 3], strict=True)])
    for _ in range(20):
        step = worlds.step(np.ones(3, int))
        for number, one in enumerate(single):
            seen, reward, over, cut, _ = one.step(1)
            assert (step.rewards[number], step.terminated[number], step.truncated[number]) == (reward, over, cut)
            assert np.array_equal(step.final[number], seen)
            if over or cut:
                seen = one.reset()[0]
            assert np.array_equal(step.observations[number], seen)
    alive = np.array([True, False, True])
    before = worlds.environments[1].place
    assert worlds.step(np.zeros(3, int), alive, again=False).rewards[1] == 0 and worlds.environments[1].place == before
    worlds.close()


@pytest.mark.parametrize("pay", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_is_an_error(pay):
    worlds = Environments(lambda: Corridor(pay), 2, "corridor")
    worlds.reset([0, 1])
    with pytest.raises(InputError, match="environment 'corridor': got reward"):
        for _ in range(8):
            worlds.step(np.ones(2, int))


def test_an_episode_that_does_not_end_is_cut_off():
    worlds = Environments(lambda: Corridor(endless=True), 1, most_steps=5)
    worlds.reset([0])
    steps = [worlds.step(np.ones(1, int)) for _ in range(10)]
    assert [bool(step.truncated[0]) for step in steps] == ([False] * 4 + [True]) * 2
    assert not any(step.terminated[0] for step in steps)


def test_spaces_that_do_not_fit_are_named():
    with pytest.raises(InputError, match=r"Pendulum-v1.*got actions Box.*expected Discrete"):
        episodes("Pendulum-v1")
    with pytest.raises(InputError, match=r"got environment 'CartPol-v1'.*did you mean 'CartPole-v"):
        episodes("CartPol-v1")
    with pytest.raises(InputError, match="expected a Box of numbers"):
        spaces_of(lambda: gymnasium.make("Blackjack-v1"), "Blackjack-v1")
    with pytest.raises(InputError, match=r"got observations Discrete\(16\).*FlattenObservation"):
        spaces_of(lambda: gymnasium.make("FrozenLake-v1"), "FrozenLake-v1")
    from gymnasium.wrappers import FlattenObservation as wrapped

    assert spaces_of(lambda: wrapped(gymnasium.make("FrozenLake-v1")), "FrozenLake-v1").observation == (16,)


@pytest.mark.parametrize("size", [1, 7, 15, 16, 30])
def test_every_transition_is_trained_on_in_every_pass(size):
    task = ProximalPolicyOptimization(episodes("CartPole-v1")[0], environments=3, horizon=10, passes=2)
    rollout = {"action": np.arange(30), "advantage": np.arange(30.0)}
    batches = list(task._minibatches(rollout, size, np.random.default_rng(0)))
    assert len(batches) == 2 * -(-30 // size) and all(0 < len(batch["action"]) <= size for batch in batches)
    for batches_of_pass in np.array_split(np.array(batches, dtype=object), 2):
        assert sorted(np.concatenate([batch["action"] for batch in batches_of_pass])) == list(range(30))


def test_seeds_of_training_and_of_judging_are_apart():
    train, fresh, last = episodes("CartPole-v1", samples=64, judged=10)
    assert train[:]["seed"].max() < FIRST_FRESH <= fresh[:]["seed"].min()
    assert fresh[:]["seed"].max() < last[:]["seed"].min()
    assert (train.shape, train.classes, len(fresh)) == ((4,), 2, 10) and train.digest() != fresh.digest()
    with pytest.raises(InputError, match="key 'environment'"):
        ProximalPolicyOptimization(None)


def torch_ppo(output, feeds, clip=0.2, value_weight=0.5, entropy_weight=0.01):
    """The formula with torch's distributions."""
    import torch

    raw = torch.tensor(output, requires_grad=True)
    facts = {name: torch.tensor(value) for name, value in feeds.items()}
    policy = torch.distributions.Categorical(logits=raw[:, :-1])
    ratio = (policy.log_prob(facts["action"]) - facts["log_probability"]).exp()
    surrogate = torch.min(ratio * facts["advantage"], ratio.clamp(1 - clip, 1 + clip) * facts["advantage"])
    error = (raw[:, -1] - facts["wanted_value"]) ** 2
    loss = (-surrogate + value_weight * error - entropy_weight * policy.entropy()).mean()
    loss.backward()
    return loss.item(), raw.grad.numpy()


def parameter_network(value):
    net = d5nt.Network("raw")
    net.add_input("input", value.shape, str(value.dtype))
    net.add_parameter("raw", value)
    net.add_node("Add", ["raw", "input"], ["output"])
    net.add_output("output")
    return net


def test_the_clipped_surrogate_in_every_backend(backend_name, backend):
    dtype = "float32" if backend_name == "jax" else "float64"
    rng = np.random.default_rng(0)
    output = rng.normal(0, 1.5, (16, 4)).astype(dtype)
    feeds = {name: rng.normal(0, 1, 16).astype(dtype) for name in ("advantage", "wanted_value")}
    feeds |= {"action": rng.integers(0, 3, 16), "log_probability": rng.uniform(-2, -0.2, 16).astype(dtype)}
    executor = backend.from_model(add_ppo_loss(parameter_network(output)), "cpu")
    loss = executor.inference_and_backprop({"input": 0 * output, **feeds}, "loss")["loss"]
    (gradient,) = executor.network.fetch_tensors(["raw.grad"])
    wanted, wanted_gradient = torch_ppo(
        output.astype(np.float64), {k: v if k == "action" else v.astype(np.float64) for k, v in feeds.items()}
    )
    assert_close(as_numpy(loss).astype(dtype), np.asarray(wanted, dtype), "forward")
    assert_close(as_numpy(gradient), wanted_gradient.astype(dtype), "gradient")


@pytest.mark.parametrize("double", [True, False])
def test_the_temporal_difference_is_its_formula(reference, double):
    import torch

    net = d5nt.create("q_network", classes=3, shape=(4,), hidden=(6,))
    for name in net.trainable():
        net.set_parameter(
            name, np.random.default_rng(len(name)).normal(0, 1, net.parameters[name].value.shape).astype("float32")
        )
    parameters = {name: torch.tensor(p.value, requires_grad=True) for name, p in net.parameters.items()}
    executor = reference.Executor(add_q_loss(net, discount=0.9, double=double))
    rng = np.random.default_rng(3)
    shifted = {name: value.detach() + 0.1 for name, value in parameters.items()}
    for name, value in shifted.items():
        executor.network.feed_tensor(TARGET + name, value.numpy())
    feeds = {name: rng.normal(0, 1, (8, 4)).astype("float32") for name in ("input", "next_input")}
    feeds |= {"action": rng.integers(0, 3, 8), "reward": rng.normal(0, 1, 8).astype("float32")}
    feeds["ended"] = (rng.random(8) < 0.4).astype("float32")

    def q(known, x):
        hidden = torch.relu(torch.tensor(x) @ known["q.0.weight"].T + known["q.0.bias"])
        return hidden @ known["q.out.weight"].T + known["q.out.bias"]

    target = q(shifted, feeds["next_input"])
    chosen = (q(parameters, feeds["next_input"]) if double else target).argmax(1)
    wanted = torch.tensor(feeds["reward"]) + 0.9 * (1 - torch.tensor(feeds["ended"])) * target[torch.arange(8), chosen]
    mine = q(parameters, feeds["input"])[torch.arange(8), torch.tensor(feeds["action"])]
    loss = torch.nn.functional.smooth_l1_loss(mine, wanted.detach())
    loss.backward()
    got = executor.inference_and_backprop(feeds, "loss")["loss"]
    assert_close(as_numpy(got), loss.detach().numpy(), "forward")
    for name, value in parameters.items():
        (gradient,) = executor.network.fetch_tensors([f"{name}.grad"])
        assert_close(as_numpy(gradient), value.grad.numpy(), "gradient", name)
    assert not any(name.startswith(TARGET) for name in executor.network.get_params())


def test_advantages_are_their_sums():
    """Sum over what follows of (discount * trace)^k d_{t+k}, up to the end of the episode."""
    rng = np.random.default_rng(0)
    rewards, values, last = rng.normal(size=(7, 2)), rng.normal(size=(7, 2)), rng.normal(size=2)
    ended = rng.random((7, 2)) < 0.3
    following = np.concatenate([values[1:], last[None]])
    delta = rewards + 0.9 * np.where(ended, 0, following) - values
    wanted = np.zeros((7, 2))
    for t in range(7):
        for world in range(2):
            for k in range(t, 7):
                wanted[t, world] += (0.9 * 0.8) ** (k - t) * delta[k, world]
                if ended[k, world]:
                    break
    np.testing.assert_allclose(advantages(rewards, values, ended, last, 0.9, 0.8), wanted)


def test_the_memory_keeps_the_newest():
    memory = Memory(5)
    for start in (0, 3, 6):
        memory.add({"x": np.arange(start, start + 3)})
    assert len(memory) == 5 and sorted(memory.arrays["x"]) == [4, 5, 6, 7, 8]
    assert set(memory.draw(50, np.random.default_rng(0))["x"]) == {4, 5, 6, 7, 8}


def trained(backend, kind, epochs, **keywords):
    train, fresh, _ = episodes(Corridor, samples=keywords.pop("samples"), judged=12)
    task = kind(train, environments=4, **keywords)
    model = "actor_critic" if kind is ProximalPolicyOptimization else "q_network"
    network = task.add_loss(d5nt.create(model, classes=2, shape=(5,), hidden=(16,)))
    executor = backend.from_model(network, "cpu")
    optimizer = backend.AdamOptimizer(executor, lr=0.02)
    trainer = Trainer(ShuffleSampler(train, 32), OrderedSampler(fresh, 12), executor, optimizer, task=task)
    return trainer, task, trainer.run(epochs, [])


def test_ppo_learns_to_walk_in_every_backend(backend):
    _, task, statistics = trained(backend, ProximalPolicyOptimization, 3, horizon=32, samples=1024)
    returns = statistics.column("test_mean_return")
    assert returns[-1] > 0.6, returns  # two to four steps to the end: 1 - .1 to 1 - .3
    assert task.counts["environment steps"] == 3 * 1024 / 4 and task.counts["episodes"] > 50


def test_q_learning_learns_to_walk(reference):
    _, task, statistics = trained(
        reference, DeepQLearning, 2, samples=4800, before=64, exploring=300, refresh=20, memory=500
    )
    assert statistics.column("test_mean_return")[-1] > 0.6
    assert task.counts["environment steps"] >= 2 * 4800 / 32 * 4


@pytest.mark.parametrize("kind", [ProximalPolicyOptimization, DeepQLearning])
def test_going_on_is_as_never_stopped(reference, kind):
    more = dict(samples=256, horizon=16) if kind is ProximalPolicyOptimization else dict(samples=256, before=32)
    whole, *_ = trained(reference, kind, 2, **more)
    half, *_ = trained(reference, kind, 1, **more)
    state = half.state()
    again, *_ = trained(reference, kind, 0, **more)
    again.load_state(state)
    again.run(2, [])
    for name, value in whole.executor.network.state().items():
        assert_close(again.executor.network.state()[name], value, "exact", name)


def test_what_does_not_fit_is_refused(reference):
    net = d5nt.create("actor_critic", classes=2, shape=(4,))
    assert net.descriptors()["output"].shape == ("N", 3)
    wanted = 2 * (4 * 64 + 64 + 64 * 64 + 64) + 64 * 2 + 2 + 64 + 1
    assert sum(p.value.size for p in net.parameters.values()) == wanted
    with pytest.raises(NetworkError, match="widths of at least 1"):
        d5nt.create("q_network", hidden=())
    with pytest.raises(InputError, match=r"got batch_size=32; expected at most 16"):
        trained(reference, ProximalPolicyOptimization, 1, samples=64, horizon=4)
    with pytest.raises(InputError, match="a number from 0 to 1"):
        ProximalPolicyOptimization(episodes(Corridor)[0], discount=2)


def walking(**changes):
    from deep500.frameworks import reference

    fixed = {"environment": Corridor, "environment_kwargs": {"samples": 256, "judged": 4}, "epochs": 1}
    mutable = {
        "model": "actor_critic",
        "model_kwargs": {"hidden": (8,)},
        "batch_size": 32,
        "executor": reference.from_model,
        "optimizer": reference.AdamOptimizer,
        "optimizer_kwargs": {"lr": 0.01},
        "task": "ppo",
        "task_kwargs": {"environments": 4, "horizon": 16},
        **changes,
    }
    return fixed, mutable


@pytest.mark.parametrize(
    ("kind", "keywords"), [("ppo", {"environments": 4, "horizon": 16}), ("dqn", {"environments": 4, "before": 64})]
)
def test_the_time_of_a_run_says_what_was_acting(tmp_path, kind, keywords):
    model = {"ppo": "actor_critic", "dqn": "q_network"}[kind]
    metrics = [(TestQuality("mean_return"), None)]
    for metric in ([], [(TimingBreakdown(), None)]):
        run = run_recipe(
            *walking(task=kind, task_kwargs=keywords, model=model),
            metrics + metric,
            ["--out", str(tmp_path), "--quiet"],
        )
        (claim,) = [c for c in json.loads((Path(run.path) / "claims.json").read_text())["claims"] if "parts" in c]
        parts = claim["parts"]
        names = {"collection", "inference", *(("io", "forward backward", "update") if metric else ("updates",))}
        assert names <= parts.keys() and all(seconds > 0 for seconds in parts.values())
        assert sum(parts.values()) == pytest.approx(claim["wall"], rel=0.1)
        assert "collection" in Path(run.report).read_text()
        assert not verify(Path(run.path))


@pytest.mark.parametrize("kind", ["ppo", "dqn"])
def test_a_wrong_keyword_is_named_with_the_nearest(tmp_path, kind):
    for wrong, near in (("enviroments", "environments"), ("discont", "discount")):
        with pytest.raises(RecipeError, match=f"task.*{wrong}.*{near}"):
            run_recipe(*walking(task=kind, task_kwargs={wrong: 2}), [], ["--out", str(tmp_path), "--quiet"])
