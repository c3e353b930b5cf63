"""Whether machines can find each other by name."""

from __future__ import annotations

import socket

import pytest


def resolves() -> bool:
    """Whether the name of this machine has an address."""
    try:
        socket.getaddrinfo(socket.gethostname(), None)
    except OSError:
        return False
    return True


needs_host_name = pytest.mark.skipif(
    not resolves(), reason=f"the host name {socket.gethostname()} cannot be resolved"
)
