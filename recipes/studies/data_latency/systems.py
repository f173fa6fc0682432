"""Loaders that are compared: the same pictures, shuffled, as float32 (samples, 3, height, width) in [0, 1].

Each is written as its users do: PyTorch's follow torchvision's arithmetic sample by sample, TensorFlow's the guide of
tf.data. Augmentation is a random crop after padding by four pixels, and a random mirror image.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from recipes.studies.data_latency.storage import NEEDS, Reader, dataset, files_of

PADDING, SEED = 4, 1


@dataclass(frozen=True)
class LoaderJob:
    """One measurement: where the pictures lie, what decodes them, in how many workers, with augmentation or without."""

    folder: Path
    storage: str
    decoder: str
    workers: int
    augment: bool
    size: int
    batch: int


class Loader(abc.ABC):
    """A loader of one framework for a job; opened when it is made."""

    name: str

    def __init__(self, job: LoaderJob) -> None:
        self.job = job

    @staticmethod
    def refuses(storage: str, decoder: str) -> str:
        """Why a storage or decoder is not measured with it; empty if it is."""
        return ""

    @abc.abstractmethod
    def epoch(self, number: int) -> Iterator[np.ndarray]:
        """The batches of an epoch."""

    def rest(self, after: int) -> list[np.ndarray] | None:
        """Stop after some batches of epoch 0, go on in a new loader: what comes then; None if it has no such way."""
        return None

    def close(self) -> None:  # noqa: B027 - most have nothing to end
        """End workers."""


class Deep500(Loader):
    """A sampler, and threads that make its batches ahead."""

    name = "deep500"

    def __init__(self, job: LoaderJob) -> None:
        from deep500.training.data.augmentation import Crop, Flip
        from deep500.training.data.prefetch import Prefetch
        from deep500.training.data.samplers import ShuffleSampler

        super().__init__(job)
        data = dataset(job.folder, job.storage, job.decoder, job.size)
        augmentation = [Crop(job.size, PADDING), Flip()] if job.augment else []
        sampler = ShuffleSampler(data, job.batch, SEED, transformations=augmentation)
        workers = job.workers
        self.loader: Any = Prefetch(sampler, depth=max(2, 2 * workers), workers=workers) if workers else sampler

    def epoch(self, number: int) -> Iterator[np.ndarray]:
        self.loader.set_epoch(number)
        for batch in self.loader:
            yield batch["input"]

    def rest(self, after: int) -> list[np.ndarray] | None:
        batches = self.epoch(0)
        for _ in range(after):
            next(batches)
        batches.close()  # type: ignore[attr-defined]
        again = Deep500(self.job)
        again.loader.resume(self.loader.state())
        return [batch["input"] for batch in again.loader]


class _Samples:
    """Single samples for `DataLoader`, with torchvision's ``ToTensor`` and its random crop and flip."""

    def __init__(self, job: LoaderJob) -> None:
        self.reader, self.augment, self.size = Reader(job.folder, job.storage, job.decoder), job.augment, job.size

    def __len__(self) -> int:
        return len(self.reader)

    def __getitem__(self, number: int) -> Any:
        import torch

        image = torch.from_numpy(self.reader[number]).permute(2, 0, 1).contiguous().to(torch.float32).div(255)
        if not self.augment:
            return image
        padded = torch.nn.functional.pad(image, [PADDING] * 4)
        top, left = torch.randint(2 * PADDING + 1, (2,)).tolist()
        image = padded[:, top : top + self.size, left : left + self.size]
        return image.flip(-1) if torch.rand(()) < 0.5 else image


class TorchLoader(Loader):
    """`torch.utils.data.DataLoader` with workers that persist, so that they start once."""

    name = "DataLoader"

    def __init__(self, job: LoaderJob) -> None:
        import torch
        from torch.utils.data import DataLoader

        super().__init__(job)
        torch.set_num_threads(1)
        self.order = torch.Generator()
        self.loader: Any = DataLoader(
            _Samples(job),  # type: ignore[arg-type]
            job.batch,
            shuffle=True,
            num_workers=job.workers,
            generator=self.order,
            drop_last=True,
            persistent_workers=job.workers > 0,
        )

    @staticmethod
    def refuses(storage: str, decoder: str) -> str:
        return "PyTorch reads no TFRecord" if storage == "TFRecord" else ""

    def epoch(self, number: int) -> Iterator[np.ndarray]:
        import torch

        torch.manual_seed(number)
        self.order.manual_seed(number)
        for batch in self.loader:
            yield batch.numpy()

    def close(self) -> None:
        iterator = getattr(self.loader, "_iterator", None)
        if iterator is not None:
            iterator._shutdown_workers()  # there is no public way
        self.loader = None


class TensorFlowLoader(Loader):
    """A pipeline of tf.data with as many parallel calls as workers; the calling thread's work where there are none."""

    name = "tf.data"

    def __init__(self, job: LoaderJob) -> None:
        import tensorflow as tf

        super().__init__(job)
        if job.storage == "raw":
            pixels = np.load(job.folder / "raw.npy", mmap_mode="r")
            numbers = tf.data.Dataset.range(len(pixels))
            self.count = len(pixels)
            source = numbers.map(lambda i: tf.numpy_function(lambda n: pixels[n].transpose(1, 2, 0), [i], tf.uint8))
        elif job.storage == "TFRecord":
            source = tf.data.TFRecordDataset(str(job.folder / "TFRecord.tfrecord"))
            self.count = sum(1 for _ in source)
        else:
            files = [str(path) for path in files_of(job.folder, job.storage)]
            self.count, source = len(files), tf.data.Dataset.from_tensor_slices(files)
        self.source = source
        tf.random.set_seed(SEED)
        self.batches = self.pipeline()  # once: it shuffles anew in every epoch

    @staticmethod
    def refuses(storage: str, decoder: str) -> str:
        here = storage in ("raw", "JPEG folder", "PNG folder", "TFRecord")
        return "" if here else "tf.data reads it with other packages only"

    def pipeline(self) -> Any:
        """Make a data set: shuffled whole, decoded, augmented, put together."""
        import tensorflow as tf

        job = self.job
        feature = {"input": tf.io.FixedLenFeature([], tf.string)}

        def sample(value: Any) -> Any:
            if job.storage == "raw":
                image = value
            else:
                record = job.storage == "TFRecord"
                data = tf.io.parse_single_example(value, feature)["input"] if record else tf.io.read_file(value)
                image = self.decoded(data)
            image = tf.transpose(tf.cast(tf.ensure_shape(image, (job.size, job.size, 3)), tf.float32) / 255, (2, 0, 1))
            if not job.augment:
                return image
            padded = tf.pad(image, ((0, 0), (PADDING, PADDING), (PADDING, PADDING)))
            image = tf.image.random_crop(padded, (3, job.size, job.size), seed=SEED)
            return tf.cond(tf.random.uniform((), seed=SEED) < 0.5, lambda: image[:, :, ::-1], lambda: image)

        options = tf.data.Options()
        options.threading.private_threadpool_size = max(1, job.workers)
        shuffled = self.source.shuffle(self.count, seed=SEED)
        parallel = {"num_parallel_calls": job.workers, "deterministic": True} if job.workers else {}
        batches = shuffled.map(sample, **parallel).batch(job.batch, True)
        return (batches.prefetch(2) if job.workers else batches).with_options(options)

    def decoded(self, data: Any) -> Any:
        """Decode in the graph where TensorFlow is the decoder, else by a call of Python."""
        import tensorflow as tf

        from recipes.studies.data_latency.decoders import DECODERS

        if self.job.decoder != "tf.io":
            return tf.numpy_function(DECODERS[self.job.decoder][1], [data], tf.uint8)
        if self.job.storage == "PNG folder":
            return tf.io.decode_png(data, 3)
        return tf.io.decode_jpeg(data, 3, dct_method="INTEGER_ACCURATE")

    def epoch(self, number: int) -> Iterator[np.ndarray]:
        for batch in self.batches:
            yield batch.numpy()

    def rest(self, after: int) -> list[np.ndarray] | None:
        import tempfile

        import tensorflow as tf

        batches = iter(self.batches)
        for _ in range(after):
            next(batches)
        try:
            with tempfile.TemporaryDirectory() as folder:
                path = tf.train.Checkpoint(batches=batches).write(f"{folder}/state")
                again = iter(TensorFlowLoader(self.job).batches)
                tf.train.Checkpoint(batches=again).read(path).assert_consumed()
                return [batch.numpy() for batch in again]
        except tf.errors.OpError:  # calls of Python have no state that it can write
            return None


class GrainLoader(Loader):
    """A `MapDataset` of Grain, read by threads."""

    name = "Grain"

    def __init__(self, job: LoaderJob) -> None:
        super().__init__(job)
        self.reader = Reader(job.folder, job.storage, job.decoder)

    refuses = TorchLoader.refuses

    def pipeline(self, number: int) -> Any:
        """The epoch's data set; nothing is read ahead where there are no workers."""
        import grain

        job = self.job

        def sample(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
            image = np.ascontiguousarray(image.transpose(2, 0, 1)).astype(np.float32) / np.float32(255)
            if not job.augment:
                return image
            padded = np.pad(image, ((0, 0), (PADDING, PADDING), (PADDING, PADDING)))
            top, left = rng.integers(0, 2 * PADDING + 1, 2)
            image = padded[:, top : top + job.size, left : left + job.size]
            return image[:, :, ::-1] if rng.random() < 0.5 else image

        numbers = grain.MapDataset.source(self.reader).seed(number).shuffle().random_map(sample)
        batches = numbers.batch(job.batch, drop_remainder=True)
        reading = grain.ReadOptions(num_threads=job.workers, prefetch_buffer_size=max(2, 2 * job.workers))
        return batches.to_iter_dataset(reading)

    def epoch(self, number: int) -> Iterator[np.ndarray]:
        yield from self.pipeline(number)

    def rest(self, after: int) -> list[np.ndarray] | None:
        batches = iter(self.pipeline(0))
        for _ in range(after):
            next(batches)
        again = iter(self.pipeline(0))
        again.set_state(batches.get_state())
        return list(again)


LOADERS: dict[str, tuple[str, type[Loader]]] = {
    "deep500": ("", Deep500),
    "DataLoader": ("torch", TorchLoader),
    "tf.data": ("tensorflow", TensorFlowLoader),
    "Grain": ("grain", GrainLoader),
}
"""By name: the package that must be there, and the class."""


def reason(system: str, storage: str, decoder: str) -> str:
    """Why a combination is not measured; empty if it is."""
    from recipes.studies.data_latency.decoders import missing

    for package in (LOADERS[system][0], NEEDS[storage], missing(decoder)):
        if package and not find_spec(package):
            return f"needs {package}"
    if decoder in ("simplejpeg", "torchvision") and storage == "PNG folder":
        return f"{decoder} is asked for JPEG only"
    return LOADERS[system][1].refuses(storage, decoder)
