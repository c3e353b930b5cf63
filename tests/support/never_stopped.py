"""A rank that nobody asks to stop."""

from __future__ import annotations


class NeverStopped:
    """A source of requests to stop that never has one."""

    signal: str | None = None

    def set_unsaved_work(self, unsaved: bool) -> None:
        """Do nothing."""
