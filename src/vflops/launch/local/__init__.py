"""The back end of processes on this machine."""
