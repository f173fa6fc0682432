"""Architectures of public collections in every backend: ``python -m tests.models [--only REGEX] [--part PART]``.

Every model is exported once; then each backend gets a process of its own per model, with limits on time and memory, for
its errors (``--part accuracy``) and one for its times (``--part speed``, one after the other: give them a core that
nothing else uses, as with ``taskset``). Only when asked for: ``compile`` (torch.compile of ours and of the originals,
minutes a model), ``reading`` (against onnx2torch), ``bare`` (against a session of ONNX Runtime). What comes is recorded
in ``results.json``, and ``docs/models.md`` is written from that. Exit code: 0 all cells of what was asked for are
numbers, 1 some are reasons, 3 a collection is missing.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from deep500.measure import environment
from deep500.registry import backend_names, is_installed
from tests.models import results as record
from tests.models.architectures import ARCHITECTURES
from tests.models.cells import shorten
from tests.models.page import PAGE, page

ROOT = Path(__file__).parents[2]
LIMIT, COMPILING = 240.0, 1800.0
"""Seconds that one process may take; those of one that compiles four programs."""
MODULES = {"scikit-learn": "sklearn"}
"""Packages that are imported under another name."""
ONE_THREAD = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "HF_HUB_OFFLINE": "1", "KERAS_BACKEND": "tensorflow",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}  # fmt: skip
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
"""What errors are measured with needs no fast code: XLA compiles in a third of the time."""


def fill(names: tuple[str, ...], cell: dict[str, Any]) -> dict[str, Any]:
    """The same cell under all names."""
    return {name: dict(cell) for name in names}


def run(part: str, model: str, backend: str, folder: Path, limit: float = LIMIT) -> dict[str, Any]:
    """The cells of one process; where it dies, runs too long or prints nothing, that is the reason in each."""
    command = [sys.executable, "-m", "tests.models.cells", part, model, backend, str(folder)]
    names = record.PARTS.get(part, ("file",))
    flags = ONE_THREAD | ({"XLA_FLAGS": f"{ONE_THREAD['XLA_FLAGS']} {QUICK}"} if part == "accuracy" else {})
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **flags}, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return fill(names, {"reason": f"took longer than {limit:.0f} s"})
    if done.returncode:
        last = next(iter(reversed(done.stderr.strip().splitlines())), "nothing on stderr")
        return fill(names, {"reason": shorten(f"process ended with {done.returncode}: {last}")})
    return json.loads(done.stdout.strip().splitlines()[-1])


def conditions(part: str) -> str:
    """When, where and on what a part was measured."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    return (
        f"{datetime.date.today()}, commit {commit.stdout.strip() or 'unknown'}, Python {platform.python_version()}, "
        f"{environment.describe()['cpu']}"
    )


def main() -> int:
    """Parse, run, record, write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="regular expression on the models' names")
    parser.add_argument("--backend", action="append", choices=backend_names(), help="may be repeated; all if left out")
    parser.add_argument(
        "--part",
        action="append",
        choices=tuple(record.PARTS),
        help=f"may be repeated; {' and '.join(record.TABLES)} if left out",
    )
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "deep500-models",
                        help="where exported files are kept between runs")  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, help="processes at once for accuracy and compile")
    parser.add_argument("--note", default="", help="what to say beside the date of what is measured now")
    parser.add_argument("--missing", action="store_true", help="only what has no cells yet")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    options = parser.parse_args()
    results = record.read()
    good = True
    if not options.page:
        models = [name for name in ARCHITECTURES if re.search(options.only, name)]
        missing = {ARCHITECTURES[name].collection for name in models}
        missing = {c for c in missing if importlib.util.find_spec(MODULES.get(c, c)) is None}
        if missing:
            print(f"got no packages {sorted(missing)}; expected them all: make models")
            return 3
        backends = [b for b in options.backend or backend_names() if is_installed(b)]
        for part in options.part or record.TABLES:
            alone = record.ALONE.get(part)
            good &= measure(results, part, models, [alone] if alone else backends, options)
    PAGE.write_text(page(results), encoding="utf-8")
    print(PAGE)
    return 0 if good else 1


def measure(results: dict[str, Any], part: str, models: list[str], backends: list[str], options: Any) -> bool:
    """One part of the table; every process is recorded as it ends. Whether all cells are numbers."""
    results["conditions"][part] = conditions(part) + (f", {options.note}" if options.note else "")
    jobs = options.jobs if part in ("accuracy", "compile") else 1
    limit = COMPILING if part == "compile" else LIMIT
    good, start = True, time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        unknown = [model for model in models if model not in results["files"]]
        for model, facts in zip(
            unknown, pool.map(lambda m: run("export", m, "-", options.folder), unknown), strict=True
        ):
            if "file" in facts:
                print(f"{model}: {facts['file']['reason']}")
                good = False
            else:
                results["files"][model] = facts
        pairs = [(model, backend) for backend in backends for model in models]
        if options.missing:
            known = results["cells"]
            pairs = [(m, b) for m, b in pairs if record.PARTS[part][0] not in known.get(m, {}).get(b, {})]
        for (model, backend), cells in zip(
            pairs, pool.map(lambda pair: run(part, *pair, options.folder, limit), pairs), strict=True
        ):
            results["cells"].setdefault(model, {}).setdefault(backend, {}).update(cells)
            shown = "  ".join(f"{n} {c.get('value', c.get('reason'))}" for n, c in cells.items())
            print(f"{time.monotonic() - start:6.0f} s  {model:20} {backend:12} {shown}", flush=True)
            good &= all("value" in c for c in cells.values())
            record.write(results)
    return good


if __name__ == "__main__":
    sys.exit(main())
