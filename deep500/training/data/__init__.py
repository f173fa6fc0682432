"""Data sets: built-in ones, readers of users' own copies of published ones, and wrappers of arrays and files."""

from deep500.training.data.catalog import DatasetInfo
from deep500.training.data.dataset import Batch, Dataset, NumpyDataset
from deep500.training.data.files import FileListDataset, ImageFolder
from deep500.training.data.load import StandInWarning, dataset_info, dataset_names, load_dataset

__all__ = [
    "Batch",
    "Dataset",
    "DatasetInfo",
    "FileListDataset",
    "ImageFolder",
    "NumpyDataset",
    "StandInWarning",
    "dataset_info",
    "dataset_names",
    "load_dataset",
]
