"""The ceilings of the machine: the peak speeds of its parts, which bound any workload.

    ceiling_plan (the items, in order) → measure (one Measurement per item) → ceiling_table

One file per benchmark: ``gemm``, ``convolution``, ``memory_bandwidth``, ``host_transfer``,
``allreduce``, ``storage_speed``. Benchmarks that compute share ``setting_search``, which tries
settings, checks each result against a reference of higher precision, and times the best again.
"""
