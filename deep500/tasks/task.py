"""The seam between the training loop and what is learned: a *task* says what a batch is and when a network is good.

Requirements of the seam, for the author of a task:

* **A batch** is a dictionary: names of network inputs -> arrays, the first axis of each counts items (pictures,
  utterances, passages). What has no array in the batch does not exist: padding is in the arrays, and so are lengths or
  masks, as inputs of their own (``"input_length"``: (items,) int64), which the network may read (``sequence_lens`` of
  recurrent nodes) and the judge must. ``count(batch)`` is how many **samples** a batch holds: what the loss is a mean
  over, what weighs batches and ranks against each other, and what throughput and FLOP per sample are about. ``sample``
  is its name: ``"image"``, ``"utterance"``, ``"token"``, ``"environment step"``. A count is a function of the batch
  alone. A network's loss says itself that it divides by labels that count, or by weights
  (:mod:`deep500.transformations.denominators`); where only the task knows, ``weight(batch)`` is how many, and gradients
  of ranks, pieces of a batch and losses of batches weigh by it.
* **The loss** is added to the network by ``add_loss``, a transformation that declares the inputs that it reads and adds
  a scalar output: a mean over the samples of a batch. So it is in the graph, and every backend differentiates it. A
  task whose loss the model brings along gets no call.
* **A quality** has a name, a unit and a direction (:class:`Quality`). Names are words joined by ``_``: results show
  them as ``train_<name>`` and ``test_<name>``. The first quality of a task is the one that its recipes are judged by.
* **Judging is by sums, not by means of means.** ``zero()`` gives the state that nothing was added to: a dictionary of
  float64 arrays. ``judge(batch, outputs)`` gives what one batch adds. Arrays add up; those that ``zero()`` gives with a
  first axis of length 0 are *rows* instead and are appended, for what no sum can hold (scores that must be ranked).
  ``measure(sums, loss)`` makes qualities of the state, once, at the end. Therefore the state of all processes together
  is exactly the state of one process that saw everything, up to the order of rows, which ``measure`` must not depend
  on; memory is that of the state, and ``most_rows`` bounds the rows.
* **Judges see NumPy arrays**, never a framework's tensors: of the batch the names in ``judged_inputs()``, of the
  outputs those in ``judged_outputs()``. In training, outputs are read late and many at a time, so that nothing waits
  for the device; a task with large outputs (a score for every token of a vocabulary) sets ``judges_training = False``
  and is judged by its loss there.
* **Validation runs** ``predict(executor, batch, wanted)``, one inference by default. A task that decodes step by step,
  or plays episodes, overrides it; the batch of an environment is its seeds. ``batches(sampler, executor)`` is what
  the loop trains on, the sampler's batches by default; a task that makes its data by running the network (it acts in
  an environment) overrides that.
* **Predictions** are what ``decode(batch, outputs)`` gives, one per item, for people: class numbers, words, boxes.
* **The report** plots the qualities by their names over epochs by itself. ``gallery()`` gives more: it is judged like
  the task, by ``zero`` and ``judge``, in one evaluation after training, and its ``exhibits`` are data that the report
  draws (:mod:`deep500.tasks.gallery`).
* A task is cheap to make, holds no arrays between calls and is bound to one network by ``bind``; seeds get copies.

A task is refused when the run is built, never in the middle of an epoch: check in ``bind`` what can be checked.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from deep500.errors import InputError, nearest

if TYPE_CHECKING:
    from deep500.networks.network import Network

Sums = Mapping[str, np.ndarray]
"""The state of a judge: float64 arrays by name."""


@dataclass(frozen=True)
class Quality:
    """The quality of a network at a task: what the number is called and how to read it.

    Attributes:
        name: words joined by ``_``, such as ``"word_error_rate"``.
        unit: of the number, ``"%"`` for percent; nothing for a pure number.
        direction: which way is better, ``"higher"`` or ``"lower"``.
    """

    name: str
    unit: str = ""
    direction: Literal["higher", "lower"] = "higher"

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or self.name in ("loss", "samples", "seconds"):
            raise InputError(
                f"got quality {self.name!r}; expected words joined by _, not loss, samples or seconds, which every run "
                "has: choose another name"
            )
        if self.direction not in ("higher", "lower"):
            raise InputError(f"got direction {self.direction!r} of {self.name}; expected 'higher' or 'lower'")


class Task(abc.ABC):
    """The problem that a network learns. See the requirements at the top of :mod:`deep500.tasks.task`.

    Args:
        label: the input with what is wanted.
        output: the output that is judged; the network's first one besides the loss if None.
        loss: name of the scalar that is minimized.

    Example (a task in ten lines, see ``docs/tasks.md``):
        >>> class WithinHalf(Task):
        ...     name, qualities = "within_half", (Quality("within_half", "%"),)
        ...     def add_loss(self, network):
        ...         return add_loss(network, "mean_squared_error", label=self.label)
        ...     def zero(self): return {"near": np.zeros(()), "seen": np.zeros(())}
        ...     def judge(self, batch, outputs):
        ...         near = np.abs(outputs[self.output] - batch[self.label]) < 0.5
        ...         return {"near": near.sum(), "seen": near.size}
        ...     def measure(self, sums, loss):
        ...         return {"within_half": float(100 * sums["near"] / sums["seen"]) if sums["seen"] else None}
        >>> WithinHalf().primary.name
        'within_half'
    """

    name: ClassVar[str] = "task"
    sample: ClassVar[str] = "sample"
    qualities: tuple[Quality, ...] = ()
    judges_training: bool = True
    most_rows: int = 10_000_000

    def __init__(self, label: str = "label", output: str | None = None, loss: str = "loss") -> None:
        self.label, self.output, self.loss = label, output, loss

    # -- batches and loss -------------------------------------------------------------------------------------------
    def bind(self, outputs: Sequence[str]) -> None:
        """Take the names of a network's outputs; raises InputError if what is judged is not among them."""
        if self.output is None:
            self.output = next((name for name in outputs if name != self.loss), None)
        elif self.output not in outputs:
            raise InputError(
                f"got network_output={self.output!r}; expected an output of the network: "
                f"{nearest(self.output, outputs)}"
            )

    def count(self, batch: Mapping[str, Any]) -> int:
        """Samples in a batch: by default its items."""
        return batch_length(batch, self.label)

    def weight(self, batch: Mapping[str, Any]) -> int:
        """Return a batch's weight in means over ranks and batches, where the loss of the network does not say what it
        divides by: by default its samples.

        The batch is complete (:meth:`complete`). 0 for one of no samples, which a rank may have.
        """
        return self.count(batch)

    @property
    def counts_items(self) -> bool:
        """Return whether samples are the items of a batch; what the graph's operations are counted for is an item."""
        return type(self).count is Task.count

    @abc.abstractmethod
    def add_loss(self, network: Network) -> Network:
        """The network with a scalar output ``self.loss``; called where it has none, before it is compiled."""

    def complete(self, batch: dict[str, Any]) -> dict[str, Any]:
        """A batch of a sampler as the network reads it; as it is unless a task computes targets."""
        return batch

    def batches(self, sampler: Any, executor: Any) -> Iterable[dict[str, Any]]:
        """Yield the batches that an epoch trains on."""
        return sampler if type(self).complete is Task.complete else map(self.complete, sampler)

    def predict(self, executor: Any, batch: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
        """Outputs of a validation batch by name, ``names`` at least; the loss among them is one batch's mean."""
        return executor.inference(batch, list(names))

    def infers_once(self, names: Sequence[str]) -> bool:
        """Whether :meth:`predict` makes one inference of each batch for these outputs, of the batch's own inputs: then
        ranks that hold parts of the network can make it together."""
        return type(self).predict is Task.predict

    # -- judging ----------------------------------------------------------------------------------------------------
    def judged_inputs(self) -> tuple[str, ...]:
        """Inputs that :meth:`judge` reads."""
        return (self.label,)

    def judged_outputs(self) -> tuple[str, ...]:
        """Outputs that :meth:`judge` reads, after :meth:`bind`."""
        return () if self.output is None else (self.output,)

    @abc.abstractmethod
    def zero(self) -> dict[str, np.ndarray]:
        """The state that no batch was added to."""

    @abc.abstractmethod
    def judge(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        """Return what a batch adds to the state; names that it leaves out add nothing."""

    @abc.abstractmethod
    def measure(self, sums: Sums, loss: float | None) -> dict[str, float | None]:
        """Every quality by name, from the state and the mean loss; None where it has no meaning."""

    @property
    def primary(self) -> Quality:
        """The quality that recipes are judged by."""
        return self.qualities[0]

    # -- for people -------------------------------------------------------------------------------------------------
    def decode(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> list[Any]:
        """Return the network's predictions, one per item; the rows of the judged output if nothing else is defined."""
        return [] if self.output is None else list(outputs[self.output])

    def gallery(self) -> Any:
        """A :class:`~deep500.tasks.gallery.Gallery` of what the report shows besides curves; None by default."""
        return None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(label={self.label!r}, output={self.output!r})"


def batch_length(batch: Mapping[str, Any], label: str) -> int:
    """Number of items in a batch: the first size of the label, or of the first input that has one."""
    for value in (batch.get(label), *batch.values()):
        if getattr(value, "shape", None):
            return int(value.shape[0])
    return 1
