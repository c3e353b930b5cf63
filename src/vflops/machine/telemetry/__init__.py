"""Telemetry of the machine during a run: power, utilisation, memory, network, disks.

Sensors are read outside of the training process, by default once a second. Each series names its
source, and a missing sensor is recorded as absent with the reason.
"""
