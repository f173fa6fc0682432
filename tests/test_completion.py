"""What the shell is offered, asked as argcomplete's shell function asks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("argcomplete")

ROWS = {
    "deep500 publish se": ["seal"],
    "deep500 comp": ["compare"],
    "deep500 run digits_l": ["digits_lenet", "digits_lenet_mish"],
    "deep500 run digits_lenet --backe": ["--backend"],
    "deep500 run digits_lenet --backend py": ["pytorch"],
    "deep500 run digits_lenet batch": ["batch_size="],
    "deep500 run digits_lenet --log tens": ["tensorboard"],
    "deep500 publish export x --to ml": ["mlflow", "mllog"],
}


@pytest.mark.parametrize(("line", "want"), ROWS.items(), ids=ROWS)
def test_offers(line, want, tmp_path):
    answer = tmp_path / "answer"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    subprocess.run([sys.executable, "-m", "deep500"], env={**os.environ, **asked}, check=False, capture_output=True)
    assert sorted(word.strip() for word in answer.read_text().split("\n") if word.strip()) == want
