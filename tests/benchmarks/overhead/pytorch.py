"""PyTorch: a training step and an epoch against the plain loop with the network that one writes by hand."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import deep500.frameworks.pytorch as d5fw
from deep500.networks import add_loss, create
from deep500.training.data.dataset import NumpyDataset
from deep500.training.data.samplers import ShuffleSampler
from deep500.training.listeners import DefaultTrainerEvents, ProgressBar
from deep500.training.trainer import Trainer
from tests.benchmarks.overhead import EPOCH, STEP
from tests.benchmarks.turns import Comparison, Work

LR, MOMENTUM = 0.01, 0.9
SAMPLES = {1: 64, 8: 256, 64: 512}  # per epoch


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around which a shortcut leads (He et al. 2015), projected where the size changes."""

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet20(nn.Module):
    """272,474 parameters with 10 classes; the names of its parameters are those of ``create("resnet", depth=20)``."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        groups, inputs = [], 16
        for channels in (16, 32, 64):
            blocks = []
            for block in range(3):
                blocks.append(BasicBlock(inputs, channels, 2 if channels > 16 and block == 0 else 1))
                inputs = channels
            groups.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3 = groups
        self.fc = nn.Linear(64, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


def batch_of(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One batch of noise."""
    rng = np.random.default_rng(0)
    images = rng.standard_normal((size, 3, 32, 32)).astype(np.float32)
    return torch.from_numpy(images), torch.from_numpy(rng.integers(0, 10, size))


def native_step(images: torch.Tensor, labels: torch.Tensor, **options: bool) -> Work:
    """The plain loop's body."""
    model = ResNet20()
    optimizer = torch.optim.SGD(model.parameters(), LR, MOMENTUM, **options)

    def step() -> None:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    return step


def deep500_optimizer() -> d5fw.MomentumOptimizer:
    """The same in Deep500."""
    return d5fw.MomentumOptimizer(d5fw.from_model(add_loss(create("resnet", depth=20))), "loss", LR, MOMENTUM)


def deep500_step(images: torch.Tensor, labels: torch.Tensor) -> Work:
    """One step through executor and optimizer."""
    optimizer, inputs = deep500_optimizer(), {"input": images, "label": labels}
    return lambda: optimizer.step(inputs)


def sampler_of(size: int) -> ShuffleSampler:
    """An epoch of noise; both loops read it the same way."""
    rng, count = np.random.default_rng(0), SAMPLES.get(size, 4 * size)
    images = rng.standard_normal((count, 3, 32, 32)).astype(np.float32)
    return ShuffleSampler(NumpyDataset(images, "input", rng.integers(0, 10, count)), size)


def native_epoch(size: int) -> Work:
    """The plain loop over an epoch, with training loss and accuracy."""
    sampler, model = sampler_of(size), ResNet20()
    optimizer = torch.optim.SGD(model.parameters(), LR, MOMENTUM)

    def epoch() -> tuple[float, float]:
        total, correct, count = torch.zeros(()), torch.zeros((), dtype=torch.int64), 0
        for batch in sampler:
            images, labels = torch.from_numpy(batch["input"]), torch.from_numpy(batch["label"])
            optimizer.zero_grad()
            output = model(images)
            loss = F.cross_entropy(output, labels)
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(labels)
            correct += (output.argmax(1) == labels).sum()
            count += len(labels)
        return total.item() / count, correct.item() / count

    return epoch


def deep500_epoch(size: int) -> Work:
    """One more epoch of a Trainer with its default events, the progress bar drawn as on a terminal."""
    optimizer = deep500_optimizer()
    trainer = Trainer(sampler_of(size), None, optimizer.executor, optimizer)

    def epoch() -> None:
        events = DefaultTrainerEvents(trainer.epoch + 1)
        for event in events:
            if isinstance(event, ProgressBar):
                event.file, event.force = io.StringIO(), True
        trainer.run(trainer.epoch + 1, events)

    return epoch


def version() -> str:
    """The framework, set to use one thread."""
    torch.set_num_threads(1)
    return f"torch {torch.__version__}"


def comparisons(sizes: Sequence[int]) -> Iterator[Comparison]:
    """A training step, then an epoch."""
    for size in sizes:
        yield Comparison(f"step, batch {size}", lambda size=size: steps(size), max(1, 16 // size), STEP, 1.02)
    for size in sizes:
        yield Comparison(f"epoch, batch {size}", lambda size=size: epochs(size), 1, EPOCH, 1.03, share=1 / 3)


def steps(size: int) -> dict[str, Work]:
    """The ways to make a training step."""
    batch = batch_of(size)
    return {
        "native": native_step(*batch),
        "native again": native_step(*batch),
        "native, fused update": native_step(*batch, fused=True),
        "deep500": deep500_step(*batch),
    }


def epochs(size: int) -> dict[str, Work]:
    """The ways to train for an epoch."""
    return {"native": native_epoch(size), "native again": native_epoch(size), "deep500": deep500_epoch(size)}
