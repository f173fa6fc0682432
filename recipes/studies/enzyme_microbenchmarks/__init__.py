"""Seven C++ kernels differentiated by Enzyme, by hand and by PyTorch: what optimising before gains."""
