"""Data sets: built-in ones, readers of users' own copies of published ones, and wrappers of arrays and files.

By name: `load_dataset`, `dataset_names`, `dataset_info`, and `StandInWarning` where built-in data replace absent ones.
Of one's own: `Dataset` is the base, `NumpyDataset` holds arrays, `FileListDataset` and `ImageFolder` read files,
`SequenceDataset` pads (with it `PackedSampler` and `length_mask`), `Utterances` and
`AudioFiles` hold speech, `Subset` is a part (`hold_out`); a `Batch` is a
dictionary of arrays. In formats of others: `from_hdf5`, `from_parquet`, `from_lmdb`, `from_tfrecord`,
`from_webdataset` and `from_huggingface` give `Records` of them. With a name of its own: `register_dataset` takes a
`DatasetInfo`, either `BuiltIn` (a function makes it) or `Published` (files, in one `Layout` or several).
"""

from deep500.training.data.catalog import BuiltIn, DatasetInfo, register_dataset
from deep500.training.data.dataset import Batch, Dataset, NumpyDataset
from deep500.training.data.files import FileListDataset, ImageFolder
from deep500.training.data.formats.arrow import from_parquet
from deep500.training.data.formats.hdf5 import from_hdf5
from deep500.training.data.formats.huggingface import from_huggingface
from deep500.training.data.formats.lightning import from_lmdb
from deep500.training.data.formats.records import Records
from deep500.training.data.formats.tfrecord import from_tfrecord
from deep500.training.data.formats.webdataset import from_webdataset
from deep500.training.data.load import dataset_info, dataset_names, load_dataset
from deep500.training.data.published import Layout, Published, StandInWarning
from deep500.training.data.sequences import PackedSampler, SequenceDataset, length_mask
from deep500.training.data.split import Subset, hold_out
from deep500.training.data.utterances import AudioFiles, Utterances

__all__ = [
    "AudioFiles",
    "Batch",
    "BuiltIn",
    "Dataset",
    "DatasetInfo",
    "FileListDataset",
    "ImageFolder",
    "Layout",
    "NumpyDataset",
    "PackedSampler",
    "Published",
    "Records",
    "SequenceDataset",
    "StandInWarning",
    "Subset",
    "Utterances",
    "dataset_info",
    "dataset_names",
    "from_hdf5",
    "from_huggingface",
    "from_lmdb",
    "from_parquet",
    "from_tfrecord",
    "from_webdataset",
    "hold_out",
    "length_mask",
    "load_dataset",
    "register_dataset",
]
