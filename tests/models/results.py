"""What runs of the table leave in ``results.json``: per model and backend some cells, each a number or a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Cell = dict[str, Any]

FILE = Path(__file__).with_name("results.json")
TABLES = {"accuracy": ("forward", "gradient"), "speed": ("step", "inference", "import")}
CELLS = tuple(cell for cells in TABLES.values() for cell in cells)
"""Cells that every backend has."""
ALONE = {"compile": "pytorch", "reading": "pytorch", "bare": "onnxruntime"}
"""Parts that are about one backend; they are measured only when they are asked for."""
PARTS = {**TABLES, "compile": ("compiled inference", "compiled step"), "reading": ("reading",), "bare": ("bare",)}
NOT_YET = {"reason": "not measured yet; `python -m tests.models --missing` does it"}


def read(path: Path = FILE) -> dict[str, Any]:
    """What is recorded: ``conditions`` by part, ``files`` by model, ``cells`` by model, backend and cell."""
    if not path.is_file():
        return {"conditions": {}, "files": {}, "cells": {}}
    return json.loads(path.read_text(encoding="utf-8"))


def write(results: dict[str, Any], path: Path = FILE) -> None:
    """Keep results, one line per model and backend, so that differences can be read."""
    lines = ["{", '"conditions": ' + json.dumps(results["conditions"], indent=1) + ",", '"files": {']
    lines.append(",\n".join(f'"{model}": {json.dumps(facts)}' for model, facts in sorted(results["files"].items())))
    lines += ["},", '"cells": {']
    models = []
    for model, backends in sorted(results["cells"].items()):
        inner = ",\n".join(f'  "{b}": {json.dumps(cells)}' for b, cells in sorted(backends.items()))
        models.append(f'"{model}": {{\n{inner}}}')
    path.write_text("\n".join([*lines, ",\n".join(models), "}", "}", ""]), encoding="utf-8")


def cell(results: dict[str, Any], model: str, backend: str, name: str) -> Cell:
    """One cell; a reason where nothing was measured."""
    return results["cells"].get(model, {}).get(backend, {}).get(name, NOT_YET)
