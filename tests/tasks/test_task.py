"""The seam: sums of batches and of processes against one process that saw everything, and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.errors import InputError
from deep500.tasks import TASKS, Classification, Quality, Regression, Task
from deep500.training.tally import Tally


class Ranked(Task):
    """Area under the ROC curve: what no sum can hold, so rows."""

    name, qualities = "ranked", (Quality("auc"),)

    def add_loss(self, network):
        return network

    def zero(self):
        return {"pairs": np.zeros((0, 2)), "seen": np.zeros(())}

    def judge(self, batch, outputs):
        rows = np.stack([outputs["y"], batch["label"]], axis=1)
        return {"pairs": rows, "seen": len(rows)}

    def measure(self, sums, loss):
        from sklearn.metrics import roc_auc_score

        scores, labels = sums["pairs"].T
        return {"auc": float(roc_auc_score(labels, scores))}


def tally(task, what="validation"):
    task.bind(["y", "loss"])
    return Tally(np.asarray, None, "loss", "label", what, task)


def split_over(ranks, task_of, batches):
    """Tallies of several processes, combined as by a sum over processes that all take part in each sum."""
    tallies = [tally(task_of()) for _ in range(ranks)]
    for number, (inputs, outputs) in enumerate(batches):
        tallies[number % ranks].add(number, inputs, outputs)
    from concurrent.futures import ThreadPoolExecutor
    from threading import Barrier

    barrier, slots = Barrier(ranks), [None] * ranks

    def totals(rank):
        def total(values):
            slots[rank] = np.array(values)
            barrier.wait()
            everyone = np.sum(slots, axis=0)
            barrier.wait()
            return everyone

        return total

    with ThreadPoolExecutor(ranks) as pool:
        list(pool.map(lambda rank: tallies[rank].combine(totals(rank), rank), range(ranks)))
    return tallies


@pytest.mark.parametrize("shape", [(11,), (11, 1), (11, 2), (11, 3, 2)])
@pytest.mark.parametrize("constant", [False, True])
def test_regression_is_scikit_learns(shape, constant):
    """Outputs of other levels explain nothing of each other."""
    from sklearn.metrics import mean_squared_error, r2_score

    rng, task = np.random.default_rng(0), tally(Regression())
    labels, guesses = (rng.normal(3, 2, shape) + 100 * np.arange(shape[-1]) * (len(shape) > 1) for _ in range(2))
    if constant and shape == (11, 2):
        labels[:, 1] = 5
    for begin in range(0, 11, 4):
        part = slice(begin, begin + 4)
        task.add(0, {"label": labels[part]}, {"y": guesses[part], "loss": np.float64(1)})
    got = task.qualities()
    numbers = (labels, guesses) if len(shape) < 3 else (labels.ravel(), guesses.ravel())
    assert got["r2"] == pytest.approx(r2_score(*numbers), rel=1e-9)
    assert got["mean_squared_error"] == pytest.approx(mean_squared_error(*numbers), rel=1e-12)
    assert task.accuracy() is None


def test_where_regression_has_no_meaning_it_is_none():
    task = tally(Regression())
    assert task.qualities() == {"r2": None, "mean_squared_error": None}
    task.add(0, {"label": np.ones((3, 1))}, {"y": np.ones((3, 1)), "loss": np.float64(0)})
    assert task.qualities() == {"r2": None, "mean_squared_error": 0.0}


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("task_of", [Regression, Ranked])
def test_processes_together_are_one_that_saw_everything(task_of, ranks):
    rng = np.random.default_rng(2)
    batches = []
    for step in range(4):  # of five ranks one has nothing
        labels = rng.integers(0, 2, 3 + step).astype(float)
        batches.append(({"label": labels}, {"y": rng.normal(size=len(labels)), "loss": np.float64(step)}))
    whole = tally(task_of())
    for number, (inputs, outputs) in enumerate(batches):
        whole.add(number, inputs, outputs)
    for one in split_over(ranks, task_of, batches):
        assert one.samples == whole.samples == 18 and one.loss() == pytest.approx(whole.loss())
        assert one.qualities() == pytest.approx(whole.qualities(), rel=1e-12)


def test_rows_are_bounded():
    task = Ranked()
    task.most_rows = 5
    judged = tally(task, "validation, epoch 2")
    judged.add(0, {"label": np.zeros(6)}, {"y": np.zeros(6), "loss": np.float64(0)})
    with pytest.raises(InputError, match=r"validation, epoch 2: got more than 5 rows of pairs"):
        judged.flush()


def test_samples_are_what_the_task_counts():
    class Tokens(Classification):
        def count(self, batch):
            return int(batch["mask"].sum())

    judged = tally(Tokens())
    for loss, length in ((1.0, 3), (4.0, 1)):
        mask = np.arange(4)[None] < length
        judged.add(0, {"label": np.zeros((1, 4), np.int64), "mask": mask}, {"loss": np.float64(loss)})
    assert judged.samples == 4 and judged.loss() == (1.0 * 3 + 4.0 * 1) / 4


def test_training_may_be_judged_by_the_loss_alone():
    task = Classification(output="y")
    judged = Tally(np.asarray, None, "loss", "label", "training", task, judged=False)
    judged.add(0, {"label": np.zeros(2, np.int64)}, {"y": np.zeros((2, 3)), "loss": np.float64(1)})
    assert judged.loss() == 1.0 and judged.qualities() == {"accuracy": None}


def test_binding():
    task = Classification()
    task.bind(["loss", "scores"])
    assert task.output == "scores"
    with pytest.raises(InputError, match=r"network_output='score'; expected an output of the network.*scores"):
        Classification(output="score").bind(["loss", "scores"])


@pytest.mark.parametrize("name", ["word error", "loss", ""])
def test_names_of_qualities_are_words(name):
    with pytest.raises(InputError, match="expected words joined by _"):
        Quality(name)


def test_every_task_has_a_quality_and_starts_from_nothing():
    assert {"classification", "regression"} <= set(TASKS)
    for task in TASKS.values():
        assert isinstance(task.qualities, tuple) and task.name.isidentifier()
