"""Workloads: what is trained, one folder each; a folder or an entry point is all that one needs.

A folder's ``__init__`` describes the workload without torch; its code is loaded when it runs.
"""
