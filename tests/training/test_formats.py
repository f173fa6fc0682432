"""Data sets in the formats of others, written by the formats' own packages, and what is wrong in them."""

from __future__ import annotations

import functools
import io
import multiprocessing
import pickle
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import deep500 as d5
from deep500.errors import DataError
from deep500.training.data.formats.crc32c import crc32c, masked
from deep500.training.data.formats.records import PerProcess
from deep500.training.data.formats.wire import WireError, datum, example
from tests.conftest import HANG

N = 12
IMAGES = np.random.default_rng(0).integers(0, 256, (N, 1, 4, 5)).astype(np.uint8)
LABELS = np.arange(N) % 3


def varint(value: int) -> bytes:
    value, out = value % (1 << 64), b""
    while value > 127:
        value, out = value >> 7, out + bytes([value & 127 | 128])
    return out + bytes([value])


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def example_bytes(**features: bytes | list[int] | list[float]) -> bytes:
    entries = b""
    for name, value in features.items():
        if isinstance(value, bytes):
            feature = field(1, field(1, value))
        elif isinstance(value[0], float):
            feature = field(2, field(1, struct.pack(f"<{len(value)}f", *value)))
        else:
            feature = field(3, field(1, b"".join(map(varint, value))))
        entries += field(1, field(1, name.encode()) + field(2, feature))
    return field(1, entries)


def framed(*records: bytes) -> bytes:
    heads = (struct.pack("<Q", len(record)) for record in records)
    return b"".join(
        head + struct.pack("<I", masked(head)) + record + struct.pack("<I", masked(record))
        for head, record in zip(heads, records, strict=True)
    )


def png(image: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(image[0]).save(out, "png")
    return out.getvalue()


def write_hdf5(path: Path) -> dict:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file.create_dataset("part/input", data=IMAGES, chunks=(5, 1, 4, 5), compression="gzip")
        file["part/label"] = LABELS
    return {"source": f"{path}::part", "scale": 255}


def write_parquet(path: Path, feather: bool = False) -> dict:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import ipc, parquet

    table = pyarrow.table({"input": [image.ravel().tolist() for image in IMAGES], "label": LABELS})
    if feather:
        with ipc.new_file(path.with_suffix(".arrow"), table.schema) as file:
            file.write_table(table, max_chunksize=5)
        return {"source": path.with_suffix(".arrow"), "shape": (1, 4, 5), "scale": 255}
    parquet.write_table(table, path, row_group_size=5)
    return {"source": path, "shape": (1, 4, 5), "scale": 255}


def write_lmdb(path: Path) -> dict:
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(path), map_size=1 << 20) as table, table.begin(write=True) as write:
        for i in range(N):
            sizes = field(1, 1) + field(2, 4) + field(3, 5)
            write.put(b"%08d" % i, sizes + field(4, IMAGES[i].tobytes()) + field(5, int(LABELS[i])))
        write.put(b"__len__", b"12")
    return {"source": path, "scale": 255}


def write_tfrecord(path: Path) -> dict:
    for half in (0, 1):
        rows = range(half * 6, half * 6 + 6)
        records = [example_bytes(input=IMAGES[i].tobytes(), label=[int(LABELS[i])]) for i in rows]
        path.with_name(f"{path.name}-{half}").write_bytes(framed(*records))
    return {"source": f"{path}-*", "shape": (1, 4, 5), "scale": 255}


def write_webdataset(path: Path) -> dict:
    with tarfile.open(path, "w") as tar:
        for i in range(N):
            for suffix, data in (("png", png(IMAGES[i])), ("cls", b"%d\n" % LABELS[i])):
                info = tarfile.TarInfo(f"some/{i:03}.{suffix}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return {"source": path, "input": "jpg;png", "label": "cls"}


def write_huggingface(path: Path) -> dict:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"input": datasets.Image(), "label": datasets.ClassLabel(names=list("abc"))})
    rows = {"input": [{"bytes": png(image), "path": None} for image in IMAGES], "label": LABELS.tolist()}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(path)
    return {"source": path}


FORMATS = {
    "hdf5": (write_hdf5, d5.data.from_hdf5),
    "parquet": (write_parquet, d5.data.from_parquet),
    "arrow": (functools.partial(write_parquet, feather=True), d5.data.from_parquet),
    "lmdb": (write_lmdb, d5.data.from_lmdb),
    "tfrecord": (write_tfrecord, d5.data.from_tfrecord),
    "webdataset": (write_webdataset, d5.data.from_webdataset),
    "huggingface": (write_huggingface, d5.data.from_huggingface),
}


def made(kind: str, folder: Path, **changed: object) -> tuple:
    write, read = FORMATS[kind]
    options = {"input": "input", "label": "label"} | write(folder / f"data.{kind}") | changed
    source = options.pop("source")
    return read(source, source, **options)


def length_in_child(data: d5.Dataset, answers: multiprocessing.Queue) -> None:
    answers.put(data[[5, 0]]["label"].tolist())


@pytest.mark.parametrize("kind", FORMATS)
def test_samples_are_those_written(kind: str, tmp_path: Path) -> None:
    train, test = made(kind, tmp_path)
    assert len(train) == len(test) == N and train.shape == (1, 4, 5) and train.classes == 3
    np.testing.assert_array_equal(train.labels, LABELS)
    order = [7, 1, 7, 11]
    batch = train[order]
    assert batch["input"].dtype == np.float32 and batch["label"].dtype == np.int64
    np.testing.assert_allclose(batch["input"], IMAGES[order] / np.float32(255), rtol=1e-6)
    np.testing.assert_allclose(train[3:6]["input"], IMAGES[3:6] / np.float32(255), rtol=1e-6)
    assert train[-1]["input"].shape == (1, 4, 5) and train[-1]["label"] == LABELS[-1]
    assert train[[]]["input"].shape == (0, 1, 4, 5)
    with pytest.raises(IndexError):
        train[N]
    assert train.digest() == test.digest() == pickle.loads(pickle.dumps(train)).digest()
    for name in ("again", "few"):
        (tmp_path / name).mkdir()
    if kind not in ("webdataset", "huggingface"):  # images, which take no scale
        assert made(kind, tmp_path / "again", scale=2)[0].digest() != train.digest()
    with pytest.raises(DataError, match=r"got label 2 .*expected 0 <= label < 2"):
        made(kind, tmp_path / "few", classes=2)


@pytest.mark.parametrize("kind", FORMATS)
def test_absent_column_and_file(kind: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"got no .*pixels.*; expected .*input=\.\.\."):
        made(kind, tmp_path, input="pixels")
    with pytest.raises(DataError, match=r"nowhere.*: got .*; expected "):
        FORMATS[kind][1](tmp_path / "nowhere", tmp_path / "nowhere")


@pytest.mark.parametrize("kind", ["hdf5", "parquet", "arrow", "lmdb", "tfrecord", "webdataset"])
@pytest.mark.parametrize("content", [b"", b"no such format" * 100, bytes(4096)])
def test_other_content(kind: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / ("x.arrow" if kind == "arrow" else "x")
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"x(\.arrow)?: got .*; expected "):
        FORMATS[kind][1](path, path)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def fork_with_open_files(folder: str) -> None:
    """What :func:`test_open_files_belong_to_one_process` runs where no framework has started threads."""
    context = multiprocessing.get_context("fork")
    for kind in ("hdf5", "tfrecord", "lmdb"):
        train, _ = made(kind, Path(folder))
        assert train[[5, 0]]["label"].tolist() == [2, 0], kind
        answers = context.Queue()
        child = context.Process(target=length_in_child, args=(train, answers))
        child.start()
        assert answers.get(timeout=HANG) == [2, 0], kind
        child.join(HANG)


def test_open_files_belong_to_one_process(tmp_path: Path) -> None:
    run = f"from tests.training.test_formats import fork_with_open_files as run; run({str(tmp_path)!r})"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", run], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_another_process_opens_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = PerProcess(list)
    before = opened()
    assert opened() is before
    monkeypatch.setattr("os.getpid", lambda: -1)
    assert opened() is not before and opened() is opened()


def test_crc32c_is_the_published_one() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA and crc32c(b"\xff" * 32) == 0x62A8AB43  # RFC 3720, B.4
    assert crc32c(bytes(range(32))) == 0x46DD794E
    for size in (0, 1, 3, 4, 1023, 1024, 1025, 1027, 3000):
        data = np.random.default_rng(size).bytes(size)
        state = 0xFFFFFFFF
        for byte in data:
            state ^= byte
            for _ in range(8):
                state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
        assert crc32c(data) == state ^ 0xFFFFFFFF, size


@pytest.mark.backend("tensorflow")
def test_tfrecord_of_tensorflow(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    train = tf.train
    with tf.io.TFRecordWriter(str(tmp_path / "a")) as file:
        for i in range(4):
            features = {
                "x": train.Feature(float_list=train.FloatList(value=[i, 0.5])),
                "y": train.Feature(int64_list=train.Int64List(value=[i - 2, 1 << 40])),
                "z": train.Feature(bytes_list=train.BytesList(value=[b"a" * 3000])),
            }
            file.write(train.Example(features=train.Features(feature=features)).SerializeToString())
    part, _ = d5.data.from_tfrecord(tmp_path / "a", tmp_path / "a", input="x", label=None)
    assert part[2:]["input"].tolist() == [[2, 0.5], [3, 0.5]]
    part, _ = d5.data.from_tfrecord(tmp_path / "a", tmp_path / "a", input="y", label=None, dtype="int64")
    assert part[0:2]["input"].tolist() == [[-2, 1 << 40], [-1, 1 << 40]]
    part, _ = d5.data.from_tfrecord(tmp_path / "a", tmp_path / "a", input="z", label=None, shape=(3000,))
    assert part[3]["input"].sum() == 3000 * ord("a")


def test_tfrecord_that_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a"
    good = framed(*(example_bytes(input=[1.0, 2.0], label=[i]) for i in range(3)))
    for name, content, message in (
        ("cut in the data", good[:-7], "record 2 at byte .*cut short"),
        ("cut in the head", good + b"1234", "got 4 bytes at byte"),
        ("data", good[:20] + b"\0" + good[21:], "record 0: got another checksum of its"),
        ("length", b"\1" + good[1:], "checksum of the length at byte 0"),
        ("compressed", b"\x1f\x8b" + good, "gunzip it"),
        ("no example", framed(b"\xff\xff"), "expected a tf.train.Example"),
        ("lacks", good + framed(example_bytes(input=[1.0, 2.0])), "record 3: got no feature 'label', of input"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            pytest.fail(f"{name}: {d5.data.from_tfrecord(path, path)}")


@pytest.mark.parametrize("size", range(0, 40))
def test_messages_cut_anywhere_are_refused_or_read(size: int) -> None:
    whole = example_bytes(input=[1.5, 2.5], label=[3, -1])
    assert example(whole)["label"].tolist() == [3, -1] and example(whole)["input"].tolist() == [1.5, 2.5]
    for read in (example, datum):
        try:
            read(whole[:size])
        except WireError as error:
            assert str(error)


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", data: bytes = b"0") -> bytes:
    out, info = io.BytesIO(), tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(data) if kind == tarfile.REGTYPE else 0
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.addfile(info, io.BytesIO(data))
        end = tar.offset
    return out.getvalue()[:end]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([member("../a.png")], "leads out of the archive"),
        ([member("/a.png")], "leads out of the archive"),
        ([member("a.png", tarfile.SYMTYPE, "/etc/passwd")], "a link to '/etc/passwd'"),
        ([member("a.png", tarfile.LNKTYPE, "b.png")], "a link to 'b.png'"),
        ([member("a.png", tarfile.CHRTYPE)], "no plain file"),
        ([member("a.png"), member("a.png")], "'a.png' twice"),
        ([member("a.cls")], "got no file a.png, of cls"),
        ([member("a.png", data=b"x" * 2000)[:-1024]], "cut short|unexpected end"),
        ([member("a.png"), b"x" * 512], "no end of the archive"),
        ([member("a.png"), member("a.cls")], "bytes that are no .npy and no image"),
    ],
)
def test_tars_that_are_refused(parts: list[bytes], message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(b"".join(parts) + (b"" if "cut" in message else bytes(1024)))
    with pytest.raises(DataError, match=message):
        d5.data.from_webdataset(path, path)


def test_hdf5_that_is_refused(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["input"], file["label"], file["short"] = np.zeros((3, 2)), [0, 1, -1], [0, 1]
        file["words"] = ["a", "b", "c"]
        file["elsewhere"] = h5py.ExternalLink("b.h5", "input")
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["input"] = np.zeros((3, 2))
    path = tmp_path / "a.h5"
    for options, message in (
        ({"label": "short"}, "got lengths {'input': 3, 'short': 2}"),
        ({"input": "words"}, "got 'words' of object"),
        ({"input": "elsewhere"}, "in another file"),
        ({}, "got label -1"),
    ):
        with pytest.raises(DataError, match=message):
            d5.data.from_hdf5(path, path, **options)
    with pytest.raises(DataError, match="no such group"):
        d5.data.from_hdf5(f"{path}::train", path)


def test_parquet_that_is_refused(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    tables = {
        "words": {"input": ["a", "b"], "label": [0, 1]},
        "ragged": {"input": [[1.0], [1.0, 2.0]], "label": [0, 1]},
        "null": {"input": [[1.0], None], "label": [0, 1]},
        "good": {"input": [[1.0], [2.0]], "label": [0, 1]},
        "whole": {"input": [[1], [2]], "label": [0, 1]},
    }
    for name, columns in tables.items():
        parquet.write_table(pyarrow.table(columns), tmp_path / name)
    read = d5.data.from_parquet
    with pytest.raises(DataError, match=r"got column 'input' of string; expected numbers"):
        read(tmp_path / "words", tmp_path / "words")
    with pytest.raises(DataError, match=r"got column 'input' of list.*int64.*; expected list.*double"):
        read([tmp_path / "good", tmp_path / "whole"], tmp_path / "good")
    with pytest.raises(DataError, match=r"row 1: column 'input': got shape \(2,\); expected \(1,\)"):
        read(tmp_path / "ragged", tmp_path / "good")[0][0:2]
    with pytest.raises(DataError, match=r"row 1: column 'input': got nothing \(null\)"):
        read(tmp_path / "null", tmp_path / "good")[0][0:2]


def test_lmdb_of_pickles_is_refused(tmp_path: Path) -> None:
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(tmp_path), map_size=1 << 20) as table, table.begin(write=True) as write:
        write.put(b"0", pickle.dumps({"input": [1], "label": 0}))
    for code in ("datum", "npz", "example"):
        with pytest.raises(DataError, match="key b'0': got "):
            d5.data.from_lmdb(tmp_path, tmp_path, decode=code)
    train, _ = d5.data.from_lmdb(tmp_path, tmp_path, decode=lambda data: {"input": [len(data)], "label": 0})
    assert train[0]["input"].shape == (1,)


def test_huggingface_objects_that_are_refused() -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"image": [[0.5]], "label": ["cat"]})
    read = d5.data.from_huggingface
    with pytest.raises(DataError, match=r"got DatasetDict; expected .*choose a split"):
        read(datasets.DatasetDict(train=rows), rows)
    with pytest.raises(DataError, match=r"got IterableDataset; expected .*no stream"):
        read(rows.to_iterable_dataset(), rows)
    with pytest.raises(DataError, match="row 0: label: got str"):
        read(rows, rows)


def test_recipe_trains_from_a_format(tmp_path: Path) -> None:
    tfrecord = tmp_path / "digits"
    train = d5.load_dataset("digits")[0]
    images = train[0:300]["input"]
    tfrecord.write_bytes(
        framed(*(example_bytes(x=x.tobytes(), y=[int(y)]) for x, y in zip(images, train.labels[:300], strict=True)))
    )
    backend = d5.load_backend("reference")
    files = {"train": str(tfrecord), "test": str(tfrecord), "input": "x", "label": "y"}
    fixed = {
        "model": "mlp",
        "dataset": d5.data.from_tfrecord,
        "dataset_kwargs": files | {"shape": (1, 8, 8), "raw": "float32"},
        "epochs": 1,
    }
    mutable = {
        "batch_size": 32,
        "executor": backend.from_model,
        "optimizer": backend.AdamOptimizer,
        "optimizer_kwargs": {"lr": 0.01},
    }
    metrics = [(d5.metrics.TestAccuracy(), 50.0)]
    assert d5.run_recipe(fixed, mutable, metrics, ["--quiet", "--out", str(tmp_path / "out")])


def test_parquet_of_half_numbers_and_of_lists_of_lists(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    halves, square = np.arange(4, dtype="float16") / 2, [[[1.0, 2.0], [3.0, 4.0]]] * 4
    for number, (column, expected) in enumerate(((pa.array(halves), halves), (pa.array(square), square))):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"x": column, "y": pa.array([0, 1, 0, 1])}), path)
        train, _ = d5.data.from_parquet(train=path, test=path, input="x", label="y")
        np.testing.assert_array_equal(train[:]["input"], np.asarray(expected, "float32"))
