"""What the machine did while a run was going on: power, utilisation, memory, network, disks.

Read from outside the training process, once a second; each series names its source, and a sensor
that is not there is absent with the reason.
"""
