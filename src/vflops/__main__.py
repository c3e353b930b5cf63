"""``python -m vflops`` is the command ``vflops``."""

from vflops.cli import main

main()
