"""ONNX files in and out: reading any opset up to the newest, writing a chosen one."""
