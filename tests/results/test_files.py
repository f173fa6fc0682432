"""Files of a run: what a crash, a full disk or an altered byte may and may not do."""

from __future__ import annotations

import errno
import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep500.errors import ResultsError
from deep500.recipe.resume import latest_unfinished
from deep500.results.checkpoint import list_checkpoints, load_checkpoint, save_checkpoint
from deep500.results.files import append_line, read_json, read_lines, share_atomic, to_json, write_atomic
from deep500.results.record import Record, spread
from deep500.results.verify import seal

STATE = {
    "arrays": {"w": np.arange(6, dtype=np.float32).reshape(2, 3).T, "step": np.float64(3.5), "none": np.zeros((0, 2))},
    "values": {"epoch": 3, "loss": [0.1, 1e-300, 0.30000000000000004]},
}


def no_space(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_checkpoint_round_trip_is_exact(tmp_path):
    path = save_checkpoint(tmp_path / "new", 3, STATE)
    loaded = load_checkpoint(path)
    assert loaded["values"] == STATE["values"] and loaded["epoch"] == 3
    for name, value in STATE["arrays"].items():
        assert loaded["arrays"][name].dtype == value.dtype and loaded["arrays"][name].shape == value.shape
        np.testing.assert_array_equal(loaded["arrays"][name], value)


def test_only_the_newest_checkpoints_stay(tmp_path):
    for epoch in (1, 2, 9, 10, 11):
        save_checkpoint(tmp_path, epoch, STATE)
    assert [p.name for p in list_checkpoints(tmp_path)] == ["epoch-10.safetensors", "epoch-11.safetensors"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["epoch-10.safetensors", "epoch-11.safetensors"]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "random"])
def test_damaged_checkpoint_is_an_error_and_the_one_before_is_used(tmp_path, damage):
    record = Record.create(tmp_path, "r", {"resolved": {}})
    for epoch in (1, 2):
        record.add_epoch(0, epoch, {"loss": 1.0 / epoch}, STATE)
    path = record.path / "checkpoints" / "seed-0" / "epoch-2.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    kinds = {"cut": data[:-5], "flip": data, "empty": b"", "random": np.random.default_rng(0).bytes(200)}
    path.write_bytes(bytes(kinds[damage]))
    with pytest.raises(ResultsError, match=r"epoch-2.safetensors: got .* expected"):
        load_checkpoint(path)
    state = record.rewind(0)
    assert state is not None and state["epoch"] == 1
    assert [line["epoch"] for line in record.epochs()] == [1]


def test_full_disk_names_the_path_and_loses_nothing(tmp_path, monkeypatch):
    path = tmp_path / "summary.json"
    write_atomic(path, "old")
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(ResultsError, match=r"No space left on device' while writing .*summary.json; expected .*--out"):
        write_atomic(path, "new")
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["summary.json"]


@pytest.mark.parametrize("links", [True, False])
def test_a_file_under_another_name_takes_no_place_of_its_own(tmp_path, monkeypatch, links):
    def refused(*_):
        raise OSError("no links here")

    if not links:
        monkeypatch.setattr("os.link", refused)
    source, path = tmp_path / "whole", tmp_path / "mine"
    write_atomic(source, b"new")
    write_atomic(path, b"old")
    for _ in range(2):  # a process that was killed in between does it again
        share_atomic(source, path)
        assert path.read_bytes() == b"new" and sorted(p.name for p in tmp_path.iterdir()) == ["mine", "whole"]
        assert source.samefile(path) is links
    write_atomic(path, b"newer")
    assert source.read_bytes() == b"new"


def test_full_disk_at_a_checkpoint_keeps_the_last_good_one(tmp_path, monkeypatch):
    save_checkpoint(tmp_path, 1, STATE)
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(ResultsError, match="epoch-2"):
        save_checkpoint(tmp_path, 2, STATE)
    assert [p.name for p in tmp_path.iterdir()] == ["epoch-1.safetensors"]
    load_checkpoint(tmp_path / "epoch-1.safetensors")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full, the file that is always full")  # noqa: PTH110
def test_a_really_full_device_is_a_results_error(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.symlink_to("/dev/full")
    with pytest.raises(ResultsError, match="No space left"):
        append_line(path, {"epoch": 1})


def test_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ResultsError, match=r"while writing .*file.*--out DIR"):
        Record.create(tmp_path / "file", "r", {"resolved": {}})


def test_line_cut_short_is_dropped_and_a_spoilt_one_is_an_error(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert read_lines(path) == []
    append_line(path, {"seed": 0, "epoch": 1, "loss": float("nan")})
    with path.open("ab") as file:
        file.write(b'{"epoch": 2, "lo')
    assert read_lines(path) == [{"seed": 0, "epoch": 1, "loss": None}]
    path.write_bytes(b"{]\n" + path.read_bytes())
    with pytest.raises(ResultsError, match="line 1: got no readable JSON"):
        read_lines(path)


def test_json_has_numbers_only_where_they_are_numbers():
    value = {"a": np.float32(0.5), "b": [np.int64(3), float("inf")], 3: (None, True)}
    assert json.loads(to_json(value)) == {"a": 0.5, "b": [3, None], "3": [None, True]}


@given(st.text(st.characters(), max_size=20) | st.text("\0a\ud800\udfff\\u0", max_size=8))
def test_any_text_that_is_written_is_read(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("texts") / "any.json"
    write_atomic(path, to_json({"text": text, text: [text]}))
    back = read_json(path)
    odd = "".join("\ufffd" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in text)
    assert back == ({odd: [odd]} if odd == "text" else {"text": odd, odd: [odd]})


def test_read_json_refuses(tmp_path):
    for text in ("", "[1]", "{"):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(ResultsError, match="name a results folder"):
            read_json(tmp_path / "manifest.json")


def test_two_runs_in_one_second_get_two_folders(tmp_path):
    runs = {Record.create(tmp_path, "r", {"resolved": {"a": 1}}).path for _ in range(3)}
    assert len(runs) == 3


def test_resume_finds_the_newest_unfinished_run(tmp_path):
    with pytest.raises(ResultsError, match="no unfinished run"):
        latest_unfinished(tmp_path, "r")
    first, second = (Record.create(tmp_path, "r", {"resolved": {"a": n}}) for n in range(2))
    manifest = second.manifest()
    second.write_manifest({**manifest, "started": "2999-01-01T00:00:00+00:00"})
    assert latest_unfinished(tmp_path, "r").path == second.path
    second.write_summary({"verdict": "PASSED"})
    assert latest_unfinished(tmp_path, "r").path == second.path  # it has no seal
    seal(second.path)
    assert latest_unfinished(tmp_path, "r").path == first.path
    first.write_manifest({**manifest, "schema": "other"})
    with pytest.raises(ResultsError, match="got schema 'other'"):
        Record.open(first.path)


def test_rewind_touches_one_seed_only(tmp_path):
    record = Record.create(tmp_path, "r", {"resolved": {}})
    record.add_epoch(0, 1, {}, STATE)
    record.add_epoch(1, 1, {}, STATE)
    append_line(record.path / "metrics.jsonl", {"seed": 1, "epoch": 2})  # killed before its checkpoint
    assert record.rewind(1)["epoch"] == 1
    assert [(line["seed"], line["epoch"]) for line in record.epochs()] == [(0, 1), (1, 1)]
    assert record.rewind(2) is None and len(record.epochs(0)) == 1


def test_spread_of_nothing_is_not_zero():
    assert spread([None, float("nan")]) == "not measured"
