"""The nodes of a run, checked in a minute before it begins."""
