"""Budgets of recomputation on sixteen networks, four held out: asked, held, predicted, and time beside PyTorch's.

    python -m tests.benchmarks.recomputation_budgets
    python -m tests.benchmarks.recomputation_budgets --network resnet18 unet --shares 0.7,0.5 --rounds 0

For every network and share a plan is made by ``plan_checkpointing``, as users make it, for an executor of PyTorch. What
an executor of its own then holds is counted by the allocator, gradients and statistics are compared bit by bit, and
steps take turns with those without a plan, with PyTorch's own planner (``activation_memory_budget``, backend
``aot_eager``) and with ``torch.utils.checkpoint`` around equal segments and every block: shown are the quickest of
those that hold no more than was asked. Times are processor time of one thread. Finished networks are rows of a file,
and skipped in the next run at the same commit unless it names them. torchvision's three need torchvision.
"""

FIGURES = {
    "share held, of 16 networks at 70, 50, 35 % of the measured peak": "never above the share asked",
    "peak off the prediction": "at most 2 %",
    "bits of gradients and statistics that differ": "0",
    "time over `activation_memory_budget` at no more than the share": "at most 1.0",
    "time over every block at no more than the share": "at most 1.0",
    "time predicted over measured": ".95 to 1.05",
    "CPU seconds of planning": "at most 20",
}
HELD, OFF, BITS, BUDGET, BLOCKS, PREDICTED, PLANNING = FIGURES
