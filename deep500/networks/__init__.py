"""Level 1: networks, ONNX graphs that one can edit, and the executor interface that every backend implements."""

from deep500.networks.dtype import to_dtype
from deep500.networks.emit import Emitter
from deep500.networks.execution.executor import BoundNetwork, GraphExecutor, InputCheck
from deep500.networks.execution.modes import training_network
from deep500.networks.gradients.autodiff import gradient_names, with_gradient
from deep500.networks.gradients.rules import GradContext, gradient_rule
from deep500.networks.losses import LOSSES, add_loss, gradient_name
from deep500.networks.network import Network, Parameter
from deep500.networks.node import Node
from deep500.networks.objects import as_network
from deep500.networks.rewrite import replace_operator
from deep500.networks.ties import merged_parameters, untie
from deep500.networks.zoo import create, model_names, model_options

__all__ = [
    "LOSSES",
    "BoundNetwork",
    "Emitter",
    "GradContext",
    "GraphExecutor",
    "InputCheck",
    "Network",
    "Node",
    "Parameter",
    "add_loss",
    "as_network",
    "create",
    "gradient_name",
    "gradient_names",
    "gradient_rule",
    "merged_parameters",
    "model_names",
    "model_options",
    "replace_operator",
    "to_dtype",
    "training_network",
    "untie",
    "with_gradient",
]
