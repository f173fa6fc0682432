"""`Tunable`: an object with declared hyper-parameters, which some of its network's parameters may have otherwise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, ClassVar

from deep500.errors import InputError, nearest
from deep500.training.optimizers.counting import OwnCounts
from deep500.training.optimizers.groups import Part, checked_groups, divide
from deep500.training.optimizers.hyperparameters import Hyperparameter, declared, signature


def in_its_group(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method for one parameter, its last argument's, with its group's hyper-parameters and its own count."""

    @wraps(method)
    def grouped(self: Tunable, *arguments: Any) -> Any:
        if self._in_part or not (self.groups or self.counts.late):
            return method(self, *arguments)
        with self.within(next(part for part in self.parts() if arguments[-1] in part.names)):
            return method(self, *arguments)

    return grouped


class Tunable:
    """Base of optimizers: hyper-parameters as attributes, checked when they change, and parts of the parameters.

    Attributes:
        initial: the hyper-parameters that it was made with; schedules start from them.
        groups: checked, see :mod:`deep500.training.optimizers.groups`.
    """

    hyperparameters: ClassVar[tuple[str, ...]] = ()
    """Their names, in the order of their declaration."""
    _declarations: ClassVar[Mapping[str, Hyperparameter]] = {}
    _like: ClassVar[type[Tunable] | None] = None
    network: Any
    counts: OwnCounts
    behind = 0
    """By how many updates the parameter whose rule runs is behind the optimizer."""

    def __init_subclass__(cls, *, like: type[Tunable] | None = None, declares: bool = True, **options: Any) -> None:
        """Derive ``hyperparameters`` and the signature from the class's declaration, or from that of ``like``."""
        super().__init_subclass__(**options)
        if not declares or not isinstance(cls.hyperparameters, tuple):
            return  # a distributed scheme's are those of its base optimizer, and it must not inherit a signature
        if like is not None:
            for name in like.hyperparameters:
                setattr(cls, name, getattr(like, name))
            cls._like = like
        cls._declarations = {**cls._declarations, **(like._declarations if like else {}), **declared(cls)}
        cls.hyperparameters = tuple(cls._declarations)
        cls.__signature__ = signature(cls, cls._declarations)  # type: ignore[attr-defined]

    def _take(self, values: Sequence[Any], hyperparameters: dict[str, Any]) -> None:
        """Set those of the constructor, by position and by name."""
        self._in_part = False  # whether hyper-parameters are those of a part
        if len(values) > len(self.hyperparameters) or set(self.hyperparameters[: len(values)]) & set(hyperparameters):
            raise InputError(
                f"{type(self).__name__}: got {values} and {hyperparameters}; expected each hyper-parameter once, "
                f"{self.hyperparameters}: pass them by name"
            )
        hyperparameters.update(zip(self.hyperparameters, values, strict=False))
        for name, value in hyperparameters.items():
            Tunable.set_parameter(self, name, value)  # a wrapper's would change another's
        self.initial = self.get_parameters()
        self.check_together(self.initial)

    def _divide(self, groups: Sequence[Mapping[str, Any]] | None, no_decay: str | Collection[str] | None) -> None:
        """Check groups, when the network is known."""
        self.groups = checked_groups(self, groups, no_decay)
        self._parts: tuple[int, list[Part]] | None = None
        if self.groups:
            self.parts()  # here, so that a pattern without parameters is found before the first step

    @classmethod
    def check_together(cls, values: Mapping[str, Any]) -> None:
        """Raise InputError if the values of all hyper-parameters do not fit together; by default they do."""
        if cls._like is not None:
            cls._like.check_together(values)

    def set_parameter(self, name: str, value: Any) -> None:
        """Change a hyper-parameter, effective from the next step.

        Raises:
            InputError: no such hyper-parameter (the nearest is named), or a value out of its range.
        """
        setattr(self, name, self.checked(name, value))

    def checked(self, name: str, value: Any) -> Any:
        """A value for a hyper-parameter, converted; raises InputError as :meth:`set_parameter` does."""
        self._check_name(name)
        try:
            return self._declarations[name].check(value)
        except (ValueError, TypeError) as error:
            raise InputError(
                f"{type(self).__name__}: got {name}={value!r}; expected {error}: choose another value"
            ) from error

    def get_parameters(self) -> dict[str, Any]:
        """The hyper-parameters and their present values; JSON can hold them."""
        return {name: getattr(self, name) for name in self.hyperparameters}

    def parts(self) -> list[Part]:
        """The parameters in parts that are updated alike; one part without groups."""
        version = self.network.version
        if self._parts is None or self._parts[0] != version:
            self._parts = version, divide(self, self.groups)
        return self._parts[1]

    def values_of(self, part: Part) -> dict[str, Any]:
        """The hyper-parameters of a part as they are now."""
        return {**self.get_parameters(), **self._of_part(part)}

    def _of_part(self, part: Part) -> dict[str, Any]:
        values = part.values
        if part.behind:
            values = {**values, "steps": self.steps - part.behind, "behind": part.behind}  # type: ignore[attr-defined]
        if "lr" not in values:
            return values
        return {**values, "lr": values["lr"] * (self.lr / self.initial["lr"])}  # type: ignore[attr-defined]

    @contextmanager
    def within(self, part: Part) -> Iterator[None]:
        """Inside, the optimizer's hyper-parameters and its ``steps`` are those of a part."""
        values = self._of_part(part)
        before = {name: getattr(self, name) for name in values}
        self.__dict__.update(values)
        self._in_part = True
        try:
            yield
        finally:
            self.__dict__.update(before)
            self._in_part = False

    def initial_parameter(self, name: str) -> Any:
        """The value that a hyper-parameter was made with; raises InputError as :meth:`set_parameter` does."""
        self._check_name(name)
        return self.initial[name]

    def _check_name(self, name: str) -> None:
        if name not in self.hyperparameters:
            raise InputError(
                f"{type(self).__name__}: got hyper-parameter {name!r}; expected one of {self.hyperparameters}: "
                f"{nearest(name, self.hyperparameters)}"
            )

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.get_parameters().items())
        return f"{type(self).__name__}({shown})"
