"""DeepBench's convolutions, matrix products and recurrent layers: time and FLOP/s in every backend."""
