"""Measures how fast a computer really trains AI, in valid FLOPS."""

__version__ = "0.1.0"
