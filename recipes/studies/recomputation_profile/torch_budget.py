"""PyTorch's own planner: ``activation_memory_budget`` of ``torch.compile``, of the same module on the same inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from recipes.studies.recomputation_profile.measuring import StepRunner

COMPILER = "aot_eager"
"""The compiler of torch.compile that only plans: what it runs are the kernels of the other rows."""


def torch_runner(executor: Any, arrays: Mapping[str, np.ndarray], budget: float) -> StepRunner:
    """A step of an executor's module, compiled with a budget.

    Args:
        executor: of the PyTorch backend, one of its own for every budget.
        arrays: inputs.
        budget: share, 0 to 1, of the bytes that are kept between forward and backward pass; not of the peak.
    """
    import torch
    from torch._functorch import config

    from deep500.frameworks.pytorch.memory import footprint

    module, names = executor.module, list(executor.network.inputs)
    tensors = [executor.network.to_tensor(arrays[name]) for name in names]
    place = executor.network.outputs.index("loss")
    compiled: Any = torch.compile(module, backend=COMPILER, dynamic=False)

    def step() -> None:
        for parameter in module.parameters():
            parameter.grad = None
        compiled(*tensors)[place].backward()

    with config.patch(activation_memory_budget=budget):  # it is read when forward and backward pass are parted
        step()
    module.zero_grad(set_to_none=True)
    return StepRunner(step, footprint(step, executor.torch_device).peak)
