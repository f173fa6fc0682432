"""Where a module is tested: in the file of its name, else as this table has it; tests/test_where.py holds it complete.

By name, the test of ``deep500/a/b.py`` is ``tests/a/test_b.py`` (of ``deep500/recipe``, in ``tests/recipes``), that of
``frameworks/x/y.py`` is ``tests/frameworks/test_x_y.py``. ``python -m tests.where deep500/compare/jobs.py`` prints it.
"""

from __future__ import annotations

import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUITE = "conformance/test_conformance"  # ONNX's own cases run every kernel

# Modules of a folder ("*": all that no line above it has) and their test, below tests/ or, without a "/", in the folder
# that mirrors theirs. The reasons are of three kinds: a table in the test has a row for each of them, several modules
# share one subject, or a command is tested from end to end.
# fmt: off
TABLE: dict[str, dict[str, str]] = {
    "deep500": {
        "__main__ guard": "test_cli",
        "faces": "test_imports",
        "loading": "recipes/test_names",
        "notebooks": "newcomer/test_notebooks",
    },
    "deep500/compare": {
        "bits_command": "test_bits",
        "operator_command operator_gate operator_subject": "test_operators",
        "claims": "report/test_claims",
        "checks dropout first_difference subject traces": "test_gate",
        "differences history": "test_runs",
        "launches revision unfinished": "test_against",
        "review": "test_package",
        "report": "results/test_report_runs",
        "*": "test_compare",
    },
    "deep500/compare/conformance": {"*": SUITE},
    "deep500/distributed": {
        "buckets flat": "distributed/schemes/test_sharded",
        "checks replica traits": "test_optimizer",
        "clocks": "test_timing",
        "gradient_log": "distributed/schemes/test_asynchronous",
        "parcels staged stage_runs": "distributed/schemes/test_pipeline",
        "rank_runs": "distributed/schemes/test_divided",
        "world": "test_launch",
    },
    "deep500/distributed/compression": {"*": "distributed/test_compression"},
    "deep500/distributed/schemes": {"*": "distributed/test_scheme_table"},
    "deep500/distributed/transports": {"*": "distributed/test_transports"},
    "deep500/measure": {
        "advice": "test_load",
        "changes": "test_standing",
        "dependence": "test_stopping",
        "fresh units": "test_repeated",
        "gpu memory": "test_energy",
        "machine": "test_environment",
        "plan": "distributed/test_timing",
    },
    "deep500/metrics": {
        "agreement bias": "test_errors",
        "energy": "test_resources",
        "*": "test_metrics",
    },
    "deep500/networks": {
        "checks network node": "test_graph",
        "ctc": "operators/test_ctc_operator",
        "custom_shapes": "test_custom",
        "declared_shapes kernel_sizes open_shapes": "test_shapes",
        "emit": "networks/gradients/test_autodiff",
        "hashing": "transformations/recomputation/test_plan_file",
        "objects": "frameworks/test_importing",
        "policy_losses": "tasks/test_control",
        "grid_sampling": SUITE,
        "protos": "networks/onnx/test_dump",
        "quiet": "frameworks/test_pytorch_exporting",
        "attributes resampling": SUITE,
        "settings": "test_negative_axes",
    },
    "deep500/networks/execution": {
        "attention_mask chains gathers patterns recognition stacks": "frameworks/test_pytorch_recognition",
        "folding program slicing tidying": "frameworks/test_pytorch_tidying",
        "custom": "frameworks/test_custom_operators",
        "fallback recurrent sequences": SUITE,
        "grouping": "transformations/recomputation/test_execution",
        "labels": "networks/test_losses",
        "operands operand_types": "frameworks/test_open_ends",
        "operator_table": "frameworks/test_adding_operator",
        "precision": "gpu/test_standin",
        "step_profile": "profiling/test_profile",
        "*": "frameworks/test_executor_contract",
    },
    "deep500/networks/gradients": {
        "loops unrolling": "networks/gradients/rules/test_control",
        "*": "test_autodiff",
    },
    "deep500/networks/gradients/rules": {"*": "networks/test_gradient_rules"},
    "deep500/networks/onnx": {
        "load": "test_files",
        "*": "test_round_trip",
    },
    "deep500/networks/zoo": {"*": "networks/test_zoo"},
    "deep500/operators": {
        "bridge": "operators/cpp/test_cache",
        "compiling": "operators/cpp/test_operators",
        "differences findings gradients": "test_check",
        "failures native": "frameworks/test_custom",
        "base registry": "test_python_op",
    },
    "deep500/operators/cpp": {
        "build cache_command entries spec": "test_cache",
        "commands compilers": "test_broken",
        "ranks": "distributed/test_operators",
        "worker": "test_isolate",
        "*": "test_operators",
    },
    "deep500/operators/enzyme": {
        "diagnose ir": "test_pipeline",
        "engine": "test_setup",
        "*": "test_operators",
    },
    "deep500/recipe": {
        "build": "test_custom_ops",
        "calls checking describing overrides steps": "test_schema",
        "target": "test_own_backend",
        "loader": "test_recipes",
        "ranks": "distributed/test_launch",
        "turns": "compare/test_against",
        "*": "test_run",
    },
    "deep500/pages": {"rendering": "results/test_pages"},
    "deep500/report": {
        "bounds": "results/test_scaling",
        "command": "results/test_commands",
        "curves figures": "test_plot",
        "division": "results/test_division",
        "exhibits": "tasks/test_gallery",
        "leaderboard": "results/test_report_runs",
        "network": "results/test_network",
        "recomputation": "results/test_recomputation",
        "rendering": "test_page",
    },
    "deep500/results": {
        "averaging": "training/test_averaging",
        "checkpoint record": "test_files",
        "claims": "report/test_claims",
        "command": "test_commands",
        "exhibits": "tasks/test_gallery",
        "export_*": "test_export",
        "formats layout": "test_broken_folders",
        "ledger quiet": "test_rules",
        "course": "recipes/test_requeue",
        "ranks": "test_scaling",
        "*": "test_verify",
    },
    "deep500/results/relations": {"*": "results/test_relations"},
    "deep500/results/rules": {"*": "results/test_rules"},
    "deep500/profiling": {
        "profile_file table trace": "test_command",
        "*": "test_profile",
    },
    "deep500/race": {
        "folder": "test_running",
        "adaptive sweep_command": "test_sweeping",
    },
    "deep500/scaling": {
        "model pretend": "test_simulation",
        "*": "test_prediction",
    },
    "deep500/tasks": {
        "alphabet decoding": "test_transcription",
        "boxes": "test_detection",
        "environments": "test_control",
        "language_modelling tokens transduction": "text/test_text",
        "*": "test_task",
    },
    "deep500/training": {
        "check run": "test_trainer",
        "clipping exchange": "test_optimizers",
        "statistics": "metrics/test_metrics",
    },
    "deep500/training/data": {
        "audio soundfolder utterances": "training/data/sets/test_speech",
        "catalog": "test_adding_dataset",
        "debian text": "text/test_text",
        "episodes": "tasks/test_control",
        "rawfile": "test_published",
        "sequences": "tasks/test_lengths",
        "split": "tasks/test_splits",
        "unreadable": "test_loader_failures",
        "*": "test_datasets",
    },
    "deep500/training/data/formats": {"*": "training/test_formats"},
    "deep500/training/data/sets": {
        "cifar mnist": "training/data/test_published",
        "detection scenes": "training/data/test_boxes",
        "librispeech": "test_speech",
        "text wmt": "text/test_text",
        "*": "training/data/test_datasets",
    },
    "deep500/training/optimizers": {
        "compiling updates": "test_tracing",
        "groups": "training/test_choosing",
        "accelegrad adaptive base descent hyperparameters states tunable": "training/test_optimizers",
        "*": "test_rules",
    },
    "deep500/transformations/parallel": {
        "blocks costs plan_file": "test_planning",
        "dividing joint": "test_checking",
        "recomputing": "distributed/schemes/test_divided",
        "shardings": "distributed/test_collectives",
        "strategies": "test_rules",
    },
    "deep500/transformations/parallel/rules": {"*": "transformations/parallel/test_rules"},
    "deep500/transformations": {
        "label_means token_rows": "transformations/test_loss_pieces",
        "stages": "distributed/schemes/test_parameters",
    },
    "deep500/transformations/recomputation": {
        "region_tree": "test_profiler",
        "training_step": "test_rewriting",
        "*": "test_planning",
    },
    "deep500/transformations/substitutions": {
        "equivalence result": "test_optimize",
        "file_times report": "test_delivery",
        "loading rewriting rules_command": "transformations/substitutions/rules/test_rule_text",
    },
    "deep500/transformations/substitutions/cost": {
        "model ranking": "transformations/substitutions/test_choosing",
        "timing": "test_measured",
        "work": "test_analytic",
    },
    "deep500/transformations/substitutions/graph": {"*": "test_store"},
    "deep500/transformations/substitutions/operators": {"*": "test_specification"},
    "deep500/transformations/substitutions/proofs": {
        "axioms prime_fields validation": "transformations/workshop/substitutions/test_axioms",
        "kernels lowering": "transformations/workshop/substitutions/test_kernels",
        "saturation": "transformations/workshop/substitutions/test_proofs",
        "solver": "transformations/workshop/substitutions/test_solver",
        "*": "transformations/substitutions/rules/test_rule_text",
    },
    "deep500/transformations/substitutions/rules": {"*": "test_matching"},
    "deep500/transformations/substitutions/search": {"*": "test_backtracking"},
    "deep500/transformations/workshop/recomputation": {
        "baselines revolve": "transformations/recomputation/test_chain",
        "chosen_plans": "transformations/recomputation/test_chosen_plans",
        "measured_trees": "transformations/recomputation/test_measured_trees",
    },
    "deep500/transformations/workshop/substitutions": {
        "combinations encoding exhaustive validation": "test_axioms",
        "lift library independence": "test_lifting",
        "generate prove rewrites saturation": "test_proofs",
        "*": "test_generation",
    },
    "frameworks/*/operators": {"*": SUITE},
    "frameworks/*": {
        "adapted_optimizer": "test_adapted_optimizers",
        "compiler dtypes executor network options": "test_executor_contract",
        "custom custom_native custom_routes derivatives functions native_op": "test_custom",
        "memory": "test_recompute",
        "optimizers": "training/test_optimizers",
        "profiling": "profiling/test_profile",
        "updates": "training/optimizers/test_tracing",
    },
    "frameworks/onnxruntime": {
        "program": "test_onnxruntime_segments",
        "division": "test_division",
        "*": "test_onnxruntime",
    },
    "frameworks/pytorch": {
        "engines layers meeting sharded_checkpoint": "distributed/schemes/test_native",
        "pipelining": "distributed/schemes/test_native_pipeline",
        "arrays compiled library shortcut transforms": "test_pytorch_custom",
        "distributed": "distributed/test_transports",
        "gpu numerics sending": "gpu/test_standin",
        "capabilities": "distributed/schemes/test_pipeline",
        "importing_*": "test_pytorch_gradients",
        "known lowering": "test_pytorch_recognition",
        "split stages tape": "test_pytorch_recompute",
    },
    "frameworks/reference": {
        "narrow": "test_reference_half",
        "*": "test_reference",
    },
    "frameworks/tensorflow": {
        "callbacks": "measure/test_callbacks",
        "*": "test_tensorflow",
    },
    "frameworks/jax": {
        "engines meeting": "distributed/schemes/test_native_jax",
        "*": "test_jax",
    },
    "custom_ops/ctc_loss": {"*": "operators/test_ctc_operator"},
    "custom_ops/*": {"*": "operators/test_plugins"},
}
# fmt: on


def modules() -> list[str]:
    """All modules of the product, relative to the root, without those that only name a package."""
    folders = [ROOT / name for name in ("deep500", "frameworks", "custom_ops")]
    paths = sorted(path for folder in folders for path in folder.rglob("*.py"))  # does not follow the symbolic links
    paths = [path for path in paths if path.name != "__init__.py" and "__pycache__" not in path.parts]
    return [path.relative_to(ROOT).as_posix() for path in paths]


def by_name(module: str) -> str:
    """The test that a module has by its name, there or not."""
    folder, _, name = module.removesuffix(".py").rpartition("/")
    if folder.startswith("frameworks/"):
        return f"tests/frameworks/test_{folder.removeprefix('frameworks/').replace('/', '_')}_{name}.py"
    return f"tests/{_mirror(folder)}test_{name}.py"


def _mirror(folder: str) -> str:
    """The folder of tests that stands for one of the product, with a slash behind it where it has a name."""
    top, _, below = folder.partition("/")
    below = "frameworks" if top == "frameworks" else re.sub(r"^recipe\b", "recipes", below)
    return below and f"{below}/"


def line_of(module: str) -> tuple[str, str] | None:
    """The keys of the line of the table that has a module."""
    folder, _, name = module.removesuffix(".py").rpartition("/")
    for pattern, lines in TABLE.items():
        if fnmatchcase(folder, pattern) and pattern.count("/") == folder.count("/"):
            for names in lines:
                if any(fnmatchcase(name, wild) for wild in names.split()):
                    return pattern, names
    return None


def test_of(module: str) -> str | None:
    """The file that tests a module; None if nothing says so."""
    if (ROOT / by_name(module)).is_file():
        return by_name(module)
    line = line_of(module)
    if line is None:
        return None
    test = TABLE[line[0]][line[1]]
    return Path("tests", "" if "/" in test else _mirror(module.rpartition("/")[0]), f"{test}.py").as_posix()


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(test_of(argument) or f"no test of {argument!r} is named: see tests/where.py")
