"""ONNX's own backend suite as the judge of every backend: ``python -m tests.conformance --help``.

``suite`` judges one case, ``workers`` gives each backend a process of its own and survives its crashes, ``known`` holds
what is excused and why, ``ledger`` what may not get worse, ``page`` writes docs/conformance.md.
"""
