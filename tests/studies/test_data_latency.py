"""The study of data: equal pixels in every storage and loader, columns that are measured, faults that are seen."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from deep500.measure.statistics import Interval
from recipes.studies.data_latency import __main__ as study
from recipes.studies.data_latency.decoders import DECODERS, missing
from recipes.studies.data_latency.measuring import OURS, LatencyCase, LatencySettings, LatencyStudy, LoaderResult
from recipes.studies.data_latency.printing import cell, tables, wrong
from recipes.studies.data_latency.storage import ENCODED, NEEDS, Reader, dataset, files_of, forget, pictures, write
from recipes.studies.data_latency.systems import LOADERS, LoaderJob, reason
from recipes.studies.data_latency.worker import LoaderWorker, cpu_seconds, digests_of, memory

COUNT, SIZE, BATCH = 24, 16, 8


def here(storage: str, decoder: str = "Pillow") -> bool:
    return not reason(OURS, storage, decoder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pictures")
    write(path, COUNT, SIZE, [storage for storage in NEEDS if here(storage)])
    return path


def sorted_digests(batches) -> list[str]:
    return sorted(digest for batch in batches for digest in digests_of(batch))


@pytest.mark.parametrize("storage", NEEDS)
def test_every_storage_holds_the_same_pixels(folder, storage):
    if not here(storage):
        pytest.skip(reason(OURS, storage, "Pillow"))
    expected = sorted_digests([dataset(folder, "JPEG folder", "Pillow", SIZE)[:]["input"]])
    assert len(set(expected)) == COUNT
    batch = dataset(folder, storage, "Pillow", SIZE)[:]
    assert sorted_digests([batch["input"]]) == expected
    assert sorted(batch["label"]) == sorted(np.arange(COUNT) % 10)
    if storage != "TFRecord":  # which no plain library reads
        reader = Reader(folder, storage, "Pillow")
        pixels = [reader[number].transpose(2, 0, 1) / np.float32(255) for number in range(len(reader))]
        assert sorted_digests([np.stack(pixels)]) == expected


@pytest.mark.parametrize("decoder", DECODERS)
def test_every_decoder_gives_the_same_pixels(decoder):
    if missing(decoder):
        pytest.skip(f"needs {missing(decoder)}")
    for data in pictures(3, 32):
        pixels = DECODERS[decoder][1](data)
        assert pixels.dtype == np.uint8
        np.testing.assert_array_equal(pixels, DECODERS["Pillow"][1](data))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # DataLoader's own, when its workers end
@pytest.mark.parametrize("system", LOADERS)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("storage", ["raw", "JPEG folder"])
def test_every_loader_delivers_each_sample_once(folder, system, workers, storage):
    if why := reason(system, storage, "Pillow"):
        pytest.skip(why)
    expected = sorted_digests([dataset(folder, storage, "Pillow", SIZE)[:]["input"]])
    for augment in (False, True):
        loader = LOADERS[system][1](LoaderJob(folder, storage, "Pillow", workers, augment, SIZE, BATCH))
        batches = list(loader.epoch(0))
        loader.close()
        assert [batch.shape for batch in batches] == [(BATCH, 3, SIZE, SIZE)] * 3
        assert (sorted_digests(batches) == expected) is not augment  # augmentation changes some


def test_a_worker_measures_what_it_says(folder):
    worker = LoaderWorker()
    worker.do_open(
        OURS, str(folder), storage="JPEG folder", decoder="Pillow", workers=2, augment=False, size=SIZE, batch=8
    )
    first, epoch = worker.do_first(cold=False), worker.do_epoch()
    assert 0 < first["seconds"] < 60 and epoch["images"] == COUNT and len(epoch["batches"]) == 3
    assert sum(epoch["batches"]) == pytest.approx(epoch["seconds"], rel=1e-6)
    whole = worker.do_digests()["digests"]
    assert worker.do_resume(1)["digests"] == whole[BATCH:] and len(set(whole)) == COUNT
    peak = worker.do_memory()
    assert peak["peak"] is None or peak["peak"] >= peak["before"] > 0
    worker.do_close()


def test_cpu_time_and_memory_are_those_of_all_processes():
    begin, held = cpu_seconds(), memory()
    ballast = np.ones(20_000_000)
    while cpu_seconds() < begin + 0.05:
        ballast[:1000].sum()
    assert held is None or memory() > held + 100_000_000


def test_files_are_forgotten_or_it_is_said(folder):
    """Whether the file system lets go of its cache differs; what is read afterwards does not."""
    assert forget(files_of(folder, "JPEG folder")) in (True, False)
    assert len(files_of(folder, "JPEG folder")) == COUNT and len(files_of(folder, "indexed tar")) == 2


@pytest.mark.slow
def test_quick_shows_a_table_with_everything(tmp_path, capsys):
    words = ["--quick", "--storage", "tar", "--storage", "TFRecord", "--loader", "deep500", "--loader", "DataLoader"]
    assert study.main([*words, "--json", str(tmp_path / "out.json")]) == 0
    text = capsys.readouterr().out
    assert "### tar, Pillow" in text and "| DataLoader |  | not measured: PyTorch reads no TFRecord |" in text
    rows = json.loads((tmp_path / "out.json").read_text())["results"]
    ours = [row for row in rows if row["system"] == OURS]
    assert [row["workers"] for row in ours] == [0, 2, 0, 2]
    for row in ours:
        assert row["deterministic"] and row["resumable"] and not row["wrong"]
        for column in ("first", "median", "p99", "rate", "cpu"):
            assert row[column]["median"] > 0, column
    (peer, *_) = [row for row in rows if row["system"] == "DataLoader" and not row["missing"]]
    assert peer["ratio"]["n"] == 2 and peer["resumable"] is False


def test_faults_of_a_loader_are_seen(folder):
    settings = LatencySettings(folder, 2, BATCH, SIZE, COUNT, (0,), (OURS,))
    study_, case = LatencyStudy(settings), LatencyCase("raw", "Pillow", False)

    class Doubles:
        def ask(self, what, **options):
            return {"digests": ["a"] * COUNT}

    study_._process = lambda system: Doubles()
    result = LoaderResult(case, 0, OURS)
    study_._check(result, {OURS: []})
    assert result.wrong == f"{COUNT} samples, 1 different ones, of {COUNT}"
    results = {OURS: LoaderResult(case, 0, OURS), "DataLoader": LoaderResult(case, 0, "DataLoader")}
    LatencyStudy._compare(case, results, {OURS: ["a", "b"], "DataLoader": ["b", "c"]})
    assert wrong([*results.values()]) == ["WRONG: raw, DataLoader, 0 workers: 1 samples with other pixels than deep500"]


def test_cells_and_cases():
    assert cell(Interval(0.25, None, None, 2)) == "0.25 *" and cell(None) == "not measured"
    assert cell(Interval(0.25, 0.2, 0.3, 12), 1e3) == "250 (200-300)"
    cases = study.cases(study.options([]))
    assert {case.storage for case in cases} == set(NEEDS)
    assert {case.decoder for case in cases if case.storage == "JPEG folder"} == set(DECODERS)
    assert sum(case.augment for case in cases) == 1 and "raw" not in ENCODED
    assert "not measured: needs x" in tables([LoaderResult(cases[0], 0, OURS, "needs x")], {})


@pytest.mark.parametrize("words", [["--workers", "x"], ["--workers", "-1"], ["--rounds", "0"], ["--storage", "zip"]])
def test_bad_input(words, capsys):
    with pytest.raises(SystemExit):
        study.main(words)
    assert "expected" in capsys.readouterr().err or words[0] == "--storage"
