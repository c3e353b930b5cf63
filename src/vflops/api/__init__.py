"""The interface for Python scripts and notebooks: what ``import vflops`` offers."""

from vflops.api.comparing import Comparison, compare
from vflops.api.model_count import Count, count
from vflops.api.run import Run
from vflops.errors import VflopsError

__all__ = ["Comparison", "Count", "Run", "VflopsError", "compare", "count"]
