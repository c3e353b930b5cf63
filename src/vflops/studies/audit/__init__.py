"""Audits: parts of a recorded training are trained again and compared with its log."""
