"""An MLP on digits whose loss is F1 of the whole batch, by an operator in C++ that sums over ranks, gradient included.

python recipes/digits_macro_f1.py
python recipes/digits_macro_f1.py --ranks 2
python recipes/digits_macro_f1.py --ranks 2 --backend reference

On several ranks it takes the steps that one rank takes, but for rounding: the operator's sums are those of all ranks.
TensorFlow and JAX run it on one rank only.
"""

import deep500 as d5
import deep500.frameworks.pytorch as d5fw
from deep500.networks import create
from deep500.recipe import run_recipe


def model(classes, shape, seed):
    """Probabilities, and one minus their F1 as the loss."""
    network = create("mlp", shape=shape, classes=classes, seed=seed, hidden=(64,))
    network.add_node("Softmax", network.outputs[0], "probabilities")
    network.add_input("label", ("N",), "int64")
    network.add_node("MacroF1Loss", ["probabilities", "label"], "loss", domain="deep500")
    network.add_output("loss")
    return network


FIXED = {
    "model": model,
    "dataset": "digits",
    "validation_split": 0.1,  # the test digits are looked at once, after training
    "train_sampler": d5.ShuffleSampler,
    "epochs": 20,
}
MUTABLE = {
    "batch_size": 96,
    "executor": d5fw.from_model,
    "executor_kwargs": dict(device=d5.CPUDevice()),
    "optimizer": d5fw.AdamOptimizer,
    "optimizer_kwargs": dict(lr=3e-3),
    "seed": 0,
}
METRICS = [(d5.TestAccuracy(), 95.0)]

if __name__ == "__main__":
    run_recipe(FIXED, MUTABLE, METRICS) or exit(1)
