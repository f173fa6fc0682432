"""The pictures of docs/intervals.md say what the page says."""

import runpy
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
PAGE = runpy.run_path(str(ROOT / "docs" / "simulated_intervals.py"))


def test_textbook_intervals_miss_where_the_others_hold() -> None:
    rng = np.random.default_rng(0)
    times = [PAGE["dependent_times"](rng, 0.9, 1000) for _ in range(200)]
    groups = [PAGE["launches"](rng) for _ in range(200)]
    shares = [
        PAGE["covers"]([PAGE[method](values) for values in data])
        for method, data in (("naive", times), ("counted", times), ("pooled", groups), ("of_launches", groups))
    ]
    assert max(shares[0], shares[2]) < 0.55
    assert min(shares[1], shares[3]) > 0.91


def test_the_simulated_series_is_the_one_that_is_named() -> None:
    logs = np.log(PAGE["dependent_times"](np.random.default_rng(1), 0.7, 200_000))
    assert abs(np.corrcoef(logs[1:], logs[:-1])[0, 1] - 0.7) < 0.01
    assert abs(logs.std() - 0.05) < 0.001


def test_every_picture_of_the_page_is_drawn(tmp_path: Path) -> None:
    PAGE["draw"](tmp_path, series=3)
    drawn = {path.name for path in tmp_path.iterdir()}
    text = (ROOT / "docs" / "intervals.md").read_text(encoding="utf-8")
    assert drawn == {"dependent.svg", "coverage.svg", "launches.svg"}
    assert all(f"(_simulated/{name})" in text for name in drawn)
