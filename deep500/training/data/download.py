"""Downloads, only when asked for: https, progress bar, time-outs, checksum verified before anything reads the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deep500.errors import DataError
from deep500.training.data.catalog import Published

TIMEOUT = (10, 60)  # seconds to connect, seconds without a byte


def download(data: Published, root: Path, progress: bool = True) -> Path:
    """Fetch the files of a published data set into its usual folder below ``root`` and return that folder.

    Raises:
        DataError: no connection, a refused request, a folder that is not writable, or content with another checksum
            than the official one (which is then deleted).
    """
    folder = root / data.download_folder
    digests = {name: one for layout in data.layouts for name, one in layout.digests.items()}
    for name, url in data.urls.items():
        _fetch(data.name, url, digests[name], folder, progress)
    return folder


def _fetch(name: str, url: str, known: str, folder: Path, progress: bool) -> None:
    import pooch
    import requests

    if not url.startswith("https://"):
        raise DataError(f"{name}: got address {url}; expected https; do not download data without encryption")
    fetcher: Any = pooch.HTTPDownloader(timeout=TIMEOUT, progressbar=progress)
    try:
        pooch.retrieve(url, known_hash=known, fname=url.rpartition("/")[2], path=folder, downloader=fetcher)
    except (requests.RequestException, OSError) as error:
        raise DataError(
            f"{name}: got no download of {url} ({type(error).__name__}: {error}); expected a connection and a writable "
            f"folder; put the file into {folder} by hand, or use the stand-in"
        ) from error
    except ValueError as error:  # pooch: the checksum differs; it keeps nothing
        raise DataError(
            f"{name}: got other content than expected from {url} ({error}); expected checksum {known}; "
            "try again later, or get the file elsewhere"
        ) from error
