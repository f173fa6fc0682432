"""Gradients as a transformation of networks: one rule per operator, which emits ONNX nodes."""
