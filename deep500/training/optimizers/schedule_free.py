"""Schedule-Free SGD and AdamW: an average of the weights takes the place of a schedule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from deep500.errors import InputError
from deep500.training.exchange import undone
from deep500.training.optimizers.base import UpdateRuleOptimizer
from deep500.training.optimizers.hyperparameters import hyperparameter


class ScheduleFree(UpdateRuleOptimizer, declares=False):
    """Base of the schedule-free rules (Defazio et al. 2024, arXiv 2405.15682) as schedulefree has them, t from 1.

    The network trains at ``y``, and is judged at ``x``, a weighted mean of the ``z`` that plain steps of ``u`` lead to:
    ``lr_t = lr min(1, t / warmup_steps);  p_t = t^r max(lr_1 ... lr_t)^weight_lr_power;  c = p_t / (p_1 + ... + p_t)``;
    ``y <- (1 - c) y + c z + lr_t (b (1 - c) - 1) u;  z <- z - lr_t u;  x = y / b + (1 - 1 / b) z``. Only ``y``, which
    is in the network, and ``z`` are remembered. Decay is taken at ``y``. No schedule is needed beside the warm-up.

    In :meth:`evaluation` the network holds ``x``; the next step goes on from ``y``. A trainer stays in it from the end
    of an epoch to the next, so that validations, checkpoints, averages and exported files have ``x``. States have both.
    """

    keeps_parameters = True
    judges_other = True
    begins_with: ClassVar[Mapping[str, float]] = {"lr_max": 0.0, "weight_sum": 0.0, "share": 0.0}
    shared = frozenset({"betas", "momentum", "warmup_steps", "r", "weight_lr_power"})
    lr: float
    weight_decay: float
    warmup_steps: float
    r: float
    weight_lr_power: float

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._trained: dict[str, Any] = {}  # y while the network holds x

    @staticmethod
    def blend_of(values: Mapping[str, Any]) -> float:
        """``b`` among hyper-parameters."""
        return values["momentum"] if "momentum" in values else values["betas"][0]

    @classmethod
    def check_together(cls, values: Mapping[str, Any]) -> None:
        if cls.blend_of(values) <= 0:
            raise InputError(
                f"got {dict(values)}; expected a momentum (betas[0]) > 0, by which evaluation divides: choose another"
            )

    @property
    def blend(self) -> float:
        """``b``."""
        return self.blend_of(self.get_parameters())

    def rate(self) -> float:
        """``lr_t``."""
        return self.lr * min(1.0, (self.steps + 1) / self.warmup_steps) if self.warmup_steps else self.lr

    def next_numbers(self) -> Mapping[str, float]:
        most = max(self.rate(), self.numbers["lr_max"])
        weight = (self.steps + 1) ** self.r * most**self.weight_lr_power
        total = self.numbers["weight_sum"] + weight
        return {"lr_max": most, "weight_sum": total, "share": weight / total if total else 0.0}

    def share(self) -> float:
        """``c``; of a parameter with a ``t`` of its own as if ``lr`` had been constant."""
        if not self.behind:
            return self.coming["share"]
        t = np.arange(1.0, self.steps + 2)
        weights = t**self.r * np.minimum(1.0, t / (self.warmup_steps or 1.0)) ** self.weight_lr_power
        return float(weights[-1] / weights.sum())

    def new_input(self) -> None:
        self._train()
        super().new_input()

    def moved(self, update: Any, y: Any, name: str) -> Any:
        """Take a step of ``z``, and return ``y``."""
        rate, c, z = self.rate(), self.share(), self.slot("z")
        if name not in z:
            z[name] = y * 1
        ahead = y + c * (z[name] - y) + rate * (self.blend * (1 - c) - 1) * update
        z[name] = z[name] - rate * update
        return ahead

    # -- two sets of weights ------------------------------------------------------------------------------------------
    def judged_tensors(self, names: Sequence[str]) -> list[Any]:
        trained = dict(zip(names, self.network.fetch_tensors(names), strict=True))
        z = {} if self._trained else self.state.get("z", {})
        known = [name for name in names if name in z]
        terms = [[trained[name] for name in known], [z[name] for name in known]]
        if known:
            weights = [1 / self.blend, 1 - 1 / self.blend]
            trained.update(zip(known, self.network.weighted_sum(terms, weights), strict=True))
        return list(trained.values())

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        if self._trained:  # it is one already
            yield
            return
        network, names = self.network, list(self.state.get("z", {}))
        tensors = self.judged_tensors(names)
        copies = network.weighted_sum([network.fetch_tensors(names)], [1.0]) if names else []
        self._trained = dict(zip(names, copies, strict=True))
        for name, tensor in zip(names, tensors, strict=True):
            network.assign_tensor(name, tensor)
        with undone(self._train):
            yield

    def _train(self) -> None:
        """Give the network back what it trains."""
        trained, self._trained = self._trained, {}
        for name, tensor in trained.items():
            self.network.assign_tensor(name, tensor)

    def state_dict(self) -> dict[str, np.ndarray]:
        state, network = super().state_dict(), self.network
        names = [key.removeprefix("z/") for key in state if key.startswith("z/")]
        trained = self._trained or dict(zip(names, network.fetch_tensors(names), strict=True))
        return {**state, **{f"y/{name}": np.array(network.to_numpy(tensor)) for name, tensor in trained.items()}}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from :meth:`state_dict`; the network gets the ``y`` of then."""
        super().load_state_dict(state)
        self._trained = self.state.pop("y", {})
        self._train()


class ScheduleFreeSGDOptimizer(ScheduleFree):
    """Schedule-Free SGD (see :class:`ScheduleFree`): ``u = g + weight_decay y``, ``b = momentum``.

    Args:
        executor, loss, options: see :class:`~deep500.training.optimizers.base.Optimizer`.
        lr: learning rate.
        momentum: share of the average in ``y``, > 0.
        weight_decay: factor of the L2 penalty's gradient.
        warmup_steps, r, weight_lr_power: see :class:`ScheduleFree`.
    """

    elementwise = True

    lr: float = 1.0
    momentum: float = hyperparameter(0.9, below=1)
    weight_decay: float = 0.0
    warmup_steps: float = 0.0
    r: float = 0.0
    weight_lr_power: float = 2.0

    def update_rule(self, grad: Any, old_param: Any, name: str) -> Any:
        return self.moved(grad + self.weight_decay * old_param if self.weight_decay else grad, old_param, name)


class ScheduleFreeAdamWOptimizer(ScheduleFree):
    """Schedule-Free AdamW (see :class:`ScheduleFree`), without a first moment: ``b = b1``.

    ``v <- b2 v + (1 - b2) g^2;  u = g / (sqrt(v / (1 - b2^t)) + eps) + weight_decay y``.

    Args:
        executor, loss, options: see :class:`~deep500.training.optimizers.base.Optimizer`.
        lr: learning rate, larger than AdamW's as a rule.
        betas, eps: as Adam's, ``b1`` > 0.
        weight_decay: decoupled.
        warmup_steps, r, weight_lr_power: see :class:`ScheduleFree`.
    """

    elementwise = True

    lr: float = 2.5e-3
    betas: tuple[float, float] = hyperparameter((0.9, 0.999), below=1)
    eps: float = 1e-8
    weight_decay: float = 0.0
    warmup_steps: float = 0.0
    r: float = 0.0
    weight_lr_power: float = 2.0

    def update_rule(self, grad: Any, old_param: Any, name: str) -> Any:
        b2, squares = self.betas[1], self.slot("exp_avg_sq")
        squares[name] = b2 * squares.get(name, 0.0) + (1 - b2) * grad * grad
        update = grad / ((squares[name] / (1 - b2 ** (self.steps + 1))) ** 0.5 + self.eps)
        return self.moved(update + self.weight_decay * old_param if self.weight_decay else update, old_param, name)
