"""Judge a backend by the suite that ONNX ships for backends."""
