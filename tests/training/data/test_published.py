"""Readers of the published formats, with files of the official sizes that hold other content."""

import dataclasses
import gzip
import hashlib
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from deep500.errors import DataError
from deep500.training.data import Published, StandInWarning, dataset_info, dataset_names, load_dataset
from deep500.training.data.published import download
from deep500.training.data.rawfile import RawFile
from deep500.training.data.sets import cifar, mnist
from tests.tolerances import assert_close
from tests.training import data_files as make

PUBLISHED = [info for info in map(dataset_info, dataset_names()) if isinstance(info, Published)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder whose content (hundreds of megabytes) does not stay behind, as pytest's own would."""
    path = tmp_path_factory.mktemp("published")
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def arrays():
    return {classes: make.cifar_arrays(classes) for classes in (10, 100)} | {"mnist": make.mnist_arrays()}


@pytest.fixture(scope="module")
def binary(folder, arrays):
    """CIFAR-10 and -100 in binary format in one data folder."""
    for classes in (10, 100):
        make.write_cifar_binary(folder / "binary", classes, arrays[classes])
    return folder / "binary"


@pytest.fixture(scope="module")
def idx(folder, arrays):
    """MNIST as .gz and Fashion-MNIST raw, in torchvision's layout."""
    make.write_idx(folder / "idx" / "MNIST" / "raw", arrays["mnist"])
    make.write_idx(folder / "idx" / "FashionMNIST" / "raw", make.mnist_arrays(1), zipped=False)
    return folder / "idx"


@pytest.fixture
def altered(tmp_path):
    """Make a data folder with links to the files of another one, of which single files can then be replaced."""

    def link(source: Path) -> Path:
        shutil.copytree(source, tmp_path / "data", copy_function=os.link)
        return tmp_path / "data"

    yield link
    shutil.rmtree(tmp_path / "data", ignore_errors=True)


def replace(path: Path, content: bytes) -> None:
    path.unlink()  # it may be a hard link
    path.write_bytes(content)


def check(name, root, arrays, shape, **options):
    pair = load_dataset(name, root=root, **options)
    for half, data in zip(("train", "test"), pair, strict=True):
        pixels, labels = arrays[half]
        assert len(data) == len(labels) and data.shape == shape and not data.stand_in and data.name == name
        assert str(root) in data.provenance
        some = np.array([0, 1, len(labels) // 2, len(labels) - 1])
        batch = data[some]
        want = pixels[some].reshape(-1, *shape).astype(np.float32) / np.float32(255)
        assert_close(batch["input"], want, "exact")
        np.testing.assert_array_equal(data.labels, labels)
    return pair


def test_cifar_binary(binary, arrays):
    check("cifar10", binary, arrays[10], (3, 32, 32))
    train, _ = check("cifar100", binary, arrays[100], (3, 32, 32))
    assert train.classes == 100 and train.labels.max() == 99


def test_data_root_is_searched_first(binary, arrays, monkeypatch, tmp_path):
    monkeypatch.setenv("DATA_ROOT", str(binary))
    monkeypatch.chdir(tmp_path)
    assert not load_dataset("cifar10")[0].stand_in
    monkeypatch.delenv("DATA_ROOT")
    with pytest.raises(DataError, match="got no data set 'cifar10': not found in data, "):
        load_dataset("cifar10")
    (tmp_path / "data").symlink_to(binary)
    assert load_dataset("cifar10", stand_in=True)[1].labels.tolist() == arrays[10]["test"][1].tolist()


@pytest.mark.parametrize("classes", [10, 100])
def test_cifar_python(tmp_path, arrays, classes):
    root = tmp_path / "data"
    make.write_cifar_python(root, classes, arrays[classes])
    check(f"cifar{classes}", root, arrays[classes], (3, 32, 32))
    shutil.rmtree(root)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_of_every_protocol_are_read(protocol):
    data, labels = np.random.default_rng(0).integers(0, 256, (4, 3072), dtype=np.uint8), [1, 2, 99, 0]
    content = pickle.dumps({b"data": data, "fine_labels": labels}, protocol)
    images, numbers = cifar.read_cifar_python([RawFile("train", content)], (4, 3, 32, 32), 100)
    assert_close(images, data.reshape(4, 3, 32, 32), "exact")
    assert numbers.tolist() == labels
    with pytest.raises(DataError, match="train: got label 99 at index 2"):
        labels_of_ten = pickle.dumps({b"data": data, b"labels": labels}, protocol)
        cifar.read_cifar_python([RawFile("train", labels_of_ten)], (4, 3, 32, 32), 10)


def test_archives_are_read_in_place(tmp_path, binary, arrays):
    root = tmp_path / "data"
    root.mkdir()
    make.pack(binary / "cifar-10-batches-bin", root / "cifar-10-binary.tar.gz")
    check("cifar10", root, arrays[10], (3, 32, 32))
    assert [path.name for path in root.iterdir()] == ["cifar-10-binary.tar.gz"]
    content = (root / "cifar-10-binary.tar.gz").read_bytes()
    with pytest.raises(DataError, match="md5:c32a1d4ab5d03f1284b67883e8d87530"):
        load_dataset("cifar10", root=root, verify=True)
    replace(root / "cifar-10-binary.tar.gz", content[: len(content) // 2])
    with pytest.raises(DataError, match=r"binary\.tar\.gz: got a damaged archive .*md5:.*md5:c32a1d4"):
        load_dataset("cifar10", root=root)
    replace(root / "cifar-10-binary.tar.gz", b"no archive at all")
    with pytest.raises(DataError, match="damaged archive"):
        load_dataset("cifar10", root=root, stand_in=True)  # damaged is not absent
    make.pack(Path(__file__).parent, root / "cifar-100-binary.tar.gz")
    with pytest.raises(DataError, match=r"without usable test\.bin, train\.bin"):
        load_dataset("cifar100", root=root)
    shutil.rmtree(root)


def test_idx(idx, arrays):
    check("mnist", idx, arrays["mnist"], (1, 28, 28))
    check("fashion_mnist", idx, make.mnist_arrays(1), (1, 28, 28))


def test_keras_npz(tmp_path, arrays, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    path = tmp_path / "keras" / "datasets" / "mnist.npz"
    path.parent.mkdir(parents=True)
    contents = {f"{kind}_{half}": arrays["mnist"][half][i] for half in ("train", "test") for i, kind in enumerate("xy")}
    np.savez(path, **contents)
    train, test = load_dataset("mnist")
    assert_close(test[7]["input"][0], arrays["mnist"]["test"][0][7] / np.float32(255), "exact")
    assert (len(train), len(test)) == (60_000, 10_000)
    np.savez(path, **{**contents, "x_test": np.array([{}], dtype=object)})
    with pytest.raises(DataError, match=r"mnist\.npz: got an archive that cannot be read .*allow_pickle"):
        load_dataset("mnist")
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(DataError, match=r"mnist\.npz: got an archive that cannot be read"):
        load_dataset("mnist")
    np.savez(path, **{**contents, "x_train": contents["x_train"][:5]})
    with pytest.raises(DataError, match=r"got x_train uint8 \(5, 28, 28\)"):
        load_dataset("mnist")


# -- bad files


def test_truncated_cifar_names_file_sizes_and_checksum(altered, binary):
    root = altered(binary)
    victim = root / "cifar-10-batches-bin" / "data_batch_3.bin"
    for keep in (0, 3073 * 9999, 3073 * 10_000 - 1):  # cut at a record's border, too
        content = victim.read_bytes()[:keep]
        replace(victim, content)
        with pytest.raises(DataError) as caught:
            load_dataset("cifar10", root=root, stand_in=True)
        for part in (str(victim), f"{keep} bytes", "30730000 bytes", hashlib.sha256(content).hexdigest()):
            assert part in str(caught.value)
        victim.write_bytes((binary / "cifar-10-batches-bin" / "data_batch_3.bin").read_bytes())
    victim.unlink()
    with pytest.raises(DataError, match=r"got a folder without data_batch_3\.bin; expected 6 files"):
        load_dataset("cifar10", root=root, stand_in=True)
    assert caught.value.exit_code == 3


def test_unreadable_file(idx, monkeypatch):
    def refuse(path):
        raise PermissionError("Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(DataError, match=r"ubyte\.gz: got Permission denied; expected a readable file"):
        load_dataset("mnist", root=idx)


def test_labels_out_of_range_name_file_index_and_value(altered, binary):
    root = altered(binary)
    victim = root / "cifar-10-batches-bin" / "test_batch.bin"
    content = bytearray(victim.read_bytes())
    content[5 * 3073] = 10
    replace(victim, bytes(content))
    with pytest.raises(DataError, match=r"test_batch\.bin: got label 10 at index 5 .*0 <= label < 10"):
        load_dataset("cifar10", root=root)


def test_altered_file_is_found_by_checksum(tmp_path, arrays, monkeypatch):
    root = tmp_path / "data"
    raw = make.write_idx(root / "MNIST" / "raw", arrays["mnist"])
    digests = {path.name: f"md5:{hashlib.md5(path.read_bytes()).hexdigest()}" for path in raw.iterdir()}
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz: got another checksum .*md5:f68b3c2d"):
        load_dataset("mnist", root=root, verify=True)
    for name, digest in digests.items():
        monkeypatch.setitem(mnist.MNIST.layouts[0].digests, name, digest)
    check("mnist", root, arrays["mnist"], (1, 28, 28), verify=True)
    victim = raw / "t10k-labels-idx1-ubyte.gz"
    labels = bytearray(gzip.decompress(victim.read_bytes()))
    labels[100] = (labels[100] + 1) % 10  # another, possible label: only the checksum can tell
    victim.write_bytes(gzip.compress(bytes(labels), 1, mtime=0))
    got = hashlib.md5(victim.read_bytes()).hexdigest()
    load_dataset("mnist", root=root)
    with pytest.raises(DataError, match=rf"{got}.*{digests[victim.name]}"):
        load_dataset("mnist", root=root, verify=True)


def test_files_without_known_checksum_cannot_be_verified(binary):
    with pytest.raises(DataError, match=r"got a request to verify it .*not known"):
        load_dataset("cifar10", root=binary, verify=True)


BAD_IDX = [
    ("t10k-labels-idx1-ubyte.gz", lambda b: b[:-100], "damaged gzip stream"),
    ("t10k-labels-idx1-ubyte.gz", lambda b: b"\x1f\x8b" + b[2:40] + b"x" * 50, "damaged gzip stream"),
    ("t10k-labels-idx1-ubyte.gz", lambda b: b"", r"header \(\)"),
    ("t10k-labels-idx1-ubyte.gz", lambda b: gzip.compress(gzip.decompress(b)[:-1]), "10007 bytes of content"),
    ("t10k-labels-idx1-ubyte.gz", lambda b: gzip.compress(gzip.decompress(b) + b"1"), "10009 bytes of content or more"),
    ("t10k-labels-idx1-ubyte.gz", lambda b: gzip.compress(b"\0\0\x08\x03" + gzip.decompress(b)[4:]), "header"),
    ("t10k-images-idx3-ubyte.gz", lambda b: gzip.compress(b"\0\0\x08\x03\0\0\0\x09" + bytes(9000)), "header"),
]


@pytest.mark.parametrize(("name", "damage", "message"), BAD_IDX, ids=[str(i) for i in range(len(BAD_IDX))])
def test_damaged_idx(altered, idx, name, damage, message):
    root = altered(idx)
    victim = root / "MNIST" / "raw" / name
    replace(victim, damage(victim.read_bytes()))
    with pytest.raises(DataError, match=rf"{name}: got (a )?{message}.*official checksum md5:"):
        load_dataset("mnist", root=root)


class Evil:
    def __reduce__(self):
        return os.mkdir, ("pwned",)


def evil_codec():
    return b"c_codecs\nencode\n(X\x01\x00\x00\x00aX\x05\x00\x00\x00rot13tR."


BAD_PICKLES = [
    (pickle.dumps({b"data": Evil()}), "asks for posix.mkdir|asks for nt.mkdir"),
    (pickle.dumps({b"data": np.zeros((10_000, 3072), np.uint8), b"labels": [Evil()]}), "asks for"),
    (evil_codec(), "encoding 'rot13' is not allowed"),
    (pickle.dumps([1]), "a pickled list"),
    (pickle.dumps({b"data": np.zeros((3, 3072), np.uint8)}), r"'data' as dtype uint8, shape \(3, 3072\)"),
    (pickle.dumps({b"labels": [1]}), "'data' as NoneType"),
    (pickle.dumps({b"data": np.zeros((10_000, 3072), np.uint8), b"labels": [0.5] * 10_000}), "'labels' as list"),
    (b"", "a pickle that cannot be read"),
    (b"\x80\x02}q\x00(U\x0bbatch", "a pickle that cannot be read"),
    (np.random.default_rng(0).bytes(4000), "a pickle that cannot be read"),
]


@pytest.mark.parametrize(("content", "message"), BAD_PICKLES, ids=[str(i) for i in range(len(BAD_PICKLES))])
def test_pickles_can_hold_arrays_and_lists_only(tmp_path, monkeypatch, content, message):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"data_batch_1: got .*({message})"):
        load_dataset("cifar10", root=tmp_path)
    assert not (tmp_path / "pwned").exists()


# -- absent data


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "mnist", "fashion_mnist"])
def test_absent_data_are_an_error_or_a_labelled_stand_in(tmp_path, name):
    with pytest.raises(DataError, match=rf"got no data set '{name}': not found in {tmp_path}; .*stand_in=True"):
        load_dataset(name, root=tmp_path)
    with pytest.warns(StandInWarning, match=f"{name}: not found .*STAND-IN"):
        train, test = load_dataset(name, root=tmp_path, stand_in=True)
    info = dataset_info(name)
    for half in (train, test):
        batch = half[:4]
        assert half.stand_in and half.shape == info.shape and half.classes == info.classes and half.name == name
        assert batch["input"].dtype == np.float32 and batch["label"].dtype == np.int64
        assert half.provenance.startswith(f"stand-in for {name}: ")
    assert not load_dataset("digits32")[0].stand_in and not load_dataset("digits")[0].stand_in


class Server:
    """Stands for pooch's HTTPDownloader: hands out bytes, or fails."""

    def __init__(self, content):
        self.content, self.seen = content, []

    def __call__(self, **options):
        self.options = options
        return self.fetch

    def fetch(self, url, output_file, pooch_object, check_only=False):
        self.seen.append(url)
        if isinstance(self.content, Exception):
            raise self.content
        Path(output_file).write_bytes(self.content[url.rpartition("/")[2]])


@pytest.fixture
def served(monkeypatch):
    import pooch

    def serve(content):
        server = Server(content)
        monkeypatch.setattr(pooch, "HTTPDownloader", server)
        return server

    pooch.get_logger().setLevel("ERROR")
    return serve


def test_downloads_are_verified(tmp_path, served, arrays, monkeypatch):
    files = {path.name: path.read_bytes() for path in make.write_idx(tmp_path / "source", arrays["mnist"]).iterdir()}
    server = served(files)
    with pytest.raises(DataError, match=r"got other content .*md5:f68b3c2dcbeaaa9fbdd348bbdeb94873"):
        load_dataset("mnist", root=tmp_path / "data", download=True)
    assert not any((tmp_path / "data" / "MNIST" / "raw").iterdir()), "an unverified download was kept"
    with pytest.warns(StandInWarning, match="got other content"):
        assert load_dataset("mnist", root=tmp_path / "data", download=True, stand_in=True)[0].stand_in
    for name, content in files.items():
        monkeypatch.setitem(mnist.MNIST.layouts[0].digests, name, f"md5:{hashlib.md5(content).hexdigest()}")
    check("mnist", tmp_path / "data", arrays["mnist"], (1, 28, 28), download=True)
    assert server.options["timeout"][0] == 10 and server.options["progressbar"] is True
    assert all(url.startswith("https://") for url in server.seen)
    asked = len(server.seen)
    load_dataset("mnist", root=tmp_path / "data", download=True)
    assert len(server.seen) == asked, "data that are there were downloaded again"


def test_nothing_is_downloaded_unless_asked(tmp_path, served):
    server = served({})
    with pytest.raises(DataError):
        load_dataset("mnist", root=tmp_path)
    assert not server.seen


@pytest.mark.parametrize("problem", [OSError("disk full"), "requests"])
def test_a_failed_download_says_what_to_do(tmp_path, served, problem):
    import requests

    served(requests.ConnectTimeout("no route") if problem == "requests" else problem)
    with pytest.raises(DataError, match=r"got no download of https://.*by hand, or use the stand-in"):
        load_dataset("fashion_mnist", root=tmp_path, download=True)
    with pytest.warns(StandInWarning, match="got no download"):
        assert load_dataset("cifar10", root=tmp_path, download=True, stand_in=True)[1].stand_in


def test_every_download_is_encrypted_and_has_a_checksum(tmp_path):
    assert PUBLISHED
    for data in PUBLISHED:
        digests = {name for layout in data.layouts for name in layout.digests}
        assert data.urls and set(data.urls) <= digests
        assert all(url.startswith("https://") for url in data.urls.values())
    name = "t10k-labels-idx1-ubyte.gz"
    plain = dataclasses.replace(mnist.MNIST, urls={name: f"http://example.org/{name}"})
    with pytest.raises(DataError, match=r"got address http://.*expected https"):
        download(plain, tmp_path)
