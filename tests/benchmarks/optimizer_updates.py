"""Updates by our optimizers on PyTorch against those of the packages whose rules they are, gradients given.

    python -m tests.benchmarks.optimizer_updates [--rounds N] [--optimizer NAME] [--network NAME]

The parameters of ResNet-20 (65, .27 million elements) and of a chain of 100 dense layers (200 small ones), on one
thread. The yardstick is ``schedulefree``'s optimizer in its ``foreach`` form; LARS, LAMB and Prodigy are written with
``torch._foreach_*``, which is faster than ``prodigyopt``. Exit code 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch

from deep500.frameworks import pytorch
from deep500.networks import add_loss, create
from deep500.training import optimizers
from tests.benchmarks.turns import Comparison, Work, say_all
from tests.benchmarks.user_rule import batch_of, small

FIGURES = {
    "LARS: update over one of torch._foreach, ResNet-20 and 200 small parameters": "at most 1.10",
    "LAMB: update over one of torch._foreach, ResNet-20 and 200 small parameters": "at most 1.10",
    "Prodigy: update over one of torch._foreach, ResNet-20 and 200 small parameters": "at most 1.10",
    "Schedule-Free SGD: update over schedulefree's, ResNet-20 and 200 small parameters": "at most 1.10",
    "Schedule-Free AdamW: update over schedulefree's, ResNet-20 and 200 small parameters": "at most 1.10",
}

Tensors = list[torch.Tensor]


def _ratios(params: Tensors, updates: Tensors, coefficient: float) -> Tensors:
    """The trust ratio of every tensor."""
    weights, changes = torch.stack(torch._foreach_norm(params)), torch.stack(torch._foreach_norm(updates))
    ratios = torch.where((weights > 0) & (changes > 0), coefficient * weights / changes, 1.0)
    return list(ratios.unbind())


def lars(params: Tensors) -> Work:
    """LARS by functions of lists."""
    lr, momentum, decay, velocities = 0.1, 0.9, 1e-4, [torch.zeros_like(p) for p in params]

    @torch.no_grad()
    def step() -> None:
        updates = list(torch._foreach_add([p.grad for p in params], params, alpha=decay))
        ratios = _ratios(params, updates, 1e-3)
        torch._foreach_mul_(updates, ratios)
        torch._foreach_mul_(velocities, momentum)
        torch._foreach_add_(velocities, updates, alpha=lr)
        torch._foreach_sub_(params, velocities)

    return step


def lamb(params: Tensors) -> Work:
    """LAMB by functions of lists."""
    lr, b1, b2, eps, decay, count = 1e-3, 0.9, 0.999, 1e-6, 1e-2, [0]
    means, squares = ([torch.zeros_like(p) for p in params] for _ in range(2))

    @torch.no_grad()
    def step() -> None:
        count[0] += 1
        grads = [p.grad for p in params]
        torch._foreach_lerp_(means, grads, 1 - b1)
        torch._foreach_mul_(squares, b2)
        torch._foreach_addcmul_(squares, grads, grads, 1 - b2)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_div_(roots, (1 - b2 ** count[0]) ** 0.5)
        torch._foreach_add_(roots, eps)
        updates = torch._foreach_div(means, roots)
        torch._foreach_mul_(updates, 1 / (1 - b1 ** count[0]))
        torch._foreach_add_(updates, params, alpha=decay)
        torch._foreach_mul_(updates, _ratios(params, list(updates), 1.0))
        torch._foreach_sub_(params, updates, alpha=lr)

    return step


def prodigy(params: Tensors) -> Work:
    """Prodigy by functions of lists."""
    b1, b2, eps, d0 = 0.9, 0.999, 1e-8, 1e-6
    b3, d, numerator, first = b2**0.5, d0, 0.0, [p.detach().clone() for p in params]
    sums, means, squares = ([torch.zeros_like(p) for p in params] for _ in range(3))

    @torch.no_grad()
    def step() -> None:
        nonlocal d, numerator
        grads, rate = [p.grad for p in params], d
        ways = torch._foreach_mul(torch._foreach_sub(first, params), grads)
        torch._foreach_mul_(sums, b3)
        torch._foreach_add_(sums, grads, alpha=d / d0 * rate)
        torch._foreach_mul_(means, b1)
        torch._foreach_add_(means, grads, alpha=d * (1 - b1))
        torch._foreach_mul_(squares, b2)
        torch._foreach_addcmul_(squares, grads, grads, d * d * (1 - b2))
        progress = sum(way.sum() for way in ways).item()  # no function of lists sums
        size = torch.stack(torch._foreach_norm(sums, 1)).sum().item()
        numerator = b3 * numerator + d / d0 * rate * progress
        d = max(d, numerator / size)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_add_(roots, d * eps)
        torch._foreach_addcdiv_(params, means, roots, -rate)

    return step


def schedule_free(name: str, **options: Any) -> Callable[[Tensors], Work]:
    """One of the package ``schedulefree``."""

    def make(params: Tensors) -> Work:
        import schedulefree

        optimizer = getattr(schedulefree, name)(params, **options)
        optimizer.train()
        return optimizer.step

    return make


def prodigyopt(params: Tensors) -> Work:
    """The package's."""
    import prodigyopt

    return prodigyopt.Prodigy(params).step


WAYS: dict[str, tuple[type, dict[str, Any], dict[str, Callable[[Tensors], Work]]]] = {
    "lars": (optimizers.LARSOptimizer, {"lr": 0.1, "weight_decay": 1e-4}, {"foreach": lars}),
    "lamb": (optimizers.LAMBOptimizer, {"lr": 1e-3, "weight_decay": 1e-2}, {"foreach": lamb}),
    "prodigy": (optimizers.ProdigyOptimizer, {}, {"foreach": prodigy, "prodigyopt": prodigyopt}),
    "schedule_free_sgd": (
        optimizers.ScheduleFreeSGDOptimizer,
        {"lr": 0.1},
        {"package": schedule_free("SGDScheduleFree", lr=0.1)},
    ),
    "schedule_free_adamw": (
        optimizers.ScheduleFreeAdamWOptimizer,
        {"lr": 1e-3},
        {"package": schedule_free("AdamWScheduleFree", lr=1e-3)},
    ),
}
NETWORKS = {
    "resnet20": (lambda: add_loss(create("resnet", depth=20)), (3, 32, 32), 10, 2),
    "small": (small, (16,), 16, 2),
}


def variants(name: str, network: str) -> dict[str, Work]:
    """The ways of an update, each with parameters and gradients of its own."""
    rule, options, others = WAYS[name]
    make, shape, classes, _ = NETWORKS[network]
    images, labels = batch_of(shape, 4, classes)
    executor = pytorch.from_model(make())
    optimizer = rule(executor, "loss", **options)
    inputs = {"input": torch.from_numpy(images), "label": torch.from_numpy(labels)}
    optimizer.step(inputs)
    executor.inference_and_backprop(inputs, "loss")
    tensors = [executor.tensor(parameter) for parameter in optimizer.parameter_names()]

    def ours() -> None:
        optimizer.prepare()
        optimizer.update()
        optimizer.count_update()

    def copies() -> Tensors:
        alike = [torch.nn.Parameter(tensor.detach().clone()) for tensor in tensors]
        for new, old in zip(alike, tensors, strict=True):
            new.grad = old.grad.clone()
        return alike

    made = {key: other(copies()) for key, other in others.items()}
    yardstick = next(iter(others))
    return {yardstick: made.pop(yardstick), f"{yardstick} again": others[yardstick](copies()), **made, "deep500": ours}


def main() -> int:
    """Parse the command line, measure, print."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--optimizer", choices=WAYS, help="only this one")
    parser.add_argument("--network", choices=NETWORKS, help="only this one")
    args = parser.parse_args()
    asked = []
    for figure, name in zip(FIGURES, WAYS, strict=True):
        for network, (*_, calls) in NETWORKS.items():
            if args.optimizer in (None, name) and args.network in (None, network):
                ways = lambda name=name, network=network: variants(name, network)  # noqa: E731
                asked.append(Comparison(f"{name}, {network}", ways, calls, figure, 1.10))
    return 0 if say_all(asked, args.rounds) else 1


if __name__ == "__main__":
    raise SystemExit(main())
