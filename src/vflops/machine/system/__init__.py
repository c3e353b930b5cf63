"""The system under test in nine layers: read from it, never typed, and absent with a reason.

Results get published, so nothing here records a host name, a user name, an address, a serial
number or the environment: only variables and files that are named in the code are read.
"""
