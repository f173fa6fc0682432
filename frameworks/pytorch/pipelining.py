"""``torch.distributed.pipelining`` behind an executor, for :mod:`deep500.distributed.schemes.native_pipeline`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from deep500.distributed.transports.communicator import Communicator
from deep500.errors import Deep500Error, InputError, UnsupportedOperator
from deep500.frameworks.pytorch.distributed import OF_RANKS, failures
from deep500.frameworks.pytorch.dtypes import NAMES, torch_dtype
from deep500.frameworks.pytorch.failures import CAUGHT, raise_ours
from deep500.frameworks.pytorch.layers import in_stages
from deep500.frameworks.pytorch.meeting import group_of, parts_of_group
from deep500.frameworks.pytorch.sending import Sender
from deep500.networks.losses import find_loss
from deep500.transformations.stages import layers

MOST_SCHEDULES = 4
"""Schedules that are kept, each with buffers for what it receives: one by number and size of micro-batches."""


class PipeliningEngine:
    """Stages of a network on ranks, and a schedule of PyTorch's that runs them.

    Args:
        executor: runs the network, which it holds whole for the last time.
        comm: the ranks.
        loss: is differentiated; in the last stage.
        schedule: the name of a class of ``torch.distributed.pipelining``, without ``Schedule`` before it.
        places: the rank of each stage, in order.

    Attributes:
        homes: by parameter, running statistics included, the rank of the one stage that reads it.
        outputs: names of what the last stage returns.
        sent: bytes that the last step handed to torch, by kind.
        ran: names of the schedules that the last step ran.
    """

    fuses = False

    def __init__(self, executor: Any, comm: Communicator, loss: str, schedule: str, places: Sequence[int]) -> None:
        self.executor, self.comm, self.schedule, self.places = executor, comm, schedule, places
        self.group = group_of(comm.world, executor.torch_device)
        if comm.size < comm.world.size:
            parts = {tuple(part) for part in comm.world.gather_facts(list(comm.members))}
            self.group = parts_of_group(comm.world, self.group, [list(part) for part in sorted(parts)])
        executor.refresh()
        network, outputs = executor.network, tuple(executor.network.outputs)
        self.outputs = outputs if loss in outputs else (*outputs, find_loss(network, loss))
        compiled = executor.compiled(self.outputs, None)
        if not hasattr(compiled.module, "program"):
            raise UnsupportedOperator(
                "got NativePipeline for a module of your own, which cannot be cut in stages here; expected a network: "
                "use from_model, or torch.distributed.pipelining by yourself"
            )
        numbers = layers(network, loss, count=len(places))
        splits = "ZeroBubble" in schedule or "ZBV" in schedule
        self._whole, self._inputs = compiled.module, compiled.inputs
        self._stages = in_stages(compiled.module, numbers, len(places), splits)
        if numbers[network.producer(loss).name] < len(places) - 1:
            raise InputError(
                f"got loss {loss!r}, behind which there are layers, for NativePipeline; expected it in the last stage: "
                "remove the outputs behind it, or use Pipeline"
            )
        self.homes = self._read_by_rank()
        self._place, self._schedules = self.outputs.index(loss), dict[Any, Any]()
        self._results: list[tuple[torch.Tensor, ...]] = []
        self._tensor, self._tensors = Sender(executor.torch_device).tensor, dict[str, torch.Tensor]()
        self.sent, self.ran = dict[str, int](), list[str]()

    def _read_by_rank(self) -> dict[str, int]:
        names, readers = self._whole.names, dict[str, set[int]]()
        for number, stage in enumerate(self._stages):
            for line in stage.graph.nodes:
                name = names.get(line.target, "") if line.op == "get_attr" else ""
                if isinstance(self.executor.tensors.get(name), torch.Tensor):
                    readers.setdefault(name, set()).add(number)
        for name, numbers in readers.items():
            if len(numbers) > 1 and isinstance(self.executor.tensors[name], torch.nn.Parameter):
                raise InputError(
                    f"got parameter {name!r}, which stages {min(numbers)} and {max(numbers)} of NativePipeline read; "
                    "expected one of them to: use fewer ranks, untie it, or use FSDP"
                )
        return {name: self.places[min(numbers)] for name, numbers in readers.items() if len(numbers) == 1}

    # -- what an executor asks ----------------------------------------------------------------------------------------
    def training(self, compiled: Any, loss: str) -> Any:
        """Refuse a training run of the executor alone."""
        raise InputError(
            "got a training run of the executor with NativePipeline, no rank of which holds the network; expected a "
            "step of the scheme: call its step()"
        )

    def evaluating(self, compiled: Any) -> Any:
        """As it is: parameters of other ranks read as NaN between steps."""
        return compiled

    # -- a step -------------------------------------------------------------------------------------------------------
    def take(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Keep the inputs of the coming step, on rank 0; return shape and dtype of each, which all ranks need."""
        tensors = self._tensors = {name: self._tensor(inputs.get(name)) for name in self._inputs}
        return {name: [list(tensor.shape), NAMES[tensor.dtype]] for name, tensor in tensors.items()}

    def run(
        self, described: Mapping[str, Any], counts: Sequence[int], shares: Sequence[float]
    ) -> list[dict[str, torch.Tensor]]:
        """Run a batch forward and backward; gradients are left in ``parameter.grad``.

        Args:
            described: what :meth:`take` returned on rank 0.
            counts: samples of each micro-batch.
            shares: what each counts in the loss.

        Returns:
            outputs of each micro-batch, on the rank of the last stage.
        """
        rank, begin = self.comm.rank, 0
        for name, home in self.homes.items():
            if home == rank:
                self.executor.tensors[name].grad = None
        tensors, self._tensors = list(self._tensors.values()), {}
        self._results, self.sent, self.ran = [], {"send": 0}, []
        weights = torch.tensor(shares, dtype=torch.float64, device=self.executor.torch_device)
        for size, group in groupby(counts):
            count = len(list(group))
            rows, first = slice(begin, begin + size * count), len(self._results)
            schedule, sent = self._scheduled(described, size, count)
            try:
                with failures(self.comm, "a step of the pipeline", OF_RANKS):
                    here = weights[first : first + count] if rank == self.places[-1] else None
                    schedule.step(*[tensor[rows] for tensor in tensors], target=here, return_outputs=False)
            except CAUGHT as error:
                if not isinstance(error, Deep500Error):  # torch puts its own around that of a stage
                    raise_ours(error.__cause__ if isinstance(error.__cause__, CAUGHT) else error, self._whole)
                raise
            begin += size * count
            self.sent["send"] += sent
            self.ran.append(type(schedule).__name__)
        return [dict(zip(self.outputs, results, strict=True)) for results in self._results]

    def _scheduled(self, described: Mapping[str, Any], size: int, count: int) -> tuple[Any, int]:
        """The schedule for so many micro-batches of a size, and the bytes that this rank sends in it."""
        key = (size, count, *((name, *shape[1:]) for name, (shape, _) in described.items()))
        if key not in self._schedules:
            if len(self._schedules) == MOST_SCHEDULES:
                self._schedules.clear()
            self._schedules[key] = self._begun(described, size, count)
        return self._schedules[key]

    def _begun(self, described: Mapping[str, Any], size: int, count: int) -> tuple[Any, int]:
        from torch.distributed import pipelining

        places, rank, sent, mine = self.places, self.comm.rank, 0, []
        crossing = self._crossing(described, size)
        for k, module in enumerate(self._stages):
            if places[k] != rank:
                continue
            device, (receives, returns) = self.executor.torch_device, crossing[k : k + 2]
            examples: dict[str, Any] = {"input_args": tuple(receives), "output_args": tuple(returns)}
            mine.append(pipelining.PipelineStage(module, k, len(places), device, group=self.group, **examples))
            if k + 1 < len(places) and places[k + 1] != rank:
                sent += sum(tensor.nbytes for tensor in returns)
            if k and places[k - 1] != rank:
                sent += sum(tensor.nbytes for tensor in receives if tensor.requires_grad)
        single = len(places) == self.comm.size
        for name in (self.schedule, "GPipe" if single else "LoopedBFS"):
            try:
                kind = getattr(pipelining, f"Schedule{name}")
                return kind(mine[0] if single else mine, count, loss_fn=self._goal, scale_grads=False), sent * count
            except ValueError as error:  # fewer micro-batches than it needs
                refused = error
        raise InputError(
            f"got {count} micro-batches for the schedule {self.schedule} ({refused}); expected more: choose another "
            "number of micro-batches, or another schedule"
        )

    def _crossing(self, described: Mapping[str, Any], size: int) -> list[list[torch.Tensor]]:
        """Examples without memory of what goes into each stage, and of what comes out of the last."""
        device = self.executor.torch_device
        with FakeTensorMode(allow_non_fake_inputs=True), torch.random.fork_rng(), torch.enable_grad():
            shapes = [(size, *described[name][0][1:]) for name in self._inputs]
            dtypes = [torch_dtype(described[name][1]) for name in self._inputs]
            values = [torch.empty(s, dtype=d, device=device) for s, d in zip(shapes, dtypes, strict=True)]
            chain = [values]
            for stage in self._stages:
                results = stage(*values)
                values = list(results) if isinstance(results, tuple) else [results]
                chain.append(values)
        return [
            [torch.empty(v.shape, dtype=v.dtype, device="meta", requires_grad=v.requires_grad) for v in values]
            for values in chain
        ]

    def _goal(self, results: Any, share: torch.Tensor) -> torch.Tensor:
        """Keep the outputs of a micro-batch; return its loss by its share, from which the last stage goes backward."""
        values = results if isinstance(results, tuple) else (results,)
        self._results.append(tuple(value.detach() for value in values))
        loss = values[self._place]
        return (loss * share.to(loss.dtype)).sum()
