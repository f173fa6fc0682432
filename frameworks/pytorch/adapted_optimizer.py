"""Optimizers with the interface of ``torch.optim``, from any package, as optimizers of Deep500."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import new_class
from typing import Any, ClassVar

import numpy as np
import torch

from deep500.errors import InputError
from deep500.frameworks.pytorch.optimizers import NativeOptimizer
from deep500.training.optimizers.hyperparameters import hyperparameter


class AdaptedOptimizer(NativeOptimizer, declares=False):
    """Base of what :func:`optimizer_from_native` makes; its state is the native one's, in bytes of ``torch.save``."""

    fixed: ClassVar[dict[str, Any]] = {}
    _shows = False  # whether the network holds the weights of evaluation

    def make_native(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        if self._native is not None:
            raise InputError(
                f"got an edited network with {type(self).__name__}, whose state is for the parameters of before; "
                "expected the same network: make a new optimizer after an edit"
            )
        return self.kind(groups, **self.get_parameters(), **self.fixed)

    def prepare(self) -> None:
        if self.judges_other:
            self.native.train()  # type: ignore[attr-defined]

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        if self._shows or not self.judges_other:
            yield
            return
        self._shows = True
        self.native.eval()  # type: ignore[attr-defined]
        try:
            yield
        finally:
            self._shows = False
            self.native.train()  # type: ignore[attr-defined]

    def judged_tensors(self, names: Sequence[str]) -> list[Any]:
        with self.evaluation():
            return [tensor.detach().clone() for tensor in self.network.fetch_tensors(names)]

    def state_dict(self) -> dict[str, np.ndarray]:
        native, file = self.native.state_dict(), io.BytesIO()
        native["param_groups"] = [{k: v for k, v in group.items() if k != "part"} for group in native["param_groups"]]
        torch.save(native, file)
        array = np.frombuffer(file.getvalue(), np.uint8).copy()
        return {"step": np.asarray(self.steps, np.int64), "native": array}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        native = self.native
        parts = [group["part"] for group in native.param_groups]
        try:
            native.load_state_dict(torch.load(io.BytesIO(state["native"].tobytes()), weights_only=True))
        except (KeyError, ValueError) as error:
            raise InputError(
                f"got the state of another optimizer or other parameters ({error}); expected that of "
                f"{type(self).__name__} for this network: load its state"
            ) from error
        for group, part in zip(native.param_groups, parts, strict=True):
            group["part"] = part
        self.steps = int(state["step"])


def optimizer_from_native(kind: type[torch.optim.Optimizer], **options: Any) -> type[AdaptedOptimizer]:
    """Return the class of an optimizer for executors around one with the interface of ``torch.optim``.

    One with the modes ``train`` and ``eval`` (schedulefree's) is put in them where Deep500 trains and judges.

    Args:
        kind: the class.
        options: arguments of its constructor; floats are hyper-parameters, for schedules, groups and recipes.

    Example:
        >>> optimizer_from_native(torch.optim.RAdam, lr=0.01, weight_decay=0.1).hyperparameters
        ('lr', 'weight_decay')
    """
    numbers = {name: value for name, value in options.items() if type(value) is float}
    body: dict[str, Any] = {name: hyperparameter(value, least=-math.inf) for name, value in numbers.items()}
    body.update(kind=kind, fixed={n: v for n, v in options.items() if n not in numbers}, __doc__=kind.__doc__)
    body.update(judges_other=hasattr(kind, "train") and hasattr(kind, "eval"))
    body["__annotations__"] = dict.fromkeys(numbers, "float")
    return new_class(f"{kind.__name__}Optimizer", (AdaptedOptimizer,), {}, lambda space: space.update(body))
