"""The facts about the published data sets: sizes, files, folders where they usually lie, official checksums.

Checksums are those that the publishers, torchvision or Keras state. A known folder with a part of its files is an
error, not an absent data set: silently training on something else would be worse.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from deep500.training.data.formats import Reader, read_cifar_binary, read_cifar_python, read_idx, read_keras_npz


@dataclass(frozen=True)
class DatasetInfo:
    """What is fixed about a data set.

    Attributes:
        name: as given to :func:`deep500.training.data.load_dataset`.
        classes: number of classes.
        shape: shape of one sample.
        counts: samples for training and for testing.
        summary: one line on what it is.
        built_in: True when it comes with an installed library.
    """

    name: str
    classes: int
    shape: tuple[int, ...]
    counts: tuple[int, int]
    summary: str
    built_in: bool = False


@dataclass(frozen=True)
class Layout:
    """One way in which a data set is stored: either in one of ``folders`` or in one of ``archives`` (.tar.gz)."""

    reader: Reader
    train: tuple[str, ...]
    test: tuple[str, ...]
    folders: tuple[str, ...]
    archives: tuple[str, ...] = ()
    digests: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Published(DatasetInfo):
    """A data set in files. ``urls`` (file name -> address) are downloaded into ``download_folder``."""

    layouts: tuple[Layout, ...] = ()
    urls: dict[str, str] = field(default_factory=dict)
    download_folder: str = "."


_KRIZ = "https://www.cs.toronto.edu/~kriz"
_BATCHES = tuple(f"data_batch_{i}" for i in range(1, 6))
_IDX_TRAIN = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
_IDX_TEST = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_IDX_GZ = tuple(f"{name}.gz" for name in _IDX_TRAIN + _IDX_TEST)


def _md5(names: tuple[str, ...], digests: str) -> dict[str, str]:
    return {name: f"md5:{one}" for name, one in zip(names, digests.split(), strict=True)}


CIFAR10 = Published(
    "cifar10",
    10,
    (3, 32, 32),
    (50_000, 10_000),
    "natural images, 32x32 colour (Krizhevsky 2009)",
    layouts=(
        Layout(
            read_cifar_binary,
            tuple(f"{name}.bin" for name in _BATCHES),
            ("test_batch.bin",),
            ("cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "cifar10"),
            ("cifar-10-binary.tar.gz",),
            _md5(("cifar-10-binary.tar.gz",), "c32a1d4ab5d03f1284b67883e8d87530"),
        ),
        Layout(
            read_cifar_python,
            _BATCHES,
            ("test_batch",),
            ("cifar-10-batches-py", "cifar10/cifar-10-batches-py", "cifar-10-batches-py-target/cifar-10-batches-py"),
            ("cifar-10-python.tar.gz", "cifar-10-batches-py.tar.gz"),
            {
                **_md5(
                    (*_BATCHES, "test_batch"),
                    "c99cafc152244af753f735de768cd75f d4bba439e000b95fd0a9bffe97cbabec "
                    "54ebc095f3ab1f0389bbae665268c751 634d18415352ddfa80567beed471001a "
                    "482c414d41f54cd18b22e5b47cb7c3cb 40351d587109b95175f43aff81a1287e",
                ),
                "cifar-10-python.tar.gz": "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
                "cifar-10-batches-py.tar.gz": "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
            },
        ),
    ),
    urls={"cifar-10-binary.tar.gz": f"{_KRIZ}/cifar-10-binary.tar.gz"},
)

CIFAR100 = Published(
    "cifar100",
    100,
    (3, 32, 32),
    (50_000, 10_000),
    "natural images, 32x32 colour, fine labels (Krizhevsky 2009)",
    layouts=(
        Layout(
            read_cifar_binary,
            ("train.bin",),
            ("test.bin",),
            ("cifar-100-binary", "cifar100/cifar-100-binary", "cifar100"),
            ("cifar-100-binary.tar.gz",),
            _md5(("cifar-100-binary.tar.gz",), "03b5dce01913d631647c71ecec9e9cb8"),
        ),
        Layout(
            read_cifar_python,
            ("train",),
            ("test",),
            ("cifar-100-python", "cifar100/cifar-100-python", "cifar-100-python-target/cifar-100-python"),
            ("cifar-100-python.tar.gz",),
            _md5(
                ("cifar-100-python.tar.gz", "train", "test"),
                "eb9058c3a382ffc7106e4002c42a8d85 16019d7e3df5f24257cddd939b257f8d f0ef6b0ae62326f3e7ffdfab6717acfc",
            ),
        ),
    ),
    urls={"cifar-100-binary.tar.gz": f"{_KRIZ}/cifar-100-binary.tar.gz"},
)

MNIST = Published(
    "mnist",
    10,
    (1, 28, 28),
    (60_000, 10_000),
    "handwritten digits, 28x28 grey (LeCun et al. 1998)",
    layouts=(
        Layout(
            read_idx,
            _IDX_TRAIN,
            _IDX_TEST,
            ("MNIST/raw", "mnist/raw", "mnist"),
            digests=_md5(
                _IDX_GZ,
                "f68b3c2dcbeaaa9fbdd348bbdeb94873 d53e105ee54ea40749a09fcbcd1e9432 "
                "9fb629c4189551a2d022fa330f9573f3 ec29112dd5afa0611ce80d1b7f02629c",
            ),
        ),
        Layout(
            read_keras_npz,
            ("mnist.npz",),
            ("mnist.npz",),
            (".",),
            digests={"mnist.npz": "sha256:731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"},
        ),
    ),
    urls={name: f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}" for name in _IDX_GZ},
    download_folder="MNIST/raw",
)

FASHION_MNIST = Published(
    "fashion_mnist",
    10,
    (1, 28, 28),
    (60_000, 10_000),
    "articles of clothing, 28x28 grey (Xiao et al. 2017)",
    layouts=(
        Layout(
            read_idx,
            _IDX_TRAIN,
            _IDX_TEST,
            ("FashionMNIST/raw", "fashion_mnist/raw", "fashion_mnist", "fashion-mnist"),
            digests=_md5(
                _IDX_GZ,
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d 25c81989df183df01b3e8a0aad5dffbe "
                "bef4ecab320f06d8554ea6380940ec79 bb300cfdad3c16e7a12a480ee83cd310",
            ),
        ),
    ),
    urls={name: f"https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/{name}" for name in _IDX_GZ},
    download_folder="FashionMNIST/raw",
)

PUBLISHED = {one.name: one for one in (CIFAR10, CIFAR100, MNIST, FASHION_MNIST)}

BUILT_IN = {
    one.name: one
    for one in (
        DatasetInfo("digits", 10, (1, 8, 8), (1438, 359), "scikit-learn's real scanned digits, 8x8 grey", True),
        DatasetInfo("digits32", 10, (3, 32, 32), (1438, 359), "the same digits over photographs, 32x32 colour", True),
    )
}
