"""Telemetry of the machine during a run: power, utilisation, memory, network, disks.

It is read outside of the training process, once a second; each series names its source, and a
missing sensor is recorded as absent with the reason.
"""
