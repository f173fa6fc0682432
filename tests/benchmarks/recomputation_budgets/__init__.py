"""Budgets of recomputation on twelve networks, six of them imported: asked, held, predicted, and time beside PyTorch's.

    python -m tests.benchmarks.recomputation_budgets
    python -m tests.benchmarks.recomputation_budgets --network resnet18 unet --shares 0.7,0.5 --rounds 0

For every network and share a plan is made by ``plan_checkpointing``, as users make it, for an executor of PyTorch. What
an executor of its own then holds is counted by the allocator, gradients and statistics are compared bit by bit, and
steps take turns with those without a plan, with PyTorch's own planner (``activation_memory_budget``, backend
``aot_eager``) and with ``torch.utils.checkpoint`` around equal segments: shown are the quickest of theirs that hold no
more than was asked. Times are processor time of one thread. Finished networks are rows of a file, and skipped in the
next run unless it names them. torchvision's three need torchvision.
"""

FIGURES = {
    "share held, of 12 networks at 70, 50, 35 % of the measured peak": "never above the share asked",
    "peak off the prediction": "at most 2 %",
    "bits of gradients and statistics that differ": "0",
    "time over `activation_memory_budget` at no more than the share": "at most 1.0",
}
