"""What a task shows: the confusion matrix against scikit-learn, the worst pictures, and files that are damaged."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import ResultsError
from deep500.recipe import run_recipe
from deep500.report.exhibits import exhibit_views
from deep500.report.page import render
from deep500.results.exhibits import EXHIBITS, read_exhibits, write_exhibits
from deep500.tasks import Classification
from deep500.tasks.gallery import picture
from deep500.training.tally import Tally
from tests.results.report_cases import finished

PICTURE = picture(np.arange(6).reshape(2, 3), "six")
MATRIX = {"kind": "matrix", "title": "t", "values": [[1]], "rows": ["a"], "columns": ["b"]}
MATRIX |= {"row_axis": "r", "column_axis": "c"}
TABLE = {"kind": "table", "title": "said", "columns": ["wanted", "got"], "rows": [["<b>one</b>", 1.5], ["two", None]]}
LINES = {"kind": "lines", "title": "how long", "lines": {"one": [[0, 1], [2, 3]]}, "x_axis": "x", "y_axis": "y"}


def test_mistakes_are_scikit_learns_and_the_worst_come_first():
    from sklearn.metrics import confusion_matrix, log_loss

    rng, task = np.random.default_rng(0), Classification(output="y", classes=4, pictures="input")
    scores, labels = rng.normal(size=(300, 4)), rng.integers(0, 4, 300)
    pictures = rng.random((300, 1, 2, 3))
    gallery = task.gallery()
    tally = Tally(np.asarray, None, "loss", "label", "gallery", gallery)
    for begin in range(0, 300, 3):  # more batches than are kept
        part = slice(begin, begin + 3)
        tally.add(begin, {"input": pictures[part], "label": labels[part]}, {"y": scores[part]})
    tally.combine(lambda values: values)
    matrix, shown = gallery.exhibits(tally.sums)
    assert np.array_equal(matrix["values"], confusion_matrix(labels, scores.argmax(axis=1)))
    likely = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    losses = [log_loss([label], [row], labels=range(4)) for label, row in zip(labels, likely, strict=True)]
    worst = np.argsort(-np.array(losses), kind="stable")[:12]
    assert [p["caption"].rsplit(" ", 1)[1] for p in shown["pictures"]] == [f"{losses[i]:.3g}" for i in worst]
    assert shown["pictures"][0]["pixels"] == picture(pictures[worst[0]], "")["pixels"]
    assert len(tally.sums["worst"]) < 300


def test_where_nothing_can_be_shown_nothing_is():
    assert Classification().gallery() is None and Classification(classes=1000).gallery() is None
    gallery = Classification(output="y", classes=3).gallery()
    assert gallery.judge({"label": np.zeros(2, np.int64)}, {"y": np.zeros((2, 4))}) == {}
    assert gallery.exhibits(gallery.zero()) == []


def test_a_run_keeps_what_its_task_shows(tmp_path):
    d5fw = d5.load_backend("reference")
    fixed = {"model": "mlp", "model_kwargs": {"hidden": ()}, "dataset": "digits", "epochs": 1}
    mutable = {"batch_size": 128, "executor": d5fw.from_model, "optimizer": d5fw.AdamOptimizer}
    result = run_recipe(fixed, mutable, [(d5.TestAccuracy(), None)], ["--out", str(tmp_path), "--quiet"])
    matrix, pictures = read_exhibits(Path(result.path))
    right = np.trace(matrix["values"]) / 359
    assert np.sum(matrix["values"]) == 359 and 100 * right == pytest.approx(result.metrics[0].value)
    assert len(pictures["pictures"]) == 12 and pictures["pictures"][0]["height"] == 8
    page = Path(result.report).read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 12 and "Which class is taken for which?" in page


def test_all_kinds_are_drawn_and_text_is_escaped(tmp_path):
    boxed = picture(np.zeros((3, 4, 5)), "three", [{"box": [1, 1, 3, 2], "text": "<i>", "wanted": True}])
    write_exhibits(tmp_path, "own", 0, [MATRIX, TABLE, LINES, {"kind": "pictures", "title": "p", "pictures": [boxed]}])
    (drawn,) = exhibit_views(read_exhibits(tmp_path))[3]["pictures"]
    raw = base64.b64decode(drawn["uri"].partition(",")[2])
    at = raw.index(b"IDAT")
    assert len(zlib.decompress(raw[at + 4 : at + 4 + int.from_bytes(raw[at - 4 : at], "big")])) == 4 * (1 + 15)
    record = finished(tmp_path / "runs", samples=30, seeds=1)
    write_exhibits(record.path, "own", 0, read_exhibits(tmp_path))
    page = render(record)
    assert "&lt;b&gt;one&lt;/b&gt;" in page and "<b>one</b>" not in page and "how long" in page and "<rect" in page


@pytest.mark.parametrize(
    "bad",
    [
        {**MATRIX, "values": [[1, 2]]},
        {**MATRIX, "values": [["x"]]},
        {**MATRIX, "values": [[1], [2]]},
        {**LINES, "lines": {"one": [[0, 1], [2]]}},
        {**LINES, "lines": {}},
        {"kind": "pie", "title": "t"},
        {**TABLE, "rows": [[{}]]},
        {**TABLE, "more": 1},
        {"kind": "pictures", "title": "p", "pictures": [{**PICTURE, "height": 3}]},
        {"kind": "pictures", "title": "p", "pictures": [{**PICTURE, "pixels": "<script>"}]},
        {"kind": "pictures", "title": "p", "pictures": [{**PICTURE, "boxes": [{"box": [1, 2]}]}]},
    ],
)
def test_exhibits_that_are_not_as_their_kind_has_them_are_refused(tmp_path, bad):
    with pytest.raises(ResultsError):
        write_exhibits(tmp_path, "own", 0, [bad])
    content = {"schema": "deep500-exhibits-1", "task": "own", "seed": 0, "exhibits": [bad]}
    (tmp_path / EXHIBITS).write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ResultsError, match=EXHIBITS):
        read_exhibits(tmp_path)
