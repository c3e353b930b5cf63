"""The cache of users who cannot write to it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vflops.errors import UsageError, VflopsError
from vflops.record.files.cache import cache_folder, cached_folder

UNWRITABLE = Path("/sys")
"""Even root cannot create a file there."""


def test_a_home_that_cannot_be_written_to_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("VFLOPS_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(UNWRITABLE))
    with pytest.raises(VflopsError, match=f"cannot write {UNWRITABLE}") as error:
        cached_folder("data", Path.mkdir)
    assert "export VFLOPS_CACHE=" in str(error.value.hint)


def test_a_cache_that_cannot_be_written_to_serves_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VFLOPS_CACHE", str(tmp_path))
    cached_folder("data", Path.mkdir)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write to any folder
    assert cached_folder("data", Path.mkdir) == cache_folder() / "data"
    with pytest.raises(UsageError, match="cannot write to the cache") as error:
        cached_folder("other", Path.mkdir)
    assert "export VFLOPS_CACHE=" in str(error.value.hint)
