"""docs/models.md, from what is recorded in ``results.json``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from deep500.registry import backend_names
from tests.models.architectures import ARCHITECTURES
from tests.models.families import read, section
from tests.models.results import Cell, cell

PAGE = Path(__file__).parents[2] / "docs" / "models.md"

HEAD = """# Models

Architectures of public collections, in every backend: exported to ONNX with the tools that their users have, read by
Deep500, and compared with the *original*, the model that the file was exported from, as its own framework runs it. All
weights are random; none is downloaded. Sizes are small, so that the table takes minutes. This page is written by
`python -m tests.models` from what it has recorded in `tests/models/results.json`; the packages that it needs live in an
environment of their own (`make models`).

Cells that hold (*n*) were not measured, for reason *n* below.
"""

WHAT = {
    "forward": (
        "Forward error",
        "Largest difference of any output from the original's, as a share of the largest value there; float32, "
        "evaluation mode. Fresh weights can make networks vanish: constant parameters get noise, batch normalization "
        "the statistics of a batch, and a largest value below 1e-3 is refused.",
    ),
    "gradient": (
        "Gradient error",
        "Norm of the difference from the gradients that the original's framework computes, over their norm; float64, "
        "all trainable parameters, batch normalization in training mode. The loss is the mean square of the outputs "
        "times fixed random weights. Constants that an exporter wrote as float32 differ from those of the original by "
        "up to 6e-8, which shows as errors about 1e-8.",
    ),
    "step": (
        "Training step",
        "CPU time of a step (forward, backward, gradient descent) over that of the original's step, with the 95 % "
        "interval of the median of pairs that were measured in turns; below 1 Deep500 is faster. One thread. For Keras "
        "the original is a compiled `tf.function`.",
    ),
    "inference": ("Inference", "The same for a run in evaluation mode, without gradients."),
    "import": ("Import", "CPU seconds from the file to an executor; the second time in its process."),
}


def _error(found: Cell) -> str:
    return "0" if found["value"] == 0 else f"{found['value']:.0e}"


def _ratio(found: Cell) -> str:
    ends = "" if found.get("low") is None else f" ({found['low']:.2f}-{found['high']:.2f})"
    return f"{found['value']:.2f}{ends}"


def _seconds(found: Cell) -> str:
    return f"{found['value']:.2f} s"


SHOW: dict[str, Callable[[Cell], str]] = {
    "forward": _error, "gradient": _error, "step": _ratio, "inference": _ratio, "import": _seconds,
}  # fmt: skip


COMPILED = (
    "CPU time of runs and training steps in PyTorch with `compile=True` (torch.compile) over those without; in "
    "brackets the same of the original; then ours over the original, both compiled; then the seconds of CPU of the "
    "first call, with the original's in brackets. JAX's functions are always compiled: nothing is left to switch on."
)
BESIDE = (
    "Reading a file for PyTorch, from the file to an executor, over `onnx2torch.convert` on the same file; a run by "
    "ONNX Runtime's executor over a bare session of the file."
)


class Reasons:
    """Why cells are empty, numbered as they come."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, reason: str) -> str:
        return f"({self.numbers.setdefault(reason, len(self.numbers) + 1)})"


def page(results: dict[str, Any]) -> str:
    """The whole page."""
    reasons = Reasons()
    parts = [HEAD, *_conditions(results), _summary(results), _models(results)]
    for name, (title, text) in WHAT.items():
        parts.append(f"## {title}\n\n{text}\n\n{_table(results, name, reasons)}")
    parts += [_compiled(results, reasons), _beside(results, reasons), _others(results), section(read())]
    listed = [
        f"{number}. {reason.replace('|', '/').replace('<', '&lt;')}" for reason, number in reasons.numbers.items()
    ]
    parts.append("## Reasons\n\n" + ("\n".join(listed) or "Every cell was measured."))
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _conditions(results: dict[str, Any]) -> list[str]:
    return ["\n".join(f"- {name}: {text}" for name, text in results["conditions"].items())]


def _rows(header: list[str], rows: list[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, rule, *rows])


def _summary(results: dict[str, Any]) -> str:
    """Per backend: how many models, the worst errors, the geometric means of the ratios."""
    rows = []
    for backend in backend_names():
        row = [backend]
        for name in ("forward", "gradient", "step", "inference"):
            found = [cell(results, model, backend, name) for model in ARCHITECTURES]
            values = [c["value"] for c in found if "value" in c]
            if not values:
                row.append("0")
            elif name in ("forward", "gradient"):
                row.append(f"{len(values)}; {np.median(values):.0e}; {max(values):.0e}")
            else:
                row.append(f"{len(values)}; {np.exp(np.mean(np.log(values))):.2f}")
        rows.append(row)
    text = (
        f"Of {len(ARCHITECTURES)} models: how many were measured; median and largest error; geometric mean of ratios."
    )
    return f"## Summary\n\n{text}\n\n{_rows(['backend', 'forward', 'gradient', 'step', 'inference'], rows)}"


def _models(results: dict[str, Any]) -> str:
    rows = []
    for model, architecture in ARCHITECTURES.items():
        facts = results["files"].get(model, {})
        exporter = architecture.exporter + ("" if architecture.optimize else ", not optimized")
        rows.append([
            f"`{model}`", architecture.what, f"{architecture.collection} {facts.get('version', '')}".strip(), exporter,
            f"{facts.get('nodes', 'not exported')}", f"{facts.get('weights', 0):,}",
        ])  # fmt: skip
    text = (
        "*legacy* and *dynamo* are PyTorch's two exporters (dynamo with its optimization unless it says *not "
        "optimized*: it folds parameters away that only meet constants), *keras* is tf2onnx, *sklearn* skl2onnx."
    )
    return f"## The models\n\n{text}\n\n{_rows(['model', 'what', 'from', 'exporter', 'nodes', 'weights'], rows)}"


def _table(results: dict[str, Any], name: str, reasons: Reasons) -> str:
    rows = []
    for model in ARCHITECTURES:
        found = [cell(results, model, backend, name) for backend in backend_names()]
        rows.append([f"`{model}`", *(SHOW[name](c) if "value" in c else reasons(c["reason"]) for c in found)])
    return _rows(["model", *backend_names()], rows)


def _mean(values: list[float]) -> str:
    return f"{np.exp(np.mean(np.log(values))):.2f}" if values else "none"


def _compiled(results: dict[str, Any], reasons: Reasons) -> str:
    """`compile=True` in PyTorch: one row per model, geometric means below."""
    rows, names = [], ("compiled inference", "compiled step")
    cells = {model: [cell(results, model, "pytorch", name) for name in names] for model in ARCHITECTURES}
    for model, found in cells.items():
        row = [f"`{model}`"]
        for c in found:
            if "value" not in c:
                row += [reasons(c["reason"])] * 3
                continue
            theirs = f" ({c['theirs']:.2f})" if "theirs" in c else ""
            row += [f"{c['value']:.2f}{theirs}", f"{c['against']:.2f}" if theirs else "-"]
            row.append(f"{c['first']:.0f} s" + (f" ({c['first theirs']:.0f})" if theirs else ""))
        rows.append(row)
    lines = []
    for place, name in enumerate(names):
        both = [found[place] for found in cells.values() if "theirs" in found[place]]
        means = [_mean([c[key] for c in both]) for key in ("value", "theirs", "against")]
        lines.append(
            f"{name.removeprefix('compiled ').capitalize()}, geometric mean of {len(both)} models: {means[0]} of eager "
            f"(the original {means[1]}); compiled over the compiled original {means[2]}."
        )
    header = ["model", "inference", "over original", "first call", "step", "over original", "first call"]
    return f"## torch.compile\n\n{COMPILED}\n\n{' '.join(lines)}\n\n{_rows(header, rows)}"


def _beside(results: dict[str, Any], reasons: Reasons) -> str:
    """Importers and sessions of others: one row per model."""
    rows, values = [], dict[str, list[float]](reading=[], bare=[])
    for model in ARCHITECTURES:
        row = [f"`{model}`"]
        for name, backend in (("reading", "pytorch"), ("bare", "onnxruntime")):
            found = cell(results, model, backend, name)
            row.append(_ratio(found) if "value" in found else reasons(found["reason"]))
            values[name] += [found["value"]] if "value" in found else []
        rows.append(row)
    lines = [
        f"{title}: {len(found)} models, median {np.median(found):.2f}, largest {max(found):.2f}."
        for title, found in zip(("Over onnx2torch", "Over a bare session"), values.values(), strict=True)
        if found
    ]
    table = _rows(["model", "reading, over onnx2torch", "run, over a bare session"], rows)
    return f"## Beside other importers and sessions\n\n{BESIDE}\n\n{' '.join(lines)}\n\n{table}"


def _others(results: dict[str, Any]) -> str:
    """Arrays that Deep500 trains and the original does not."""
    lines = []
    for model in ARCHITECTURES:
        for backend in backend_names():
            found = cell(results, model, backend, "gradient")
            if found.get("more"):
                more = (
                    f" and {found['more'] - len(found['others'])} more" if found["more"] > len(found["others"]) else ""
                )
                lines.append(f"- `{model}`: {', '.join(f'`{n}`' for n in found['others'])}{more}")
                break
    text = (
        "Arrays that are read as parameters and that the original does not train (tables that exporters left in files):"
    )
    return "## Parameters too many\n\n" + (text + "\n\n" + "\n".join(lines) if lines else "None.")
