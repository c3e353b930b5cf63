"""The ceilings of the machine: how fast its parts are when nothing else is in the way.

    plan (what, in which order) → run (one Measurement an item) → table (what was found)

One file a benchmark: ``gemm``, ``convolution``, ``memory``, ``transfer``, ``allreduce``,
``storage``. Those that compute share ``search``: try settings, check each result against a
higher-precision reference, time the best again.
"""
