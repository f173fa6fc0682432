"""Cells about one backend: ``compile=True``, reading a file against onnx2torch, a run against a bare session.

They are measured only when asked for (``python -m tests.models --part compile|reading|bare``).
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import Any

from deep500.registry import load_backend
from tests.models.architectures.architecture import Architecture, import_torchvision
from tests.models.cells import Cell, attempt, in_turns, named_inputs, our_inference, our_step, quotient
from tests.models.exported import Exported
from tests.models.originals import NotComparable, TorchOriginal, original

Work = Callable[[], object]


# -- torch.compile -----------------------------------------------------------------------------------------------------
def compiled(exported: Exported, architecture: Architecture) -> dict[str, Cell]:
    """PyTorch with ``compile=True`` over the same without it; beside it the original, compiled likewise."""
    module = load_backend("pytorch")
    model: Any = original(architecture, exported.inputs)
    whose = model if isinstance(model, TorchOriginal) else None

    def inference() -> Cell:
        theirs = whose and {c: whose.inference(c) for c in (True, False)}
        return compare({c: our_inference(exported, module, compile=c) for c in (True, False)}, theirs)

    def step() -> Cell:
        theirs = whose and {c: whose.step(exported.weights, c) for c in (True, False)}
        return compare({c: our_step(exported, module, compile=c) for c in (True, False)}, theirs)

    return {"compiled inference": attempt(inference), "compiled step": attempt(step)}


def compare(ours: dict[bool, Work], theirs: dict[bool, Work] | None) -> Cell:
    """Ratios of what is compiled and what is not, by whether it is; ``first`` calls in seconds of CPU."""
    from torch._inductor.utils import fresh_cache

    warm_up()
    first = {}
    for name, works in (("ours", ours), ("theirs", theirs)):
        if works:
            with fresh_cache():
                start = seconds()
                works[True]()
                first[name] = seconds() - start
    works = [ours[True], ours[False], *((theirs[True], theirs[False]) if theirs else ())]
    times = in_turns(works, 2.0)
    cell: Cell = {**quotient(times[:, 0], times[:, 1]), "first": first["ours"]}
    if theirs:
        cell["against"] = quotient(times[:, 0], times[:, 2])["value"]
        cell["theirs"] = quotient(times[:, 2], times[:, 3])["value"]
        cell["eager"] = quotient(times[:, 1], times[:, 3])["value"]
        cell["first theirs"] = first["theirs"]
    return cell


def seconds() -> float:
    """CPU time of this process and of compilers that it has run."""
    uses = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(use.ru_utime + use.ru_stime for use in uses)


def warm_up() -> None:
    """What torch.compile does once in a process, such as to find out about the compiler."""
    import torch

    torch.compile(torch.nn.Linear(2, 2))(torch.ones(1, 2)).sum().backward()


# -- reading a file ----------------------------------------------------------------------------------------------------
def reading(exported: Exported, architecture: Architecture) -> dict[str, Cell]:
    """CPU time from the file to something that runs in PyTorch, over that of onnx2torch."""
    return {"reading": attempt(lambda: _reading(exported))}


def _reading(exported: Exported) -> Cell:
    import_torchvision()  # which it needs
    import onnx2torch

    module = load_backend("pytorch")
    try:
        onnx2torch.convert(exported.path)
    except Exception as error:
        raise NotComparable(f"onnx2torch: {type(error).__name__}: {error}") from error
    times = in_turns([lambda: module.from_onnx(exported.path), lambda: onnx2torch.convert(exported.path)], 4.0)
    return quotient(times[:, 0], times[:, 1])


# -- a bare session ----------------------------------------------------------------------------------------------------
def bare(exported: Exported, architecture: Architecture) -> dict[str, Cell]:
    """CPU time of a run by ONNX Runtime's executor, over that of a session of the file itself."""
    return {"bare": attempt(lambda: _bare(exported))}


def _bare(exported: Exported) -> Cell:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(exported.path, options, providers=["CPUExecutionProvider"])
    executor = load_backend("onnxruntime").from_onnx(exported.path, threads=1)
    given = named_inputs(executor.network, exported)
    feeds = {v.name: given[v.name] for v in session.get_inputs()}
    times = in_turns([lambda: executor.inference(given), lambda: session.run(None, feeds)], 3.0)
    return quotient(times[:, 0], times[:, 1])


PARTS: dict[str, Callable[[Exported, Architecture], dict[str, Cell]]] = {
    "compile": compiled, "reading": reading, "bare": bare,
}  # fmt: skip
