"""Workloads, one folder each; other packages add their own through an entry point.

A folder's ``__init__`` describes the workload without torch; its code is loaded when it runs.
"""
