"""Runs the command line for ``python -m vflops``."""

from vflops.cli import main

main()
