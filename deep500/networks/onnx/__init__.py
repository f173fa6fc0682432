"""ONNX files in and out.

* :mod:`~deep500.networks.onnx.load` reads models of any opset up to the newest, with every check;
* :mod:`~deep500.networks.onnx.normalise` brings the graphs of other exporters into the form that networks have;
* :mod:`~deep500.networks.onnx.dump` writes models, at the lowest opset from 21 on that they allow or a chosen one.
"""
