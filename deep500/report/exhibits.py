"""Exhibits of a task on the page: tables of matrices and text, pictures with boxes, plots of lines."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from deep500.report.figures import Figure
from deep500.report.plot import Axis, Plot


def exhibit_views(exhibits: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Exhibits with what the template draws: shades of a matrix, a figure of lines, pictures as data URIs."""
    return [_VIEWS[exhibit["kind"]](exhibit) for exhibit in exhibits]


def _matrix(exhibit: Mapping[str, Any]) -> dict[str, Any]:
    values = np.array(exhibit["values"], np.float64)
    rows = np.maximum(values.sum(axis=1, keepdims=True), 1e-300)
    shades = np.clip(values / rows, 0, 1).round(3).tolist()
    lines = [
        (name, list(zip(row, shade, strict=True)))
        for name, row, shade in zip(exhibit["rows"], exhibit["values"], shades, strict=True)
    ]
    return {**exhibit, "lines": lines}


def _lines(exhibit: Mapping[str, Any]) -> dict[str, Any]:
    every = [np.array(points, np.float64) for points in exhibit["lines"].values()]
    joined = np.concatenate(every, axis=1) if every else np.zeros((2, 1))
    text = f"{exhibit['title']}: {', '.join(exhibit['lines'])}"
    plot = Plot(Axis.around(joined[0], exhibit["x_axis"]), Axis.around(joined[1], exhibit["y_axis"]), text)
    for colour, points in enumerate(every):
        plot.line(list(points[0]), list(points[1]), colour)
    plot.legend(list(exhibit["lines"]))
    return {**exhibit, "figure": Figure.from_plot(exhibit["title"], plot, exhibit.get("caption", ""), len(joined[0]))}


def _pictures(exhibit: Mapping[str, Any]) -> dict[str, Any]:
    return {**exhibit, "pictures": [{**picture, "uri": _png(picture)} for picture in exhibit["pictures"]]}


View = Callable[[Mapping[str, Any]], dict[str, Any]]
_VIEWS: dict[str, View] = {"matrix": _matrix, "lines": _lines, "table": dict, "pictures": _pictures}


def _png(picture: Mapping[str, Any]) -> str:
    """A PNG file (ISO 15948) as a data URI: header, pixels, end."""
    height, width, channels = (picture[name] for name in ("height", "width", "channels"))
    pixels = base64.b64decode(picture["pixels"])
    stride = width * channels
    raw = b"".join(b"\0" + pixels[row * stride : (row + 1) * stride] for row in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(raw)), (b"IEND", b"")]
    body = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    )
    return "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode("ascii")
