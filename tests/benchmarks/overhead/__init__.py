"""The cost of Deep500 on top of a framework: ``python -m tests.benchmarks.overhead [--backend NAME] [--rounds N]``.

ResNet-20 (CIFAR shape) on one thread of the CPU: a training step (forward, backward, momentum update), an epoch and an
inference against the same network written by hand with a plain loop (``tensorflow``: channels last; ``onnxruntime``: a
bare session). Variants take turns in random order within one process, each round gives one pair; native against native
again shows what the method cannot resolve. Backends run in processes of their own. Exit code 1 if a bar is missed.
"""

FIGURES = {
    "pytorch: training step, batch 1, 8, 64": "CPU time at most 1.02 of the plain loop",
    "pytorch: epoch with default events, batch 1, 8, 64": "at most 1.03",
    "jax: training step, batch 8, 64; inference, batch 1": "at most 1.05",
    "tensorflow: training step, batch 8, 64; inference, batch 1": "at most 1.05",
    "onnxruntime: inference, batch 1": "at most 1.02 of a bare session",
}
STEP, EPOCH, JAX, TENSORFLOW, RUNTIME = FIGURES
