"""Triton kernels, and the operators that launch them."""
