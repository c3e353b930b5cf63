"""The system under test in nine layers: always read from the system; what is absent has a reason.

Results are published, so nothing here records a host name, a user name, an address, a serial
number or the whole environment: only variables and files that the code names are read.
"""
