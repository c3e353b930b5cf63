"""The run folder: what was measured, as plain files that stay readable.

Measuring needs the machine under test. Everything after it (score, check, report) is a pure
function of this folder and needs no torch.
"""
