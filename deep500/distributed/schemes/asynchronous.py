"""`InconsistentParameterServer`: workers do not wait for each other, one rank serves them as they come.

Ranks cannot wait in a circle, also where a transport's ``send`` waits until the other side receives (MPI, for messages
over some kilobytes), because the two sides never send at once. A worker that asks for parameters sends nothing until it
has them; a worker that brings a gradient says so in a short message first, and the server, which sends parameters only
to workers that asked, takes the gradient as soon as it hears that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from deep500.distributed.buckets import Buckets
from deep500.distributed.gradient_log import Contribution, GradientLog, mean_by_samples
from deep500.distributed.optimizer import DistributedOptimizer
from deep500.distributed.transports.communicator import ANY, Communicator
from deep500.errors import InputError
from deep500.training.optimizers.base import Optimizer

SERVER = 0
_WISH, _GRADIENT, _PARAMETERS = 32001, 32002, 32003  # tags away from those of users
_PULL, _PUSH, _SKIP = 0, 1, 2  # what a worker wants: parameters, to bring a gradient, or nothing in this step


class InconsistentParameterServer(DistributedOptimizer):
    """Asynchronous SGD with a parameter server (Dean et al. 2012, Large Scale Distributed Deep Networks, NIPS 25,
    section 4.1): each worker takes the present parameters, computes ``g`` on its share of the batch and brings it to
    the server, which updates with it at once: ``w_(t+1) = w_t - lr g(w_(t - tau))`` for gradient descent, ``tau`` being
    the staleness.

    Rank 0 is the server and computes no gradients: there are P - 1 workers, and every global batch makes P - 1 updates,
    each of the mean over one share. With one worker that is the serial run, bit by bit. Otherwise the result depends on
    the order of arrival, which is recorded: :func:`deep500.distributed.gradient_log.replay` repeats it on one process.
    Gradients are applied in the order of arrival; a worker without samples in a batch sends nothing. Only the base
    optimizer of the server is used, its ``gradient_modifier`` included. In every step the server takes as many
    gradients as there are workers, so that all ranks end together.

    Payload per step: each worker sends the bytes of all gradients, the server those of all parameters to each worker.

    Attributes:
        log: on the server, every gradient with worker, step, version read and update; what is reported of staleness
            comes from it. Part of the state, 40 bytes a gradient.

    Raises:
        CommunicationError: fewer than two ranks.
        InputError: the server got samples to compute on (in a step).
    """

    waits = "server"
    least_ranks = 2
    consistent = False

    def __init__(self, base_optimizer: Optimizer, comm: Communicator | None = None) -> None:
        super().__init__(base_optimizer, comm)
        self.log = GradientLog()
        self._waiting: list[int] = []  # workers that asked for parameters
        self._pulled: dict[int, int] = {}  # how many updates there were in the parameters that a worker has
        self._prepared = False  # whether the base optimizer has made its parameters ready for a gradient
        self._buckets = Buckets.like(self.arrays(self.parameters()))
        self._gradients_of: int | None = None  # version of the network for which the server has gradient tensors
        self._arrived: Sequence[np.ndarray] = ()
        self.exchanges_gradients = True

    @classmethod
    def computing_ranks(cls, size: int) -> range:
        """All but rank 0, the server."""
        return range(1, size)

    @classmethod
    def kept_by_each(cls) -> str:
        """Its parameters."""
        return "parameters from when it last asked the server, and a place in the order of updates"

    def agreed_gradients(self, names: Sequence[str], gradients: Sequence[Any]) -> Sequence[Any]:
        """Those that a worker brought to the server, which has none of its own."""
        return self.tensors(self._arrived)

    @property
    def updates(self) -> int:
        """How many the server has made."""
        return self.log.updates

    def step(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Compute one gradient; on the server: take one from each worker's quota, and return no outputs."""
        if self.comm.rank == SERVER:
            return self._serve(inputs)
        if not self.samples:
            self._wish(_SKIP)
            return {}
        with self.communicating():
            self._wish(_PULL)
            for bucket in self._buckets.all:
                self.comm.receive(bucket.flat[:-1], SERVER, _PARAMETERS)
            self.set_parameters(self.tensors(self._buckets.views()))
        outputs = self.base_optimizer.backprop(inputs)
        with self.communicating():
            self._buckets.put(self.arrays(self.network.fetch_tensors(self.gradient_names())))
            self._wish(_PUSH)
            for bucket in self._buckets.all:
                self.comm.send(bucket.flat[:-1], SERVER, _GRADIENT)
        return outputs

    def _wish(self, kind: int) -> None:
        wish = np.array([kind, int(self.samples), self.steps], np.int64)
        self.comm.send(wish, SERVER, _WISH, control=wish.nbytes)

    # -- what a scheme with another rule overrides --------------------------------------------------------------------
    def may_go_on(self, worker: int) -> bool:
        """Whether a worker gets parameters now; if not, it waits for the next gradient of another one."""
        return True

    def arrived(self, contribution: Contribution, gradients: list[np.ndarray] | None) -> None:
        """Take in a worker's gradients on the server (overwritten afterwards), or its having none."""
        if gradients is not None:
            self.apply([(contribution, gradients)])

    # -- the server ---------------------------------------------------------------------------------------------------
    def _serve(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        if self.samples:
            raise InputError(
                f"got {self.samples} samples on rank {SERVER}, the server; expected none, for it computes nothing: "
                "divide batches among computing_ranks(size), as DistributedSampler does"
            )
        self._make_gradients(inputs)
        quota, wish = self.comm.size - 1, np.empty(3, np.int64)
        while quota:
            gradients = None
            with self.communicating():
                worker = self.comm.receive(wish, ANY, _WISH)
                kind, samples, step = wish.tolist()
                if kind == _PUSH:
                    for bucket in self._buckets.all:
                        self.comm.receive(bucket.flat[:-1], worker, _GRADIENT)
                    gradients = self._buckets.views()
            if kind == _PULL:
                self._waiting.append(worker)
            else:
                # now: by the time of the update the worker may have taken newer parameters for its next step
                self.arrived(Contribution(worker, step, self._pulled.get(worker, 0), samples), gradients)
                quota -= 1
            self._answer()
        return {}

    def _answer(self) -> None:
        """Give parameters to those who asked and may have them."""
        able = [worker for worker in self._waiting if self.may_go_on(worker)]
        if able:
            self._prepare()
            with self.communicating():
                self._buckets.put(self.arrays(self.parameters()))
                for worker in able:
                    for bucket in self._buckets.all:
                        self.comm.send(bucket.flat[:-1], worker, _PARAMETERS)
        self._pulled.update(dict.fromkeys(able, self.updates))
        self._waiting = [worker for worker in self._waiting if worker not in able]

    def apply(self, parts: Sequence[tuple[Contribution, Sequence[np.ndarray]]]) -> None:
        """One update of the base optimizer with the mean of these gradients over samples."""
        self._prepare()
        events, base = self.executor.events, self.base_optimizer
        self._arrived = mean_by_samples([(gradients, contribution.samples) for contribution, gradients in parts])
        if events.before_update:
            events.emit(events.before_update, base)
        base.update()
        base.count_update()
        if events.after_update:
            events.emit(events.after_update, base)
        self._arrived = ()
        self.log.add(self.updates, [contribution for contribution, _ in parts])
        self._prepared = False

    def _prepare(self) -> None:
        """The first two of the base optimizer's three steps, once for every update."""
        if not self._prepared:
            self.base_optimizer.prepare()
            self._prepared = True

    def _make_gradients(self, inputs: Mapping[str, Any]) -> None:
        """Run once on made-up samples: optimizers replace the gradients of a run, so there has to be one."""
        if self._gradients_of != self.network.version:
            with self.same_statistics():
                self.executor.inference_and_backprop(self.made_up(inputs), self.loss)
            self._gradients_of = self.network.version

    # -- what a trainer asks ------------------------------------------------------------------------------------------
    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """Validate the server's parameters; all ranks have them from here on, see :meth:`agree`."""
        with self.base_optimizer.evaluation():
            self.agree()
            yield

    def agree(self) -> None:
        """All ranks take over the server's parameters and the mean of the workers' running statistics."""
        statistics = self.running_statistics()
        trained = [name for name in self.floating() if name not in statistics]
        arrays = self.arrays(self.network.fetch_tensors(trained))
        self.feed_arrays(trained, Buckets.like(arrays).broadcast(self.comm, arrays, SERVER))
        arrays = self.arrays(self.network.fetch_tensors(statistics))
        self.feed_arrays(statistics, Buckets.like(arrays).mean(self.comm, arrays, float(self.comm.rank != SERVER)))

    def communication_facts(self) -> dict[str, Any]:
        counts = {str(staleness): count for staleness, count in self.log.staleness().items()}
        return {**super().communication_facts(), "updates": self.updates, "staleness": counts}

    def own_state(self) -> dict[str, np.ndarray]:
        """The log."""
        return {"gradients": self.log.rows()}

    def load_own_state(self, state: Mapping[str, np.ndarray]) -> None:
        self.log, self._prepared = GradientLog(state["gradients"]), False
