"""Gradients as a transformation of networks: one rule per operator, which emits ONNX nodes.

* :mod:`~deep500.networks.gradients.autodiff` walks a network backwards and applies the rules;
* :mod:`~deep500.networks.gradients.rules` holds the rules by family, and what a rule sees of its node;
* :mod:`~deep500.networks.gradients.expansion` rewrites operators that have no rule, recurrent ones by
  :mod:`~deep500.networks.gradients.unrolling`;
* :mod:`~deep500.networks.gradients.gradient_nodes` gives ONNX's own ``Gradient`` operator its meaning.
"""
