"""Thirty exported models through ``deep500 optimize``: ``python -m tests.benchmarks.exported [--only REGEX]``.

Small models of many kinds, exported as their users export them (dynamic sizes, float16, quantized, functions of another
domain, ONNX Runtime's fused operators, control flow, random numbers, one weight for two nodes), are optimized for ONNX
Runtime by the command. What is written must open in a bare session, equal the original there and (by the command's
own check) in float64, and be faster or the same bytes. A table is printed. Exit code: 0 all are, 1 some are not.
"""
