"""From a recipe's ``model`` to its network: a name of the zoo, a file, a `Network`, a framework's own object, or a
callable that returns one; with the loss on top, after the recipe's transformations."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from deep500.errors import RecipeError
from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.network import Network
from deep500.networks.objects import as_network, is_model, is_saved_model, seeded
from deep500.recipe.calls import accepts, check_call, parameters
from deep500.recipe.describing import describe
from deep500.recipe.parallel import check_parallel
from deep500.recipe.transformations import transformed
from deep500.registry import backend_of, framework_of, load_backend, load_importer
from deep500.tasks import TASKS, Classification, Task
from deep500.training.choosing import freeze
from deep500.training.data import Dataset
from deep500.transformations.mixed_precision import mixed_precision

LOSS = "loss"
"""Name of the value that recipes minimize."""

CHOICES = ("trainable", "check", "dynamic_axes")
"""Of `model_kwargs`, what decides how an object becomes a network; its class or function is not given them."""
NATIVE = "native"
"""Of `model_kwargs`: True keeps a PyTorch module as it is."""


def make_network(values: Mapping[str, Any], data: Dataset, seed: int, task: Task | None = None) -> Network:
    """The recipe's network with its loss on top, after the recipe's transformations.

    Raises:
        RecipeError: unknown keywords, a callable that returns no model, or a transformation that does not fit.
        NetworkError: the model cannot be built, read, converted or be given a loss.
    """
    if values["model_kwargs"].get(NATIVE) and not _of_own(values, NATIVE):
        raise RecipeError(
            "model_kwargs: got native=True where a network of operators is needed; expected it for training in PyTorch "
            "alone: leave it out, and the module is converted"
        )
    network = _fit_input(_network(values, data, seed), data)
    task = task or make_task(values, data)
    if not network.has_value(LOSS):
        network = task.add_loss(network)
        if LOSS not in network.outputs:
            raise RecipeError(
                f"task: got a network with outputs {list(network.outputs)} from {describe(values['task'])}; expected "
                f"{LOSS!r} among them: let add_loss add it"
            )
    elif LOSS not in network.outputs:
        network.add_output(LOSS)
    return _shaped(transformed(network, values), values, task)


def _shaped(network: Network, values: Mapping[str, Any], task: Task) -> Network:
    """The network with its frozen parameters, in the recipe's precision, its loss in pieces.

    Raises:
        InputError: a pattern that fits nothing, or a network in which nothing can run in 16 bits.
        RecipeError: keys that do not go together.
    """
    for key in (key for key in ("checkpointing", "memory") if values[key] is not None):
        if values["accumulate"] > 1 or values["precision"] == "f16":
            what = "accumulate" if values["accumulate"] > 1 else "precision"
            raise RecipeError(
                f"got {key} with {what}={values[what]!r}; expected one of them, as a plan holds for one batch size "
                "and one unscaled loss: use precision='bf16', or leave one of them out"
            )
    if values["checkpointing"] is not None and values["memory"] is not None:
        raise RecipeError(
            f"got checkpointing={values['checkpointing']!r} with memory={values['memory']!r}; expected one of them: "
            "memory plans recomputation, too"
        )
    check_parallel(values)
    if values["freeze"]:
        freeze(network, values["freeze"])
    if values["precision"] is not None:
        network = mixed_precision(network, values["precision"])
    return _in_loss_pieces(network, values["loss_pieces"], task)


def _in_loss_pieces(network: Network, pieces: int, task: Task) -> Network:
    """The network whose last layer and loss work on pieces, if the recipe asks for several."""
    if pieces == 1:
        return network
    if task.judges_training:
        raise RecipeError(
            f"got loss_pieces={pieces} with task {task.name!r}, which judges the scores of every training batch; "
            "expected a task that judges validations alone, such as language_modelling: leave loss_pieces out"
        )
    task.bind(network.outputs)  # the scores are no output any more
    from deep500.transformations.loss_pieces import microbatch_loss  # with gradients, which few recipes need here

    return microbatch_loss(network, pieces, loss=LOSS)


def make_task(values: Mapping[str, Any], data: Dataset) -> Task:
    """The recipe's task, with the data set's label and classes where the task takes them.

    Raises:
        RecipeError: unknown keywords, or a callable that returns no task.
    """
    source, args, kwargs = values["task"], values["task_args"], dict(values["task_kwargs"])
    if isinstance(source, Task):
        return copy.deepcopy(source)
    if source is None:
        source = "regression" if values["loss"] == "mean_squared_error" and data.classes is None else "classification"
    function: Callable[..., Any] = TASKS[source] if isinstance(source, str) else source
    known = {"label": data.label_name, "classes": data.classes, "dataset": data, "kind": values["loss"]}
    if function is Classification and len(data.shape) == 3 and data.shape[0] in (1, 3):
        known["pictures"] = data.input_name
    if function is not Classification:
        del known["kind"]
    offered = {n: v for n, v in known.items() if v is not None and accepts(function, n) and n not in kwargs}
    check_call("task", function, 0, args, {**offered, **kwargs})
    task = function(*args, **offered, **kwargs)
    if not isinstance(task, Task):
        raise RecipeError(
            f"task: got {type(task).__name__} from {describe(source)}; expected a Task: derive from d5.tasks.Task"
        )
    return task


def check_qualities(task: Task, metrics: Sequence[Any]) -> None:
    """Raise RecipeError for a metric of a quality that the task does not have, or not with that unit and direction."""
    for metric in metrics:
        name = getattr(metric, "quality", None)
        if name is None:
            continue
        judged = getattr(metric, "metric", metric)  # of a time, what it is measured to
        known = {quality.name: (quality.unit, quality.direction) for quality in task.qualities}
        if known.get(name) != (judged.unit, judged.direction):
            raise RecipeError(
                f"METRICS: got {name!r} in {judged.unit or 'no unit'}, {judged.direction} is better; expected a "
                f"quality of task {task.name!r}: {', '.join(map(str, task.qualities))}; correct the metric"
            )


def make_native(values: Mapping[str, Any], data: Dataset, seed: int) -> GraphExecutor | None:
    """An executor around the recipe's PyTorch module as it is, if ``model_kwargs`` say ``native=True``; else None.

    Raises:
        RecipeError: the recipe's executor is not PyTorch's, or its model is no module.
    """
    if not values["model_kwargs"].get(NATIVE) or _of_own(values, NATIVE):
        return None
    if backend_of(values["executor"]) != "pytorch":
        raise RecipeError(
            f"model_kwargs: got native=True and executor {describe(values['executor'])}; expected PyTorch's: use "
            "deep500.frameworks.pytorch.from_model, or leave native out"
        )
    edits = [key for key in ("freeze", "precision", "network_transformations") if values.get(key)]
    edits += ["loss_pieces"] if values.get("loss_pieces", 1) > 1 else []
    if edits:
        raise RecipeError(
            f"got {edits[0]} with model_kwargs native=True; expected it with a network, whose nodes it changes: leave "
            "one of them out, or do it in the module"
        )
    module, _ = _object(values, data, seed)
    if framework_of(module) != "pytorch":
        raise RecipeError(
            f"model_kwargs: got native=True and a {type(module).__name__}; expected a torch.nn.Module: leave native out"
        )
    importer = load_importer("pytorch")
    example = _example(values, data, seed)
    names = list(example) if isinstance(example, dict) else [data.input_name]
    return load_backend("pytorch").from_native(
        importer.private_copy(module),
        tuple(example.values()) if isinstance(example, dict) else example,
        loss=importer.LOSSES[_native_loss(values, data)],
        input_names=names,
        label_name=data.label_name,
        device=values["executor_kwargs"].get("device"),
    )


def _native_loss(values: Mapping[str, Any], data: Dataset) -> str:
    task = make_task(values, data)
    if isinstance(task, Classification):
        return task.kind
    if type(task) is TASKS["regression"]:
        return "mean_squared_error"
    raise RecipeError(
        f"got model_kwargs native=True with task {task.name!r}, whose loss is made of network nodes; expected "
        "classification or regression: leave native out, and the module is converted"
    )


def _network(values: Mapping[str, Any], data: Dataset, seed: int) -> Network:
    source, args, kwargs = values["model"], values["model_args"], dict(values["model_kwargs"])
    if isinstance(source, Network):
        return source.copy()
    is_path = isinstance(source, (str, os.PathLike)) and (str(source).endswith(".onnx") or os.sep in str(source))
    is_folder = isinstance(source, (str, os.PathLike)) and is_saved_model(source)
    if is_path and not is_folder:
        check_call("model", Network.from_onnx, 1, args, kwargs)
        return Network.from_onnx(source, *args, **kwargs)
    if isinstance(source, str) and not is_folder:
        from deep500.networks import create

        return create(source, None, *args, **{**_known(values, data, seed), **kwargs})
    model, choices = _object(values, data, seed)
    return model if isinstance(model, Network) else as_network(model, _example(values, data, seed), **choices)


def _object(values: Mapping[str, Any], data: Dataset, seed: int) -> tuple[Any, dict[str, Any]]:
    """The recipe's model, made if it is a class or a function, and what decides about its conversion."""
    source, args, kwargs = values["model"], values["model_args"], dict(values["model_kwargs"])
    choices = {name: kwargs.pop(name) for name in (*CHOICES, NATIVE) if name in kwargs and not _of_own(values, name)}
    choices.pop(NATIVE, None)
    if is_model(source) or isinstance(source, (str, os.PathLike)):
        check_call("model", as_network, 2, args, {**choices, **kwargs})
        return source, choices
    if not callable(source):
        raise RecipeError(
            f"model: got {source!r}; expected a zoo name, an ONNX file, a Network, a framework's object or a callable"
        )
    known = _known(values, data, seed)
    offered = {name: value for name, value in known.items() if accepts(source, name) and name not in kwargs}
    check_call("model", source, 0, args, {**offered, **kwargs})
    with seeded(seed):
        model = source(*args, **offered, **kwargs)
    model = model[0] if isinstance(model, tuple) and isinstance(model[0], Network) else model
    if not is_model(model):
        raise RecipeError(
            f"model: got {type(model).__name__} from {describe(source)}; expected a deep500 Network or a model of "
            "PyTorch, Keras, TensorFlow, JAX or ONNX"
        )
    return model, choices


def _of_own(values: Mapping[str, Any], name: str) -> bool:
    """Whether the recipe's class or function takes a keyword itself that would else be ours."""
    source = values["model"]
    if is_model(source) or not callable(source):
        return False
    return name in (parameters(source) or {})


def _known(values: Mapping[str, Any], data: Dataset, seed: int) -> dict[str, Any]:
    """Keywords that callables are offered; the shape is that of a sample after the recipe's preprocessing."""
    shape = data.shape
    if values["preprocessing"] and shape is not None:
        sample = _preprocessed(values, data, seed).get(data.input_name)
        shape = shape if sample is None else tuple(sample.shape[1:])
    known = {"classes": data.classes, "shape": shape, "seed": seed}
    return {name: value for name, value in known.items() if value is not None}


def _preprocessed(values: Mapping[str, Any], data: Dataset, seed: int) -> Mapping[str, Any]:
    """Two samples of the data, after the recipe's preprocessing."""
    batch, rng = data[np.arange(2) % len(data)], np.random.default_rng(seed)
    for transform in values["preprocessing"]:
        batch = transform(batch, rng)
    return batch


def _example(values: Mapping[str, Any], data: Dataset, seed: int) -> Any:
    """Two preprocessed samples: an array, or a dict where samples have several."""
    batch = _preprocessed(values, data, seed)
    arrays = {name: array for name, array in batch.items() if name != data.label_name}
    return arrays if len(arrays) != 1 else next(iter(arrays.values()))


def _fit_input(network: Network, data: Dataset) -> Network:
    """Rename the network's only data input to the data set's name for it."""
    free = [name for name in network.inputs if name != data.label_name]
    if len(free) == 1 and free[0] != data.input_name and not network.has_value(data.input_name):
        descriptor = network.inputs[free[0]]
        network.add_input(data.input_name, descriptor.shape, descriptor.dtype or "float32")
        network.replace_value(free[0], data.input_name)
        network.remove_input(free[0])
    return network
