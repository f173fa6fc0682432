"""State of a user that no checkpoint has is said; what a step makes anew, what stays, and what is stored, is not."""

from __future__ import annotations

import collections
import copy
import threading
import warnings

import numpy as np
import pytest

from deep500.training.optimizers import AdamOptimizer
from deep500.training.optimizers.base import UpdateRuleOptimizer
from deep500.training.unsaved import UnsavedStateWarning, image
from tests.training.test_trainer import make_trainer


class Mine(UpdateRuleOptimizer):
    """Descent with what ``way`` says; each way that differs after a resume has a name that ends with 1."""

    lr: float = 0.1
    way = ""
    default = None

    def new_input(self):
        self.rate = self.lr / (1 + self.steps)
        if self.way == "numbers1":
            self.calls = getattr(self, "calls", 0) + 1
        if self.way == "random1":
            self.rng = getattr(self, "rng", None) or np.random.default_rng(0)
            self.rate = self.rng.random()

    def update_rule(self, grad, old_param, name):
        if self.way == "tensors1":
            if not hasattr(self, "velocity"):
                self.velocity = {}
            self.velocity[name] = 0.9 * self.velocity.get(name, 0.0) + grad
            grad = self.velocity[name]
        elif self.way == "default1":
            self.default = np.square(grad).sum() + (0.0 if self.default is None else self.default)
        elif self.way == "list1":
            self.last = getattr(self, "last", collections.deque())
            self.last.append(float(np.sum(grad)))
        elif self.way == "slots":
            velocity = self.slot("velocity")
            velocity[name] = velocity[name] * 0.9 + grad if name in velocity else grad
        elif self.way == "scratch":
            self.scaled = grad * self.rate
            grad = self.scaled
        elif self.way == "constant":
            self.table = getattr(self, "table", np.arange(3.0))
            grad = grad * self.table[1]
        return old_param - self.lr * grad


class Stored(Mine):
    """Says itself what is stored."""

    way = "numbers1"

    def state_dict(self):
        return {**super().state_dict(), "calls": np.asarray(self.calls)}


WAYS = ["numbers1", "random1", "tensors1", "default1", "list1", "slots", "scratch", "constant"]


def said(optimizer, epochs=2):
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        make_trainer(optimizer=optimizer).run(epochs, [])
    return [str(note.message) for note in notes if note.category is UnsavedStateWarning]


@pytest.mark.parametrize("way", WAYS)
def test_state_beside_the_checkpoint_is_said_once(way):
    optimizer = type("Own", (Mine,), {"way": way, "__module__": __name__})
    expected = {"numbers1": "calls", "random1": "rng", "tensors1": "velocity", "default1": "default", "list1": "last"}
    notes = said(optimizer)
    assert [note.split("got ")[1].split(",")[0] for note in notes] == [repr(expected.get(way))] * way.endswith("1")


@pytest.mark.parametrize("way", WAYS)
def test_it_is_said_if_and_only_if_a_resumed_run_may_differ(way):
    """The oracle: a state loaded into a new optimizer after the first steps, and what is remembered of both."""
    optimizer = type("Own", (Mine,), {"way": way, "__module__": __name__})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = make_trainer(optimizer=optimizer)
        whole.run(1, [])
        state, resumed = copy.deepcopy(whole.state()), make_trainer(optimizer=optimizer)
        resumed.load_state(state)
        whole.run(2, [])
        resumed.run(2, [])
    kept = [
        {n: image(v) for n, v in vars(t.optimizer).items() if n in ("calls", "rng", "velocity", "default", "last")}
        for t in (whole, resumed)
    ]
    assert (kept[0] != kept[1]) == way.endswith("1")


@pytest.mark.parametrize("optimizer", [Stored, AdamOptimizer])
def test_what_says_itself_what_is_stored_is_trusted(optimizer):
    assert said(optimizer) == []


def test_ranks_as_threads_are_watched_each_for_itself():
    """The class is one, the objects are several; one that is not watched reads and writes as ever."""
    optimizer = type("Own", (Mine,), {"way": "tensors1", "__module__": __name__})
    threads = [threading.Thread(target=make_trainer(optimizer=optimizer).run, args=(2, [])) for _ in range(2)]
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len([note for note in notes if note.category is UnsavedStateWarning]) == 2
    trainer = make_trainer(optimizer=type("Scratch", (optimizer,), {"way": "default1", "__module__": __name__}))
    with pytest.warns(UnsavedStateWarning, match="'default'"):
        trainer.run(2, [])
    del trainer.optimizer.default
    assert trainer.optimizer.default is None and not hasattr(trainer.optimizer, "velocity")
    with pytest.raises(AttributeError):
        del trainer.optimizer.velocity
