"""The run folder: the record of a run as plain files.

Measuring needs the machine under test. All later steps (score, check, report) depend only on this
folder and do not need torch.
"""
