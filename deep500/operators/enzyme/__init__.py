"""Gradients of C++ operators by Enzyme: a compiler pass that differentiates the optimised forward."""
