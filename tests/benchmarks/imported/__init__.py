"""Speed of imported models: ``python -m tests.benchmarks.imported [--part NAMES] [--only NAMES] [--rounds N]``.

Sixteen architectures written in PyTorch (``models.py``) are exported to ONNX, imported and compared with the module
that they came from: a training step (forward, backward, momentum) and an inference, on one thread, CPU time, in turns.
That is part ``module``. In ``compile`` the same executor goes through ``torch.compile`` and is compared with itself
without, of four of the models unless ``--only`` names others; in ``runtime`` an inference of ONNX Runtime's executor is
compared with a bare session of the same file. The exporter ``dynamo`` needs onnxscript, in an environment of its own.
Exit code: 0 met, 1 a bar is missed, 3 a package is missing.
"""

FIGURES = {
    "training step over the module's, 16 models": "at most 1.05 on each, by the interval",
    "inference over the module's, 16 models": "at most 1.05 on each, by the interval",
    "compile: step and inference over eager, geometric mean": "at most 0.80",
    "compile: first call": "no bar",
    "runtime: inference over a bare session, 16 models": "at most 1.01 on each, by the interval",
}
STEP, INFERENCE, COMPILED, FIRST, RUNTIME = FIGURES
