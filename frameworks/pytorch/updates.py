"""Updates of all parameters by eager functions: of copies that lie end to end, or of lists of them.

A loop over 200 small parameters takes ten functions for each of them. Here three ``torch._foreach_copy_`` and a few
functions for all take half of the time of ``torch.optim.Adam(fused=True)``; a rule of three functions is faster without
the copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias

import torch

from deep500.frameworks.pytorch.fusing import Instruction, lower
from deep500.training.optimizers.compiling import Chunk, Packed, Step, Summing, Update, UpdateEngine
from deep500.training.optimizers.tracing import FUNCTIONS, RuleProgram

KEPT = 1 << 20
"""Elements of which lists of results are kept for the next step."""
Values: TypeAlias = dict[int, Any]


class _Flat:
    """Parameters end to end: memory for them, their gradients and what is computed, and views of it in their shapes.

    One parameter lies where it is, and its gradient, which is not to be written into, too.
    """

    def __init__(self, params: Sequence[torch.Tensor]) -> None:
        self.params, self.shapes = params, [param.shape for param in params]
        self.sizes = [param.numel() for param in params]
        self.single = len(params) == 1
        self._views: dict[int, list[torch.Tensor]] = {}
        self.grad, self.param = (params[0],) * 2 if self.single else (self.empty(), self.empty())
        self._free: list[torch.Tensor] = []

    def empty(self) -> torch.Tensor:
        """Memory like all of them, whose views are kept."""
        like = self.params[0]
        if self.single:
            return torch.empty_like(like, requires_grad=False)
        whole = torch.empty(sum(self.sizes), dtype=like.dtype, device=like.device)
        self._views[id(whole)] = self._cut(whole)
        return whole

    def _cut(self, whole: torch.Tensor) -> list[torch.Tensor]:
        return [piece.view(shape) for piece, shape in zip(whole.split(self.sizes), self.shapes, strict=True)]

    def views(self, whole: torch.Tensor) -> list[torch.Tensor]:
        """A tensor like the memory, parameter by parameter."""
        return self._views.get(id(whole)) or self._cut(whole)

    def begin(self, grads: list[Any]) -> Values:
        """Gradient and parameter by their places."""
        if self.single:
            return {0: grads[0], 1: self.param}
        torch._foreach_copy_(self._views[id(self.grad)], grads)
        torch._foreach_copy_(self._views[id(self.param)], list(self.params))
        return {0: self.grad, 1: self.param}

    def writable(self) -> list[Any]:
        """The tensors that may be written into at first."""
        return [self.param] if self.single else [self.grad, self.param]

    def end(self, new: torch.Tensor) -> None:
        """Move the parameters."""
        if new is not self.param:
            self.param.copy_(new)
        if not self.single:
            torch._foreach_copy_(list(self.params), self._views[id(self.param)])

    def slot(self, name: str, packed: list[torch.Tensor]) -> torch.Tensor:
        return packed[0]

    def pack(self, name: str, value: torch.Tensor) -> list[torch.Tensor]:
        return [value.clone()]

    def norms(self, whole: torch.Tensor) -> torch.Tensor:
        """The norm of each parameter's piece."""
        if self.single:
            return torch.linalg.vector_norm(whole)
        return torch.stack(torch._foreach_norm(self.views(whole)))

    def total(self, whole: torch.Tensor) -> torch.Tensor:
        return whole.sum()

    def let_go(self, tensor: torch.Tensor) -> None:
        """Take back memory."""
        self._free.append(tensor)

    def clear(self) -> None:
        """End a run: what one large parameter needed is given back."""
        if self.single:
            self._free.clear()

    def compute(self, name: str, operands: list[Any], c: float, out: Any) -> Any:
        """Run an instruction into memory that is given, or into some that the room has."""
        if out is None:
            out = self._free.pop() if self._free else self.empty()
        if name in ("rows", "spread") and not self.single:
            if name == "spread":
                torch._foreach_copy_(self.views(out), list(operands[0].unbind()))
                return out
            if out is not operands[0]:
                out.copy_(operands[0])
            torch._foreach_mul_(self.views(out), list(operands[1].unbind()))
            return out
        return _FLAT[name](out, c, *operands)


_FLAT: dict[str, Callable[..., torch.Tensor]] = {
    "scale": lambda out, c, x: torch.mul(x, c, out=out),
    "shift": lambda out, c, x: torch.add(x, c, out=out),
    "mul": lambda out, c, x, y: torch.mul(x, y, out=out),
    "rows": lambda out, c, x, row: torch.mul(x, row, out=out),
    "spread": lambda out, c, row: out.copy_(row),
    "truediv": lambda out, c, x, y: torch.div(x, y, out=out),
    "axpy": lambda out, c, x, y: torch.add(x, y, alpha=c, out=out),
    "lerp": lambda out, c, x, z: torch.lerp(x, z, c, out=out),
    "addcmul": lambda out, c, x, y, z: torch.addcmul(x, y, z, value=c, out=out),
    "addcdiv": lambda out, c, x, y, z: torch.addcdiv(x, y, z, value=c, out=out),
    "sqrt": lambda out, c, x: torch.sqrt(x, out=out),
    "square": lambda out, c, x: torch.mul(x, x, out=out),
    "abs": lambda out, c, x: torch.abs(x, out=out),
    "reciprocal": lambda out, c, x: torch.reciprocal(x, out=out),
    "pow": lambda out, c, x, y: torch.pow(x, y, out=out),
}


class _Lists:
    """Parameters, gradients and slots of several chunks as lists of tensors, where they are."""

    def __init__(self, params: Sequence[torch.Tensor], counts: Sequence[int]) -> None:
        self.params, ends = list(params), list(accumulate(counts))
        self.chunks = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
        self._views: dict[str, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
        self._free: list[list[torch.Tensor]] = []
        self._keeps = sum(param.numel() for param in params) <= KEPT
        kinds = {(param.dtype, param.device.type) for param in params}
        self._exact = len(kinds) == 1 and next(iter(kinds)) in ((torch.float32, "cpu"), (torch.float64, "cpu"))

    def begin(self, grads: list[Any]) -> Values:
        return {0: grads, 1: self.params}

    def writable(self) -> list[Any]:
        return [self.params]

    def end(self, new: list[torch.Tensor]) -> None:
        if new is not self.params:
            torch._foreach_copy_(self.params, new)

    def slot(self, name: str, packed: list[torch.Tensor]) -> list[torch.Tensor]:
        wholes, views = self._views.get(name, ([], []))
        if len(wholes) != len(packed) or any(new is not old for new, old in zip(packed, wholes, strict=True)):
            views = []
            for whole, chunk in zip(packed, self.chunks, strict=True):
                params = self.params[chunk]
                pieces = whole.reshape(-1).split([param.numel() for param in params])
                views += [piece.view(param.shape) for piece, param in zip(pieces, params, strict=True)]
            self._views[name] = packed, views
        return views

    def pack(self, name: str, value: list[torch.Tensor]) -> list[torch.Tensor]:
        flat = [tensor.reshape(-1) for tensor in value]
        return [
            torch.cat(flat[chunk]) if chunk.stop - chunk.start > 1 else value[chunk.start].clone()
            for chunk in self.chunks
        ]

    def norms(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack(torch._foreach_norm(tensors))

    def total(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack([tensor.sum() for tensor in tensors]).sum()

    def let_go(self, tensors: list[torch.Tensor]) -> None:
        """Use their memory again, unless it is much."""
        if self._keeps:
            self._free.append(tensors)

    def clear(self) -> None:
        """Nothing."""

    def _number(self, c: float) -> Any:
        """A number, on a CPU as a tensor where that gives the same bits: Python's take functions twice as long."""
        return torch.tensor(c, dtype=self.params[0].dtype) if self._exact else c

    def compute(self, name: str, operands: list[Any], c: float, out: Any) -> Any:
        if name == "spread":
            return [row.expand(p.shape).clone() for row, p in zip(operands[0].unbind(), self.params, strict=True)]
        if name == "rows":
            operands = [operands[0], list(operands[1].unbind())]
        if name == "square":
            operands = [operands[0], operands[0]]
        plain, over, keyword = _LISTS[name]
        if self._free and not (out is not None and out is operands[0]) and isinstance(operands[0], list):
            out = self._free.pop()  # memory that is new costs more than a copy
            torch._foreach_copy_(out, operands[0])
            operands = [out, *operands[1:]] if name != "square" else [out, out]
        if name == "scale":
            operands = [operands[0], self._number(c)]
        elif name == "shift":
            operands = [operands[0], [self._number(c)] * len(self.params) if self._exact else c]
        more = {} if keyword is None else {keyword: c}
        if out is not None and out is operands[0]:
            over(*operands, **more)
            return out
        return list(plain(*operands, **more))


_OF_LISTS: dict[str, tuple[str, str | None]] = {
    "scale": ("mul", None),
    "shift": ("add", None),
    "mul": ("mul", None),
    "rows": ("mul", None),
    "truediv": ("div", None),
    "axpy": ("add", "alpha"),
    "lerp": ("lerp", "weight"),
    "addcmul": ("addcmul", "value"),
    "square": ("mul", None),
    "addcdiv": ("addcdiv", "value"),
    "sqrt": ("sqrt", None),
    "abs": ("abs", None),
    "pow": ("pow", None),
    "reciprocal": ("reciprocal", None),
}
_LISTS: dict[str, tuple[Callable[..., Any], Callable[..., Any], str | None]] = {
    name: (getattr(torch, f"_foreach_{function}"), getattr(torch, f"_foreach_{function}_"), keyword)
    for name, (function, keyword) in _OF_LISTS.items()
}
"""By the names of instructions: a function of lists, the one that writes over its first, and where a number goes."""


def _as_lists(program: RuleProgram, sizes: Sequence[int], chunks: int) -> bool:
    """Whether functions of lists, which take every parameter by itself, take less time than copies end to end.

    By microseconds measured on a CPU: of a tensor in a list, of its sum, of three copies, of the calls for each chunk.
    """
    names = [name for name, *_ in lower(program) if name not in ("slot", "norm")]
    rows = sum(name.startswith("row ") for name in names)
    copied = 1.5 * len(sizes) + 6e-4 * sum(sizes) + chunks * (2.0 * rows + 1.5 * (len(names) - rows))
    listed = (0.45 * (len(names) - rows) + 2.0 * len(program.sums)) * len(sizes)
    return len(sizes) > chunks and listed < copied


@lru_cache(256)
def _lowered(program: RuleProgram) -> tuple[tuple[bool, Instruction], ...]:
    """The instructions of a program, and whether the operands of each are values all."""
    return tuple((instruction.plain, instruction) for instruction in lower(program))


def run_program(
    room: _Flat | _Lists, program: RuleProgram, grads: list[Any], packed: Sequence[Packed], numbers: Sequence[float]
) -> tuple[dict[str, list[torch.Tensor]], list[torch.Tensor]]:
    """Update the parameters of chunks; returns what was written to slots, chunk by chunk, and what was summed up."""
    values = room.begin(grads)
    written = dict(program.writes)
    writable, lent = {id(value) for value in room.writable()}, set[int]()  # may be written into; belongs to the room
    slots: dict[str, list[torch.Tensor]] = {}
    loaded: dict[str, Any] = {}
    for plain, (name, out, operands, coefficient, last) in _lowered(program):
        if name == "slot":
            slot = operands[0]
            slots[slot] = [together[slot] for together in packed]
            values[out] = loaded[slot] = room.slot(slot, slots[slot])
            if slot in written:
                writable.add(id(values[out]))
            continue
        taken: list[Any] = (
            [values[o] for o in operands]
            if plain
            else [
                values[o] if isinstance(o, int) and o >= 0 else numbers[~o] if isinstance(o, int) else o[0]
                for o in operands
            ]
        )
        if name.startswith("row "):
            values[out] = FUNCTIONS[name[4:]](*taken)
        elif name == "norm":
            values[out] = room.norms(taken[0])
        else:
            over = (
                next((values[o] for o in operands if o in last and id(values[o]) in writable), None) if last else None
            )
            c = coefficient.value(numbers) if coefficient.factors else float(coefficient.sign)
            result = values[out] = room.compute(name, taken, c, over)
            if over is not result:
                lent.add(id(result))
                writable.add(id(result))
        for place in last:
            gone = values.pop(place)
            if id(gone) in lent and gone is not values[out]:
                lent.discard(id(gone))
                writable.discard(id(gone))
                room.let_go(gone)
    after = {}
    for slot, place in program.writes:
        value = values[place]
        after[slot] = slots[slot] if value is loaded.get(slot) else room.pack(slot, value)
    sums = [room.total(values[place]) for place in program.sums]
    if program.result != 1:
        room.end(values[program.result])
    for place in {*values} - {0, 1}:
        if id(values[place]) in lent:
            lent.discard(id(values[place]))
            room.let_go(values[place])
    room.clear()
    return after, sums


class _Job(NamedTuple):
    """Chunks that one program runs on together, by their numbers, and where."""

    chunks: list[int]
    names: tuple[str, ...]
    program: RuleProgram
    first: int
    room: _Flat | _Lists


class Updater(UpdateEngine):
    """Runs updates eagerly, chunk by chunk, or of all chunks alike by lists."""

    def __init__(self, executor: Any, chunks: list[Chunk]) -> None:
        super().__init__(executor, chunks)
        self._rooms: dict[Any, _Flat | _Lists] = {}

    def _jobs(self, updates: Sequence[Update]) -> list[_Job]:
        alike: dict[tuple[RuleProgram, int], list[int]] = {}
        for number, (_, program, first) in enumerate(updates):
            alike.setdefault((program, first), []).append(number)
        jobs = []
        for (program, first), numbers in alike.items():
            several = [updates[number].names for number in numbers]
            params = [[self.executor.tensors[name] for name in names] for names in several]
            every, counts = [p for some in params for p in some], tuple(map(len, params))
            if _as_lists(program, [p.numel() for p in every], len(numbers)):
                names = tuple(name for some in several for name in some)
                room = self._rooms.setdefault((names, counts), _Lists(every, counts))
                jobs.append(_Job(numbers, names, program, first, room))
                continue
            for number, names, tensors in zip(numbers, several, params, strict=True):
                if names not in self._rooms:
                    self._rooms[names] = _Flat(tensors)
                jobs.append(_Job([number], names, program, first, self._rooms[names]))
        return jobs

    @torch.no_grad()
    def _run(
        self, jobs: list[_Job], numbers: list[float], gradients: Mapping[str, Any] | None, packed: Sequence[Packed]
    ) -> tuple[list[Packed], list[list[torch.Tensor]]]:
        written, sums, tensors = [dict(slots) for slots in packed], [], self.executor.tensors
        for chunks, names, program, first, room in jobs:
            if gradients is None:
                grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in map(tensors.__getitem__, names)]
            else:
                grads = [gradients[name] for name in names]
            mine = numbers[first : first + program.count]
            after, more = run_program(room, program, grads, [packed[number] for number in chunks], mine)
            for slot, wholes in after.items():
                for number, whole in zip(chunks, wholes, strict=True):
                    written[number][slot] = whole
            sums.append(more)
        return written, sums

    def compile(self, updates: Sequence[Update]) -> Step:
        """Return the step for all chunks."""
        every, jobs = frozenset(name for update in updates for name in update.names), self._jobs(updates)

        def step(numbers: list[float], gradients: Mapping[str, Any] | None, packed: Sequence[Packed]) -> list[Packed]:
            written, _ = self._run(jobs, numbers, gradients, packed)
            self.executor.forget_constants(every)
            return written

        return step

    def compile_sums(self, updates: Sequence[Update]) -> Summing:
        """Return what adds up over all chunks."""
        jobs = self._jobs(updates)

        def sums(numbers: list[float], gradients: Mapping[str, Any] | None, packed: Sequence[Packed]) -> Any:
            written, parts = self._run(jobs, numbers, gradients, packed)
            return written, torch.stack([torch.stack(some) for some in parts]).double().sum(0).tolist()

        return sums
