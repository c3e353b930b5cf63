"""Workloads: one folder per workload; a new one needs only a folder or an entry point.

A folder's ``__init__`` describes the workload without torch; its code is loaded when it runs.
"""
