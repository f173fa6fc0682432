"""Level 1: networks, ONNX graphs that one can edit, and the executor interface that every backend implements."""

from typing import TYPE_CHECKING

from deep500.faces import load_when_used

if TYPE_CHECKING:
    from deep500.networks.drawing import undrawn as undrawn
    from deep500.networks.dtype import to_dtype as to_dtype
    from deep500.networks.emit import Emitter as Emitter
    from deep500.networks.execution.bound import BoundNetwork as BoundNetwork
    from deep500.networks.execution.executor import GraphExecutor as GraphExecutor
    from deep500.networks.execution.input_check import InputCheck as InputCheck
    from deep500.networks.execution.modes import training_network as training_network
    from deep500.networks.gradients.autodiff import gradient_names as gradient_names
    from deep500.networks.gradients.autodiff import with_gradient as with_gradient
    from deep500.networks.gradients.rules import GradContext as GradContext
    from deep500.networks.gradients.rules import gradient_rule as gradient_rule
    from deep500.networks.losses import LOSSES as LOSSES
    from deep500.networks.losses import add_loss as add_loss
    from deep500.networks.losses import gradient_name as gradient_name
    from deep500.networks.network import Network as Network
    from deep500.networks.network import Parameter as Parameter
    from deep500.networks.node import Node as Node
    from deep500.networks.objects import as_network as as_network
    from deep500.networks.rewrite import replace_operator as replace_operator
    from deep500.networks.ties import merged_parameters as merged_parameters
    from deep500.networks.ties import untie as untie
    from deep500.networks.zoo import create as create
    from deep500.networks.zoo import model_names as model_names
    from deep500.networks.zoo import model_options as model_options

load_when_used(__name__)
