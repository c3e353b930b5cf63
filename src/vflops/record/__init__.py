"""The run folder: what was measured, as plain files that anyone can read on any day.

Everything up to here needs the machine under test. Everything after it (score, check, report)
is a pure function of this folder and needs no torch.
"""
