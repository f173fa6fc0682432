"""Networks of a user's own model that runs as it is (``from_native``), without conversion to operators.

Its network is one node that stands for the model and one for the loss, so that optimizers, trainers, metrics and
checkpoints work. There is nothing in it to edit, export or rewrite, so all of that is refused here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from deep500.errors import InputError, NetworkError, UnsupportedOperator
from deep500.networks.execution.bound import BoundNetwork
from deep500.networks.execution.differentiating import DifferentiatingExecutor
from deep500.networks.execution.input_check import InputCheck
from deep500.networks.losses import find_loss, gradient_name
from deep500.networks.network import Network, Parameter
from deep500.tensors import TensorDescriptor


@dataclass(frozen=True, kw_only=True)
class NativeNames:
    """Names in the network that stands for a native model; its loss is called ``"loss"``.

    Attributes:
        input_names: of the model's arguments, in order.
        label_name, output_name: of the label and of the model's result.
    """

    input_names: Sequence[str] = ("input",)
    label_name: str = "label"
    output_name: str = "output"


def named_examples(example_inputs: Any, names: Sequence[str]) -> dict[str, Any]:
    """Example inputs by name; one that is no tuple or list is the only one.

    Raises:
        InputError: another number than of names, or a loss in their place.
    """
    if callable(example_inputs):
        kind = getattr(example_inputs, "__name__", type(example_inputs).__name__)
        raise InputError(
            f"got {kind} in the place of the example inputs; expected arrays, the batch as first axis: write "
            f"from_native(model, example_inputs, loss={kind})"
        )
    examples = tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    if len(examples) != len(names):
        raise InputError(
            f"got {len(examples)} example inputs and names {tuple(names)}; expected one name for each: pass input_names"
        )
    return dict(zip(names, examples, strict=True))


def not_one_tensor(subject: str, result: Any) -> InputError:
    """For a model whose example run gave something else than one tensor."""
    return InputError(
        f"got a {subject} that returns {type(result).__name__}; expected one tensor: wrap it in one that picks it"
    )


def batched(dtype: str, shape: Sequence[int]) -> TensorDescriptor:
    """The descriptor of an example's dtype and shape for any batch size."""
    return TensorDescriptor(dtype, ("N", *shape[1:]))


def sketch(
    name: str,
    node: tuple[str, str],
    inputs: Mapping[str, TensorDescriptor],
    parameters: Mapping[str, Parameter],
    outputs: Mapping[str, TensorDescriptor],
) -> Network:
    """A network of one node that stands for a model.

    Args:
        name: of the network and its node.
        node: its operator type and domain.
        inputs: of the model.
        parameters: trained where they say so.
        outputs: of the model.
    """
    network = Network(name)
    for value, described in inputs.items():
        network.add_input(value, described.shape, described.dtype or "float32")
    network.put_parameters(parameters)
    network.add_node(node[0], [*inputs, *parameters], list(outputs), name=name, domain=node[1])
    network.declare(outputs)
    for value in outputs:
        network.add_output(value)
    return network


def add_native_loss(network: Network, label: str, described: TensorDescriptor | None) -> Network:
    """The sketch with a node that stands for the loss of its only output and a label; the loss is called ``"loss"``.

    A label of None is one for a loss of the user's own, which makes of it what it likes.
    """
    (output,) = network.outputs
    if described is None:
        network.inputs[label] = TensorDescriptor(None, None)
    else:
        network.add_input(label, described.shape, described.dtype or "int64")
    network.add_node("Loss", [output, label], ["loss"], name="loss", domain=network.nodes[0].domain)
    network.add_output("loss")
    return network


def refuse_edit(self: NativeNetwork, *args: Any, **kwargs: Any) -> NoReturn:
    """Raise NetworkError: it stands for every method of a native network that edits or exports."""
    cure = self.cure or f"edit the {self.subject} itself, or build the network with deep500.networks and use from_model"
    raise NetworkError(
        f"got an edit or an export of a network that stands for a native {self.subject}; expected a Network of "
        f"operators: {cure}"
    )


class NativeNetwork(BoundNetwork):
    """The network of a native model: names, descriptors and tensors, but no operators to edit.

    Comes before the backend's own class among the bases.

    Attributes:
        subject: what the framework calls its models.
        cure: what to do instead of an edit, if it is not to edit the model.
    """

    subject: ClassVar[str] = "model"
    cure: ClassVar[str] = ""

    add_input = add_parameter = set_parameter = add_node = remove_node = replace = add_edge = remove_edge = refuse_edit
    replace_value = add_output = remove_output = remove_parameter = remove_input = refuse_edit
    to_onnx = with_gradient = refuse_edit

    def gradient(self, loss: str = "loss", quantization: str | None = None) -> list[tuple[str, str]]:
        """Every trainable parameter and the name of its gradient."""
        find_loss(self, loss)
        return [(name, gradient_name(name)) for name in self.trainable()]


class NativeExecution(DifferentiatingExecutor):
    """An executor around a native model with a loss. Comes before the backend's own class among the bases.

    A backend supplies :meth:`build`, and its ``__init__`` runs the model on examples and calls :meth:`begin`.

    Attributes:
        network: the model's output and the loss are its outputs; the label is its last input.
        recompute_by_hand: what the framework offers in the place of a checkpointing plan.
    """

    network: NativeNetwork
    recompute_by_hand: ClassVar[str] = ""

    def begin(self, network: Network) -> None:
        """Take the network that stands for the model; ``tensors`` are the model's own."""
        self.network = self.network_type(network, self)  # type: ignore[assignment]
        self._sources, self._version = dict(self.network.parameters), self.network.version

    def _forget_training(self) -> None:
        refuse_plan(
            self.network.subject,
            f"build it with deep500.networks and use from_model, or call {self.recompute_by_hand} in the "
            f"{self.network.subject}",
        )

    def inputs_for(self, outputs: Collection[str]) -> tuple[list[str], InputCheck]:
        """The inputs that outputs need, and the check of them; raises NetworkError for another output."""
        network = self.network
        output, loss = network.outputs
        for name in outputs:
            if name not in (output, loss):
                raise NetworkError(
                    f"got output {name!r}; expected {output!r} or {loss!r}, all that a native {network.subject} has"
                )
        *names, label = network.inputs
        inputs = [*names, label] if loss in outputs else names
        return inputs, InputCheck({name: network.inputs[name] for name in inputs}, [label])


def refuse_plan(subject: str, cure: str) -> NoReturn:
    """Raise UnsupportedOperator: there are no regions in a native model."""
    raise UnsupportedOperator(
        f"got a checkpointing plan for a native {subject}; expected a Network of operators, of which some can run "
        f"again: {cure}"
    )
