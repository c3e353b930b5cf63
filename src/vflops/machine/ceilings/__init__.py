"""The ceilings of the machine: how fast its parts are when nothing else limits them.

    plan (what, in which order) → measure (one Measurement per item) → table (the results)

One file per benchmark: ``gemm``, ``convolution``, ``memory_bandwidth``, ``host_transfer``,
``allreduce``, ``storage_speed``. Those that compute share ``setting_search``: try settings, check
each result against a higher-precision reference, time the best again.
"""
