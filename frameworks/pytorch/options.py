"""Options of this backend's executors."""

from __future__ import annotations

from dataclasses import dataclass

from deep500.errors import InputError, nearest
from deep500.networks.execution.options import ExecutorOptions

RECOMPUTE = ("checkpoint", "explicit")
"""Ways to follow a checkpointing plan; see :class:`TorchOptions`."""


@dataclass(frozen=True, kw_only=True)
class TorchOptions(ExecutorOptions):
    """Options of this backend beside those of all.

    Attributes:
        compile: pass the module through ``torch.compile`` (seconds per input shape; needs a C++ compiler on the CPU).
        recompute: how a checkpointing plan is followed, if one is set: ``"checkpoint"`` by non-reentrant
            ``torch.utils.checkpoint``, ``"explicit"`` by a tape of our own, whose memory is what the plan predicts and
            which takes less time. Gradients are the same bits either way.
        recognise: run what exporters took apart (normalisations, activations, attention, dense and recurrent layers) by
            one function each, and compute once what depends on no input; ``executor.module.recognised`` lists what was
            found. False: node by node.
    """

    compile: bool = False
    recompute: str = "checkpoint"
    recognise: bool = True

    def __post_init__(self) -> None:
        if self.recompute not in RECOMPUTE:
            raise InputError(
                f"got recompute={self.recompute!r}; expected one of {RECOMPUTE}: {nearest(self.recompute, RECOMPUTE)}"
            )
