"""Updates of all parameters by eager functions on copies of them that lie end to end, to the bits of a loop.

A loop over 200 small parameters takes ten functions for each of them. Here three ``torch._foreach_copy_`` and ten
functions for all take half of the time of ``torch.optim.Adam(fused=True)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from deep500.training.optimizers.compiling import Chunk, Packed, Step, Update, UpdateEngine
from deep500.training.optimizers.tracing import FUNCTIONS


class _Buffer:
    """Memory for tensors end to end, and views of it in their shapes."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.whole = torch.empty(sum(t.numel() for t in tensors), dtype=tensors[0].dtype, device=tensors[0].device)
        self.sizes = [tensor.numel() for tensor in tensors]
        self.repeats = torch.tensor(self.sizes, device=self.whole.device)
        pieces = self.whole.split(self.sizes)
        self.views = [piece.view(tensor.shape) for piece, tensor in zip(pieces, tensors, strict=True)]

    def norms(self, whole: torch.Tensor) -> torch.Tensor:
        """The norm of each piece of a tensor like the memory, in the places of its elements."""
        norms = torch.stack(torch._foreach_norm(list(whole.split(self.sizes))))
        return torch.repeat_interleave(norms, self.repeats, output_size=whole.numel())

    def copy(self, tensors: list[Any]) -> torch.Tensor:
        """The memory, with these tensors in it."""
        torch._foreach_copy_(self.views, tensors)
        return self.whole


class Updater(UpdateEngine):
    """Runs updates eagerly, chunk by chunk."""

    def __init__(self, executor: Any, chunks: list[Chunk]) -> None:
        super().__init__(executor, chunks)
        self._buffers: dict[tuple[str, ...], tuple[_Buffer, _Buffer]] = {}

    def compile(self, updates: Sequence[Update]) -> Step:
        """Return the step for all chunks."""
        executor = self.executor
        tensors = [[executor.tensors[name] for name in update.names] for update in updates]
        for update, params in zip(updates, tensors, strict=True):
            if len(params) > 1 and update.names not in self._buffers:
                self._buffers[update.names] = _Buffer(params), _Buffer(params)
        buffers = [self._buffers.get(update.names) for update in updates]
        every = frozenset(name for update in updates for name in update.names)

        @torch.no_grad()
        def step(numbers: list[float], gradients: Mapping[str, Any] | None, packed: Sequence[Packed]) -> list[Packed]:
            written = []
            for (names, program, first), params, pair, slots in zip(updates, tensors, buffers, packed, strict=True):
                if gradients is None:
                    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
                else:
                    grads = [gradients[name] for name in names]
                grad, param = (
                    (grads[0], params[0].detach()) if pair is None else (pair[0].copy(grads), pair[1].copy(params))
                )
                functions = FUNCTIONS if pair is None else {**FUNCTIONS, "norm": pair[0].norms}
                new, after = program(grad, param, slots, numbers[first : first + program.count], functions)
                if pair is None:
                    params[0].copy_(new)
                else:
                    param.copy_(new)
                    torch._foreach_copy_(params, pair[1].views)
                written.append(after)
            executor.forget_constants(every)
            return written

        return step
