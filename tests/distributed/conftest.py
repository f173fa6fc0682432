"""The fixture that starts real ranks; the tests themselves stay in one process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.distributed import ranks as driver


@pytest.fixture
def on_ranks(tmp_path: Path) -> Callable[..., list[Any]]:
    """``on_ranks(case, ranks, **arguments)``: what the case returned on every rank of a real MPI."""
    reason = driver.missing()
    if reason is not None:
        pytest.skip(reason)

    def run(case: Callable[..., Any], ranks: int, **arguments: Any) -> list[Any]:
        file = tmp_path / "results.json"
        file.unlink(missing_ok=True)
        code, output = driver.launch(driver.name_of(case), ranks, file, arguments)
        assert code == 0, f"{driver.name_of(case)} on {ranks} ranks ended with {code}:\n{output}"
        return json.loads(file.read_text(encoding="utf-8"))  # type: ignore[no-any-return]

    return run
