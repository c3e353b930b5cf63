"""Tests that sign need ``ssh-keygen``; in CI a missing one is a failure, not a skip."""

from __future__ import annotations

import os
import shutil

import pytest

MAY_SKIP = shutil.which("ssh-keygen") is None and not os.environ.get("CI")
needs_ssh_keygen = pytest.mark.skipif(MAY_SKIP, reason="no ssh-keygen here")
