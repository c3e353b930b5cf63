"""Describes the system under test in nine layers of facts; absent facts have a reason.

Results are published, so no host name, user name, address or serial number is recorded. Only the
environment variables and files that are named in the code are read.
"""
