"""Sphinx configuration; build with ``make docs``, where every warning is an error."""

from __future__ import annotations

import importlib.metadata
import runpy
from pathlib import Path

project = "Deep500"
author = "Deep500 contributors"
copyright = "2026, Deep500 contributors"
release = importlib.metadata.version("deep500")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"Deep500 {release}"

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_mock_imports = ["torch"]  # the pages are built from the core's requirements and [docs] only
napoleon_numpy_docstring = False


def setup(app: object) -> None:
    """The pictures of intervals.md are simulated anew in every build."""
    here = Path(__file__).parent
    runpy.run_path(str(here / "simulated_intervals.py"))["draw"](here / "_simulated")
