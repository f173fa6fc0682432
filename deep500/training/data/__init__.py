"""Data sets: built-in ones, readers of users' own copies of published ones, and wrappers of arrays and files."""

from deep500.training.data.catalog import BuiltIn, DatasetInfo, register_dataset
from deep500.training.data.dataset import Batch, Dataset, NumpyDataset
from deep500.training.data.files import FileListDataset, ImageFolder
from deep500.training.data.load import dataset_info, dataset_names, load_dataset
from deep500.training.data.published import Layout, Published, StandInWarning

__all__ = [
    "Batch",
    "BuiltIn",
    "Dataset",
    "DatasetInfo",
    "FileListDataset",
    "ImageFolder",
    "Layout",
    "NumpyDataset",
    "Published",
    "StandInWarning",
    "dataset_info",
    "dataset_names",
    "load_dataset",
    "register_dataset",
]
