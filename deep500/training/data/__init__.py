"""Data sets: built-in ones, readers of users' own copies of published ones, and wrappers of arrays and files.

By name: `load_dataset`, `dataset_names`, `dataset_info`, and `StandInWarning` where built-in data replace absent ones.
Of one's own: `Dataset` is the base, `NumpyDataset` holds arrays, `FileListDataset` and `ImageFolder` read files,
`SequenceDataset` pads (with it `PackedSampler` and `length_mask`), `Utterances` and
`AudioFiles` hold speech, `Subset` is a part (`hold_out`); a `Batch` is a
dictionary of arrays. In formats of others: `from_hdf5`, `from_parquet`, `from_lmdb`, `from_tfrecord`,
`from_webdataset` and `from_huggingface` give `Records` of them. With a name of its own: `register_dataset` takes a
`DatasetInfo`, either `BuiltIn` (a function makes it) or `Published` (files, in one `Layout` or several).
"""

from typing import TYPE_CHECKING

from deep500.faces import load_when_used

if TYPE_CHECKING:
    from deep500.training.data.catalog import BuiltIn as BuiltIn
    from deep500.training.data.catalog import DatasetInfo as DatasetInfo
    from deep500.training.data.catalog import register_dataset as register_dataset
    from deep500.training.data.dataset import Batch as Batch
    from deep500.training.data.dataset import Dataset as Dataset
    from deep500.training.data.dataset import NumpyDataset as NumpyDataset
    from deep500.training.data.files import FileListDataset as FileListDataset
    from deep500.training.data.files import ImageFolder as ImageFolder
    from deep500.training.data.formats.arrow import from_parquet as from_parquet
    from deep500.training.data.formats.hdf5 import from_hdf5 as from_hdf5
    from deep500.training.data.formats.huggingface import from_huggingface as from_huggingface
    from deep500.training.data.formats.lightning import from_lmdb as from_lmdb
    from deep500.training.data.formats.records import Records as Records
    from deep500.training.data.formats.tfrecord import from_tfrecord as from_tfrecord
    from deep500.training.data.formats.webdataset import from_webdataset as from_webdataset
    from deep500.training.data.load import dataset_info as dataset_info
    from deep500.training.data.load import dataset_names as dataset_names
    from deep500.training.data.load import load_dataset as load_dataset
    from deep500.training.data.published import Layout as Layout
    from deep500.training.data.published import Published as Published
    from deep500.training.data.published import StandInWarning as StandInWarning
    from deep500.training.data.sequences import PackedSampler as PackedSampler
    from deep500.training.data.sequences import SequenceDataset as SequenceDataset
    from deep500.training.data.sequences import length_mask as length_mask
    from deep500.training.data.split import Subset as Subset
    from deep500.training.data.split import hold_out as hold_out
    from deep500.training.data.utterances import AudioFiles as AudioFiles
    from deep500.training.data.utterances import Utterances as Utterances

load_when_used(__name__)
