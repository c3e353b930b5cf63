"""Commands that write, on a disk that is full: an error with a remedy, and no traceback."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.data_images import image_folder
from tests.support.data_text import text_folder
from vflops.record.folder import RunFolder

Vflops = Callable[..., "subprocess.CompletedProcess[str]"]


def fill(disk: Path) -> None:
    """Leave no block on a disk."""
    with (disk / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
        while True:
            ballast.write(bytes(4096))


COMMANDS: dict[str, tuple[str, ...]] = {
    "pack images": ("data", "pack", "images", "{disk}/packed", "--profile", "tiny"),
    "pack text": ("data", "pack", "text", "{disk}/packed"),
    "synth images": ("data", "synth", "image-classification", "{disk}/drawn", "--train", "40"),
    "synth text": ("data", "synth", "language-model", "{disk}/drawn", "--train", "50000"),
    "run": ("run", "image-classification", "--profile", "tiny", "--out", "{disk}/runs"),
    "micro": ("micro", "gemm", "--budget", "1", "--out", "{disk}/runs"),
    "archive": ("archive", "{run}", "--out", "{disk}/run.tar.gz"),
    "export": ("export", "csv", "{run}", "--out", "{disk}/run.csv"),
    "roofline": ("roofline", "{run}", "--out", "{disk}/roofline.html"),
    "history": ("history", "runs", "--page", "{disk}/history.html"),
    "ranking": ("ranking", "{run}", "--site", "{disk}/site"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_no_traceback(
    vflops: Vflops, trained_folder: RunFolder, tmp_path: Path, small_disk: Path, command: str
) -> None:
    image_folder(tmp_path / "images", train=16, val=4)
    text_folder(tmp_path / "text", 100)
    fill(small_disk)
    values = {"disk": str(small_disk), "run": str(trained_folder.path)}
    done = vflops(*(word.format(**values) for word in COMMANDS[command]))
    assert "Traceback" not in done.stderr, done.stderr
    # The trends are printed anyway; only the page is missing.
    assert done.returncode in ((0,) if command == "history" else (2, 3)), done.stderr
    assert "free" in done.stderr, done.stderr


def test_packing_a_folder_onto_itself_does_not_advise_to_remove_it(
    vflops: Vflops, tmp_path: Path
) -> None:
    image_folder(tmp_path / "images", train=16, val=4)
    text_folder(tmp_path / "text", 100)
    for source in ("images", "text"):
        refused = vflops("data", "pack", source, source)
        assert refused.returncode == 2
        assert f"{source} is the folder to pack" in refused.stderr
        assert "remove" not in refused.stderr
