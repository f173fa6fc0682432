"""State of a user that no checkpoint has is said; what a step makes anew, what stays, and what is stored, is not."""

from __future__ import annotations

import collections
import copy
import threading
import warnings
from functools import cached_property

import numpy as np
import pytest

from deep500.frameworks import reference
from deep500.metrics import TrainingLoss
from deep500.networks import add_loss, create
from deep500.operators import CustomPythonOp, register_op
from deep500.recipe import run_recipe
from deep500.training.data import NumpyDataset
from deep500.training.data.samplers import ShuffleSampler
from deep500.training.optimizers import AdamOptimizer
from deep500.training.optimizers.base import UpdateRuleOptimizer
from deep500.training.trainer import Trainer
from deep500.training.unsaved import UnsavedStateWarning, image
from tests.recipes.common import quick
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


class Noisy(CustomPythonOp):
    """Noise from a generator of its own, or from an input."""

    def __init__(self, own=True):
        super().__init__()
        self.own, self.rng, self.table = own, np.random.default_rng(0), np.ones(3)

    def forward(self, inputs):
        return inputs[0] * (self.rng.random() if self.own else self.table[0])

    def backward(self, grads, fwd_inputs, fwd_outputs):
        return grads[0]


@pytest.mark.parametrize("own", [True, False])
def test_an_operator_that_remembers_is_said(own):
    register_op("TestNoisy")(Noisy)
    executor = reference.from_model(add_loss(noisy(3, (4,), 0, own)))
    rng = np.random.default_rng(0)
    data = NumpyDataset(rng.normal(size=(40, 4)).astype("float32"), labels=np.arange(40) % 3)
    batches = ShuffleSampler(data, 8)
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        Trainer(batches, None, executor, AdamOptimizer(executor)).run(2, [])
    texts = [str(note.message) for note in notes if note.category is UnsavedStateWarning]
    assert [text.split(",")[0] for text in texts] == ["operator 'Noisy': got 'rng'"] * own


def test_each_seed_of_a_run_has_operators_of_its_own(tmp_path):
    """Each seed is the run that it would be alone: the generator begins anew."""
    register_op("TestNoisy")(Noisy)

    def losses(*words):
        recipe = quick("reference", model=noisy, model_kwargs=None, epochs=1, metrics=[(TrainingLoss(), None)])
        with pytest.warns(UnsavedStateWarning, match="operator 'Noisy'"):
            return run_recipe(*recipe, argv=[*words, "--out", str(tmp_path)]).metrics[0].values

    assert losses("--repeat", "2") == [*losses(), *losses("--seed", "1")]


def noisy(classes, shape, seed, own=True):
    """Noise behind the whole network."""
    network = create("mlp", classes=classes, shape=shape, seed=seed, hidden=(4,))
    (output,) = network.outputs
    network.add_node("TestNoisy", [output], ["noisy"], domain="deep500", own=own)
    network.remove_output(output)
    network.add_output("noisy")
    return network


class Cached(Mine):
    """Properties still work, also of objects that are not watched."""

    way = "tensors1"

    @cached_property
    def scale(self):
        return 2.0

    def update_rule(self, grad, old_param, name):
        return super().update_rule(self.scale * grad, old_param, name)


def test_classes_go_on_as_they_were():
    assert len(said(Cached)) == 1
    again = make_trainer(optimizer=type("Below", (Cached,), {"__module__": __name__}))
    assert again.optimizer.scale == 2.0 and not hasattr(again.optimizer, "velocity")
    assert not hasattr(Cached, "velocity") and isinstance(vars(Cached)["scale"], cached_property)


@pytest.mark.backend("pytorch")
def test_tensors_of_any_kind_have_an_image():
    torch = pytest.importorskip("torch")
    tensors = [torch.ones(2, dtype=d) for d in (torch.bfloat16, torch.float16, torch.complex64, torch.bool)]
    tensors += [torch.ones(2, requires_grad=True), torch.eye(2).to_sparse(), torch.empty(2, device="meta")]
    for tensor in tensors:
        before = image({"a": [tensor]})
        assert before == image({"a": [tensor.clone()]})
    assert image(tensors[0]) != image(2 * tensors[0])


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
