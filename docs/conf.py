"""Sphinx configuration; build with ``make docs``, where every warning is an error."""

from __future__ import annotations

import importlib.metadata
import os
import runpy
import sys
from pathlib import Path

project = "Deep500"
author = "Deep500 contributors"
copyright = "2026, Deep500 contributors"
release = importlib.metadata.version("deep500")

os.environ["TQDM_DISABLE"] = "1"  # the cells' commands have a terminal, but a page keeps every line of a bar

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

# Every tutorial is executed in every build, in a folder of its own; one that fails, fails the build.
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # notebooks call deep500

html_theme = "furo"
html_title = f"Deep500 {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes of a docstring are text: the fields beside them are the objects


def setup(app: object) -> None:
    """The pictures of intervals.md are simulated, and the pages of the reference written, anew in every build."""
    here = Path(__file__).parent
    runpy.run_path(str(here / "reference.py"))["write"](here / "_reference")
    runpy.run_path(str(here / "simulated_intervals.py"))["draw"](here / "_simulated")
