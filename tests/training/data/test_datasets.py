"""Data sets in memory, in files and built in."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
from PIL import Image

from deep500.errors import DataError, InputError
from deep500.training.data import (
    Dataset,
    FileListDataset,
    ImageFolder,
    NumpyDataset,
    dataset_info,
    dataset_names,
    load_dataset,
)
from deep500.training.data.files import fitted
from tests.tolerances import assert_close


def test_indices_give_samples_and_batches():
    pixels = np.arange(24, dtype=np.uint8).reshape(6, 1, 2, 2)
    data = NumpyDataset(pixels, "x", [0, 1, 2, 0, 1, 2], "y", scale=255)
    assert (len(data), data.classes, data.shape, data.input_name, data.label_name) == (6, 3, (1, 2, 2), "x", "y")
    sample = data[4]
    assert sample["x"].shape == (1, 2, 2) and sample["y"].shape == () and sample["y"] == 1
    assert sample["x"].dtype == np.float32 and sample["y"].dtype == np.int64
    assert_close(sample["x"], pixels[4].astype(np.float32) / np.float32(255), "exact")
    mask = np.array([0, 1, 0, 0, 0, 1], bool)
    table = [(slice(1, 5, 2), [1, 3]), ([5, 0, 5], [5, 0, 5]), (np.array([-1, 2]), [5, 2]), (mask, [1, 5]), ([], [])]
    for index, want in table:
        batch = data[index]
        assert_close(batch["x"], pixels[want].astype(np.float32).reshape(-1, 1, 2, 2) / np.float32(255), "exact")
        assert batch["y"].tolist() == [w % 3 for w in want] and batch["y"].dtype == np.int64
    assert data[np.int64(-1)]["y"] == 2
    assert [int(sample["y"]) for sample in data] == [0, 1, 2, 0, 1, 2]  # IndexError ends the sequence protocol
    for bad in (6, [6], np.array([-7])):
        with pytest.raises(IndexError):
            data[bad]
    for bad in ("3", [0.5], [[1, 2]], 1.0):
        with pytest.raises(InputError, match="got an index"):
            data[bad]


def test_data_without_scale_are_delivered_as_they_are():
    for dtype in (np.float64, np.int32, np.uint8):
        data = NumpyDataset(np.ones((3, 2), dtype))
        assert data[0:2]["input"].dtype == dtype and data.classes is None and list(data[0]) == ["input"]
    targets = NumpyDataset(np.ones((3, 2)), labels=np.array([0.5, 1.5, 2.5], np.float32))
    assert targets[1]["label"].dtype == np.float32 and targets.classes is None


def test_digest_is_of_the_content():
    make = lambda x, y: NumpyDataset(np.array(x), labels=np.array(y)).digest()  # noqa: E731
    assert make([1, 2], [0, 1]) == make([1, 2], [0, 1])
    digests = {make([1, 2], [0, 1]), make([1, 3], [0, 1]), make([1, 2], [1, 1]), make([[1, 2]], [0])}
    assert len(digests) == 4 and all(len(digest) == 64 for digest in digests)


BAD_ARRAYS = [
    (lambda: NumpyDataset(np.zeros(3), labels=[0, 9, -1], classes=9), r"label 9 at index 1 .*0 <= label < 9"),
    (lambda: NumpyDataset(np.zeros(2), labels=[0, -1]), r"label -1 at index 1"),
    (lambda: NumpyDataset(np.zeros((1, 2)), labels=[[0, 7]], classes=5), r"label 7 at index \(0, 1\)"),
    (lambda: NumpyDataset(np.zeros(3), labels=[0, 1]), r"labels of shape \(2,\) for 3 samples"),
    (lambda: NumpyDataset(np.zeros((0, 3))), "expected at least one sample"),
    (lambda: NumpyDataset(np.zeros(3), np.zeros(3)), "got ndarray as data_node"),
]


@pytest.mark.parametrize(("make", "message"), BAD_ARRAYS, ids=[message for _, message in BAD_ARRAYS])
def test_bad_arrays(make, message):
    with pytest.raises((DataError, InputError), match=message):
        make()


def test_a_dataset_must_say_what_it_holds():
    with pytest.raises(TypeError, match="abstract"):
        Dataset()


# -- built-in data


def test_digits_are_scikit_learns_and_split_for_good():
    from sklearn.datasets import load_digits

    train, test = load_dataset("digits", seed=7)
    raw = load_digits()
    both = np.concatenate([train[:]["input"], test[:]["input"]]).reshape(-1, 64) * 16
    labels = np.concatenate([train[:]["label"], test[:]["label"]])
    order, wanted = np.lexsort([*both.T, labels]), np.lexsort([*raw.data.T, raw.target])
    np.testing.assert_array_equal(both[order], raw.data[wanted])
    np.testing.assert_array_equal(labels[order], raw.target[wanted])
    assert (len(train), len(test), train.shape, train.classes) == (1438, 359, (1, 8, 8), 10)
    assert train[0]["input"].dtype == np.float32 and not train.stand_in and "scikit-learn" in train.provenance
    per_class = np.bincount(raw.target)
    assert np.bincount(test[:]["label"]).tolist() == [round(0.2 * n) for n in per_class]
    # recorded once: the split may never change, or results stop being comparable
    assert train.digest()[:16] == "11cef60521b645a2" and test.digest()[:16] == "33528659b183a7a3"


def test_digits_can_be_resized():
    small, _ = load_dataset("digits")
    large, _ = load_dataset("digits", size=28)
    assert large.shape == (1, 28, 28) and large[0]["input"].dtype == np.float32
    want = Image.fromarray(small[3]["input"][0]).resize((28, 28), Image.Resampling.BILINEAR)
    assert_close(large[3]["input"][0], np.asarray(want))
    assert load_dataset("digits", size=(5, 9))[1].shape == (1, 5, 9)


def test_digits32_are_the_same_digits_on_photographs():
    train, test = load_dataset("digits32")
    plain, plain_test = load_dataset("digits")
    assert (train.shape, train.classes, len(train), len(test)) == ((3, 32, 32), 10, 1438, 359)
    for coloured, grey in ((train, plain), (test, plain_test)):  # hence no digit in both halves
        np.testing.assert_array_equal(coloured[:]["label"], grey[:]["label"])
    images = train[:]["input"]
    assert images.dtype == np.float32 and images.min() >= 0 and images.max() <= 1
    assert train.digest() == load_dataset("digits32")[0].digest()
    assert train.digest() != load_dataset("digits32", seed=1)[0].digest()
    # the digit is there: it changes its image more than the background where it has ink
    spread = images.std(axis=(1, 2, 3))
    assert spread.mean() > 0.1 and len(np.unique(images.reshape(len(images), -1), axis=0)) == len(images)


def test_scikit_learns_classifier_separates_the_digits():
    from sklearn.linear_model import LogisticRegression

    train, test = (half[:] for half in load_dataset("digits"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # convergence of the solver is not at stake
        model = LogisticRegression(max_iter=300).fit(train["input"].reshape(1438, -1), train["label"])
    assert model.score(test["input"].reshape(359, -1), test["label"]) > 0.93


def test_names_and_infos():
    assert {"digits", "digits32", "cifar10", "cifar100", "mnist", "fashion_mnist"} <= set(dataset_names())
    assert [(i.classes, i.shape, i.counts) for i in map(dataset_info, ("cifar10", "cifar100", "mnist"))] == [
        (10, (3, 32, 32), (50_000, 10_000)),
        (100, (3, 32, 32), (50_000, 10_000)),
        (10, (1, 28, 28), (60_000, 10_000)),
    ]
    for name in ("digits", "digits32"):
        train, test = load_dataset(name)
        info = dataset_info(name)
        assert info.built_in and (info.classes, info.shape, info.counts) == (
            train.classes,
            train.shape,
            (len(train), len(test)),
        )
    with pytest.raises(DataError, match=r"got data set 'cifr10'.*did you mean 'cifar10'"):
        dataset_info("cifr10")
    with pytest.raises(DataError, match=r"got option 'sise'.*did you mean 'size'"):
        load_dataset("digits", sise=3)


def test_importing_training_and_measuring_imports_no_slow_library():
    code = (
        "import sys, deep500 as d5\n"
        "d5.schedules.WarmUp, d5.metrics.TestAccuracy, d5.Trainer\n"  # each by its first use alone
        "import deep500.training.data, deep500.training.data.augmentation, deep500.training.data.prefetch\n"
        "import deep500.measure\n"
        "deep500.training.data.load_dataset('digits')\n"  # its files come with scikit-learn, which takes a second
        "slow = {'sklearn', 'PIL', 'pooch', 'requests', 'scipy', 'matplotlib', 'statsmodels', 'torch'}\n"
        "assert not slow & set(sys.modules), slow & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- files


def save(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for half, count in (("train", 3), ("test", 2)):
        for kind in ("cat", "dog"):
            for i in range(count):
                save(tmp_path / half / kind / f"{i}.png", rng.integers(0, 256, (5, 4, 3), dtype=np.uint8))
    return tmp_path


def test_image_folder(folder):
    train, test = load_dataset(f"imagefolder:{folder}", shape=(3, 5, 4))
    assert train.class_names == ["cat", "dog"] and (len(train), len(test), train.classes) == (6, 4, 2)
    batch = train[[5, 0]]
    assert batch["label"].tolist() == [1, 0] and batch["input"].shape == (2, 3, 5, 4)
    pixels = np.asarray(Image.open(folder / "train" / "cat" / "0.png"))
    assert_close(batch["input"][1], pixels.transpose(2, 0, 1).astype(np.float32) / np.float32(255), "exact")
    assert train[3:3]["input"].shape == (0, 3, 5, 4) and train[-1]["label"] == 1
    grey, _ = load_dataset(f"imagefolder:{folder}", shape=(1, 8, 16))
    assert grey[1]["input"].shape == (1, 8, 16)
    before = train.digest()
    save(folder / "train" / "cat" / "0.png", np.zeros((5, 4, 3), np.uint8))
    assert ImageFolder(folder / "train", (3, 5, 4)).digest() != before == train.digest()
    for place in ("train/cat/more/still", "train/cat/.thumbnails"):  # what lies deeper counts, what is hidden does not
        (folder / place).mkdir(parents=True)
        save(folder / place / "deep.png", np.zeros((5, 4, 3), np.uint8))
    assert len(ImageFolder(folder / "train", (3, 5, 4))) == 7


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 8), (1, 4, 4), None])
def test_grey_of_16_bits_is_not_cut(shape):
    values = np.arange(0, 64000, 1000, dtype=np.uint16).reshape(8, 8)
    got = fitted(Image.fromarray(values), shape)
    if shape == (1, 4, 4):
        assert abs(got.mean() - values.mean() / 65535) < 1e-6 and len(np.unique(got)) == 16
    else:
        assert_close(got, np.broadcast_to(values / np.float32(65535), shape or (1, 8, 8)))
    for odd in (np.full((2, 2), 70_000, np.int32), np.ones((2, 2), np.float32)):
        with pytest.raises(ValueError, match="expected 8 or 16 bits"):
            fitted(Image.fromarray(odd), shape)


def test_bad_image_folders(folder):
    with pytest.raises(DataError, match="expected 'train' and one of test"):
        load_dataset(f"imagefolder:{folder / 'train'}")
    with pytest.raises(DataError, match="got no such folder"):
        ImageFolder(folder / "absent")
    with pytest.raises(DataError, match="no sub-folder with images"):
        ImageFolder(folder / "train" / "cat")
    (folder / "train" / "dog" / "1.png").write_bytes(b"not an image")
    train, _ = load_dataset(f"imagefolder:{folder}")
    with pytest.raises(DataError, match=r"1\.png: got a file that cannot be read"):
        train[:]
    save(folder / "test" / "eel" / "0.png", np.zeros((5, 4, 3), np.uint8))
    with pytest.raises(DataError, match=r"classes \['eel'\] that the training half lacks"):
        load_dataset(f"imagefolder:{folder}")


def test_file_list(tmp_path):
    paths = []
    for i, shape in enumerate([(2,), (2,), (3,)]):
        paths.append(tmp_path / f"{i}.npy")
        np.save(paths[-1], np.full(shape, i, np.float32))
    data = FileListDataset(paths[:2], "x", np.load, [0, 1], "y", classes=2)
    assert data.shape == (2,) and data[[1, 0]]["x"].tolist() == [[1, 1], [0, 0]] and data[1]["y"] == 1
    with pytest.raises(DataError, match=r"2\.npy: got shape \(3,\); expected \(2,\)"):
        FileListDataset(paths, "x", np.load)[:]
    with pytest.raises(DataError, match="got label 5 at index 1"):
        FileListDataset(paths, "x", np.load, [0, 5, 1], classes=3)
    with pytest.raises(DataError, match="got 1 labels for 3 files"):
        FileListDataset(paths, "x", np.load, [0])
    with pytest.raises(DataError, match="got no files"):
        FileListDataset([], "x", np.load)
    with pytest.raises(IndexError):
        data[2]


@pytest.mark.parametrize(
    "data, labels",
    [
        (np.ma.masked_less(np.arange(4.0), 1), None),
        (np.array(["a", "b"]), None),
        (np.ones(2, np.complex64), None),
        (np.array(["2020-01-01"], "datetime64[D]"), None),
        (np.ones(2), np.array([None, 1])),
        (np.ones(2), np.ma.masked_equal([0, 1], 1)),
    ],
)
def test_what_holds_no_numbers_or_masks_some_is_refused(data, labels):
    with pytest.raises(DataError, match=r"got (a masked array|values of)"):
        NumpyDataset(data, labels=labels)


def test_a_label_that_does_not_count_is_no_class():
    for ignored in (255, -100):
        labels = np.array([0, 2, ignored, 1])
        data = NumpyDataset(np.ones((4, 1)), labels=labels, ignore_index=ignored)
        assert data.classes == 3 and data[:]["label"].tolist() == labels.tolist()
    with pytest.raises(DataError, match="got label -1 at index 3"):
        NumpyDataset(np.ones((4, 1)), labels=np.array([0, 2, 255, -1]), ignore_index=255)
    with pytest.raises(DataError, match="got label 18446744073709551615"):
        NumpyDataset(np.ones((2, 1)), labels=np.array([0, 2**64 - 1], np.uint64), classes=3)
