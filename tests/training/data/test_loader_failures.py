"""Failures that loaders of several processes are known for (PyTorch's `DataLoader` above all), asked of threads here.

A dead worker that nobody names, or for which everybody waits; the same random numbers in every worker; samples lost or
doubled, or another order, with another number of workers; memory without a bound; a broken image in mid-epoch. What
needs shared memory cannot happen: threads hand arrays over in their own process, whatever the size of ``/dev/shm``.
"""

from __future__ import annotations

import io
import pickle
import struct
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import deep500 as d5
from deep500.errors import DataError, InputError
from deep500.training.data import NumpyDataset
from deep500.training.data.files import FileListDataset, ImageFolder
from deep500.training.data.formats.crc32c import masked
from deep500.training.data.formats.tfrecord import from_tfrecord
from deep500.training.data.prefetch import Prefetch
from deep500.training.data.samplers import OrderedSampler, ShuffleSampler

SIZE = 16


def numbered(count: int) -> NumpyDataset:
    """Samples that are their own numbers."""
    return NumpyDataset(np.arange(count, dtype=np.float32)[:, None], "input", np.arange(count))


def workers_running() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("deep500-prefetch")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve JPEG files of two classes."""
    rng = np.random.default_rng(0)
    for number in range(12):
        path = tmp_path / f"class{number % 2}" / f"{number:02}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)).save(path, quality=95)
    return tmp_path


def spoil(path: Path) -> None:
    """Cut a file off in the middle of its pixels."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


# -- order, samples and memory ---------------------------------------------------------------------------------------
@given(
    count=st.integers(1, 60),
    batch=st.integers(1, 9),
    workers=st.integers(1, 5),
    depth=st.integers(1, 12),
    epoch=st.integers(0, 3),
    drop=st.booleans(),
)
@settings(deadline=None)
def test_no_sample_is_lost_or_doubled_with_any_number_of_workers(count, batch, workers, depth, epoch, drop):
    def sampler():
        made = ShuffleSampler(numbered(count), min(batch, count), 3, drop_last_batch=drop)
        made.set_epoch(epoch)
        return made

    plain = [b["label"].tolist() for b in sampler()]
    ahead = [b["label"].tolist() for b in Prefetch(sampler(), depth, workers)]
    assert ahead == plain
    seen = sorted(label for batch in ahead for label in batch)
    assert len(set(seen)) == len(seen) and len(seen) == (count - count % min(batch, count) if drop else count)
    assert not workers_running()


@given(workers=st.integers(1, 5), depth=st.integers(1, 6), pauses=st.lists(st.booleans(), min_size=12, max_size=12))
@settings(deadline=None, max_examples=40)
def test_memory_is_bounded_by_the_depth(workers, depth, pauses):
    """At no time are more batches begun than handed out and ``depth``, however fast or slow the consumer is."""
    begun, handed, excess, lock = [0], [0], [0], threading.Lock()

    def note(batch, rng):
        with lock:
            begun[0] += 1
            excess[0] = max(excess[0], begun[0] - handed[0])
        return batch

    batches = iter(Prefetch(OrderedSampler(numbered(24), 2, transformations=[note]), depth, workers))
    for pause in pauses:
        if pause:
            threading.Event().wait(0.001)
        with lock:
            handed[0] += 1  # asked for: one may be made beyond those ahead
        next(batches)
    assert next(batches, None) is None and begun[0] == 12
    assert excess[0] <= depth


def test_random_numbers_differ_between_batches_and_not_between_numbers_of_workers():
    """NumPy's global generator is copied into every forked worker of `DataLoader`, which then draws the same."""

    def draw(batch, rng):
        return {**batch, "input": rng.random(batch["input"].shape)}

    def drawn(workers):
        return [b["input"] for b in Prefetch(ShuffleSampler(numbered(40), 4, 1, transformations=[draw]), 4, workers)]

    runs = [drawn(workers) for workers in (1, 2, 3)]
    assert len({batch.tobytes() for batch in runs[0]}) == 10
    for run in runs[1:]:
        assert [batch.tobytes() for batch in run] == [batch.tobytes() for batch in runs[0]]


# -- workers that die ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("death", [SystemExit(3), KeyboardInterrupt(), MemoryError("no room"), DataError("spoilt")])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_dying_worker_is_named_and_nobody_waits_for_it(death, workers):
    def dies(batch, rng):
        if 17 in batch["label"]:
            raise death
        return batch

    got = []
    with pytest.raises(type(death)) as caught:
        for batch in Prefetch(OrderedSampler(numbered(30), 5, transformations=[dies]), 4, workers):
            got.append(batch)
    assert len(got) == 3 and caught.value is death
    assert any("deep500-prefetch" in note and "batch 3 of epoch 0" in note for note in death.__notes__[-1:])
    assert not workers_running()


def test_leaving_an_epoch_open_does_not_keep_the_process_alive():
    """`DataLoader` hangs or complains from ``__del__`` when the interpreter ends in mid-epoch."""
    program = (
        "import numpy as np\nfrom deep500.training.data import NumpyDataset\n"
        "from deep500.training.data.prefetch import Prefetch\n"
        "from deep500.training.data.samplers import OrderedSampler\n"
        "batches = iter(Prefetch(OrderedSampler(NumpyDataset(np.zeros((400, 2))), 2), 8, 3))\n"
        "print(len(next(batches)['input']))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("2\n", "")


# -- samples that cannot be read -------------------------------------------------------------------------------------
@pytest.mark.parametrize("workers", [1, 2])
def test_a_corrupt_jpeg_in_mid_epoch_names_its_file(folder, workers):
    data = ImageFolder(folder, (3, SIZE, SIZE))
    spoil(data.files[7])
    got = []
    with pytest.raises(DataError, match=rf"{data.files[7].name}: got a file that cannot be read") as caught:
        for batch in Prefetch(OrderedSampler(data, 3), workers=workers):
            got.append(batch)
    assert len(got) == 2 and "batch 2 of epoch 0" in caught.value.__notes__[-1]


@pytest.mark.parametrize("workers", [1, 2])
def test_skipping_leaves_out_and_counts(folder, workers):
    whole = ImageFolder(folder, (3, SIZE, SIZE))
    expected = whole[:]
    for position in (4, 7):
        spoil(whole.files[position])
    data = ImageFolder(folder, (3, SIZE, SIZE), on_error="skip")
    batches = list(Prefetch(OrderedSampler(data, 4), workers=workers))
    assert [len(batch["input"]) for batch in batches] == [len(batch["label"]) for batch in batches] == [4, 2, 4]
    rest = np.delete(np.arange(12), [4, 7])
    np.testing.assert_array_equal(np.concatenate([batch["input"] for batch in batches]), expected["input"][rest])
    np.testing.assert_array_equal(np.concatenate([batch["label"] for batch in batches]), expected["label"][rest])
    assert sorted(data.unreadable.skipped) == [4, 7] and whole.files[4].name in data.unreadable.sentence()
    assert data.unreadable.sentence().startswith("2 samples were left out")
    list(OrderedSampler(data, 4))
    assert len(data.unreadable.skipped) == 2  # a second epoch finds the same
    assert pickle.loads(pickle.dumps(data)).unreadable.skipped == data.unreadable.skipped
    with pytest.raises(DataError, match=whole.files[4].name):
        data[4]  # one sample cannot be left out of itself


def test_a_batch_of_which_nothing_is_left_is_an_error(folder):
    data = ImageFolder(folder, (3, SIZE, SIZE), on_error="skip")
    for path in data.files[:3]:
        spoil(path)
    with pytest.raises(DataError, match="got a batch of 3 samples of which none can be read"):
        data[:3]
    spoil(data.files[0])
    assert ImageFolder(folder, (3, SIZE, SIZE), on_error="skip").shape == (3, SIZE, SIZE)


def test_lists_of_files_skip_too(tmp_path):
    paths = [tmp_path / f"{number}.npy" for number in range(4)]
    for number, path in enumerate(paths):
        np.save(path, np.full(2, number))
    paths[2].write_bytes(b"")
    data = FileListDataset(paths, "input", np.load, [0, 1, 2, 3], on_error="skip")
    assert data[:]["input"][:, 0].tolist() == data[:]["label"].tolist() == [0, 1, 3]


def test_records_skip_what_decodes_badly_and_what_is_damaged(tmp_path):
    rng = np.random.default_rng(1)
    with (tmp_path / "a.tfrecord").open("wb") as file:
        for number in range(6):
            encoded = io.BytesIO()
            Image.fromarray(rng.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)).save(encoded, "JPEG")
            data = encoded.getvalue()
            record = _example({"x": data[:-80] if number == 1 else data})
            head, tail = struct.pack("<Q", len(record)), struct.pack("<I", masked(record))
            tail = b"\0\0\0\0" if number == 4 else tail  # a checksum that differs
            file.write(head + struct.pack("<I", masked(head)) + record + tail)
    source = str(tmp_path / "a.tfrecord")
    strict, _ = from_tfrecord(source, source, input="x", label=None)
    for position, problem in ((1, "record 1: column 'x': got an image that cannot be read"), (4, "checksum")):
        with pytest.raises(DataError, match=problem):
            strict[[0, position]]
    data, _ = from_tfrecord(source, source, input="x", label=None, on_error="skip")
    np.testing.assert_array_equal(data[:]["input"], strict[[0, 2, 3, 5]]["input"])
    assert sorted(data.unreadable.skipped) == [1, 4]


def _example(features: dict[str, bytes]) -> bytes:
    def field(number: int, content: bytes) -> bytes:
        size, length = len(content), b""
        while size > 127:
            length, size = length + bytes([size & 127 | 128]), size >> 7
        return bytes([number << 3 | 2]) + length + bytes([size]) + content

    entries = [
        field(1, field(1, name.encode()) + field(2, field(1, field(1, value)))) for name, value in features.items()
    ]
    return field(1, b"".join(entries))


def test_another_word_is_refused(folder):
    with pytest.raises(InputError, match="got on_error='ignore'; expected 'raise' or 'skip'"):
        ImageFolder(folder, on_error="ignore")


def test_a_recipe_skips_counts_and_says_so(folder, tmp_path, capsys):
    import deep500.frameworks.reference as d5fw

    root = tmp_path / "set"
    for half in ("train", "test"):
        for label in ("class0", "class1"):
            (root / half / label).mkdir(parents=True)
            for path in (folder / label).iterdir():
                (root / half / label / path.name).write_bytes(path.read_bytes())
    spoil(sorted((root / "train" / "class0").iterdir())[1])
    fixed = {
        "model": "mlp",
        "dataset": f"imagefolder:{root}",
        "dataset_kwargs": {"shape": (3, SIZE, SIZE), "on_error": "skip"},
        "epochs": 2,
    }
    mutable = {"batch_size": 4, "data_threads": 2, "executor": d5fw.from_model, "optimizer": d5fw.GradientDescent}
    result = d5.run_recipe(
        fixed, mutable, [d5.metrics.LoaderThroughput(24)], ["--quiet", "--out", str(tmp_path / "out")]
    )
    assert result and "train: 1 samples were left out" in capsys.readouterr().err
    assert result["loader_throughput"].value > 0


# -- decoders ----------------------------------------------------------------------------------------------------------
def test_another_decoder_gives_the_same_pixels_in_folders(folder):
    calls = []

    def decode(data: bytes) -> np.ndarray:
        calls.append(len(data))
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))

    for shape in ((3, SIZE, SIZE), (3, 8, 12), (1, SIZE, SIZE)):  # as it is, resized, grey
        data = ImageFolder(folder, shape, decoder=decode)
        np.testing.assert_array_equal(data[:]["input"], ImageFolder(folder, shape)[:]["input"])
    assert len(calls) == 3 * 13
    with pytest.raises(DataError, match=r"got float64 of shape \(2, 2\) from the decoder; expected uint8"):
        ImageFolder(folder, decoder=lambda data: np.zeros((2, 2)))


# -- what threads share ------------------------------------------------------------------------------------------------
def test_threads_share_a_cache_of_groups_that_is_smaller_than_what_they_read(tmp_path, monkeypatch):
    """Two threads that dropped groups of a Parquet file at the same time failed: `OrderedDict mutated`."""
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    from deep500.training.data.formats import arrow

    monkeypatch.setattr(arrow, "KEPT", 1)
    table = pyarrow.table({"x": [[float(i), -float(i)] for i in range(400)], "y": [i % 3 for i in range(400)]})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=4)
    source = str(tmp_path / "a.parquet")
    data, _ = arrow.from_parquet(source, source, input="x", label="y")
    plain = [batch["input"].tolist() for batch in ShuffleSampler(data, 20, 2)]
    for _ in range(5):
        ahead = Prefetch(ShuffleSampler(pickle.loads(pickle.dumps(data)), 20, 2), 12, 6)
        assert [batch["input"].tolist() for batch in ahead] == plain
