"""Kernels of this package's own, for accelerators that Triton compiles for."""
