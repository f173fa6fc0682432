"""Table II: every command of the page runs in its shortest form and shows what its column promises.

A command that several columns name is run once. Runs get ``--dry-run`` (two batches of everything) and, but for the
speech recipes, whose data stand-ins serve, nothing else.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.metrics.test_columns import COLUMNS
from tests.packages import serve
from tests.test_docs import BLOCK, run_here

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "table_ii.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith("| column")
]
SHOWN = {
    "performance": ("flop_rate ", "roof_share "),
    "time": ("wall_time ", "training_time "),
    "convergence": ("train_loss ",),
    "accuracy": ("best_test_accuracy ", "top_3_accuracy "),
    "cost": ("cost ",),
    "energy": ("energy ", "carbon "),
    "utilisation": ("cpu_utilisation ", "gpu_utilisation "),
    "memory": ("peak_memory_host ",),
    "throughput": ("throughput ", "offline_throughput "),
    "breakdown": ("timing_breakdown ", "io_share "),
    "strong scaling": ("strong scaling", "speedup", "efficiency"),
    "communication and balance": ("communication_volume ", "load_imbalance "),
    "time to accuracy": ("time_to_accuracy_90 ",),
    "final test accuracy": ("test_accuracy ",),
    "latency": ("step_latency_p90 ", "single_stream_p90 "),
    "closed contest": ("test_accuracy ",),
    "open contest": ("test_accuracy ", "[open division"),
    "fixed infrastructure": ("--device gpu", "FIXED", "--open"),
    "operators": ("conv", "gemm", "rnn"),
    "images": ("test_accuracy ",),
    "object detection": ("test_map ",),
    "speech": ("test_word_error_rate ",),
    "text": ("test_exact_match ", "test_bleu "),
    "reinforcement learning": ("test_mean_return ",),
}
"""Column: what its command prints."""
SEEN: dict[str, str] = {}
"""What commands printed that were run."""


def shortest(command: str) -> list[str]:
    words = shlex.split(command)
    if words[:2] == ["deep500", "run"]:
        return [
            *words,
            "--dry-run",
            "--backend",
            "reference",
            *([] if "--open" in words or "batch_size" in command else ["batch_size=8"]),
        ]
    return [*words, "--quick" if "deepbench_operators" in command else "--dry-run"]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[[str], str]:
    """What the shortest form of a command prints; it has to end well, or, of what is refused, as bad usage."""

    def run(command: str) -> str:
        if command not in SEEN:
            serve(monkeypatch)
            code = run_here(shortest(command))
            SEEN[command] = "".join(capfd.readouterr())
            assert code == (2 if "fixed.py" in command else 0), SEEN[command]
        return SEEN[command]

    return run


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory):
    """Where results go, with the page's own recipe."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("table"))
        (text,) = (text for language, text in BLOCK.findall(TEXT) if text.startswith("# fixed.py"))
        Path("fixed.py").write_text(text)
        yield


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_columns_command_shows_it(row, printed):
    name, _, command, _ = row
    pytest.importorskip("torch")  # which the recipes are written with
    if name == "reinforcement learning":
        pytest.importorskip("gymnasium")
    out = printed(command.strip("`"))
    assert not [word for word in SHOWN[name] if word not in out], out


def test_the_columns_are_those_that_are_checked_and_their_tests_are_there():
    assert [row[0] for row in ROWS] == [column.name for column in COLUMNS] == list(SHOWN)
    for name, _, _, tests in ROWS:
        files = re.findall(r"`(tests/[\w/]+\.py)`", tests)
        assert files and all((ROOT / file).is_file() for file in files), name
