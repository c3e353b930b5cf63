"""Language models are trained, resumed and combined by the same loop as other workloads."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.support.data_text import docstrings
from tests.support.train_runs import (
    evaluations,
    losses,
    planned,
    run_ranks,
    start_ranks,
    weights,
)
from vflops.data.text.pack_text import TextPacking, pack
from vflops.data.text.text_folder import TextFolder, TextFormat
from vflops.data.text.tokenizer import TextTokenizer
from vflops.errors import UsageError
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import Resumed
from vflops.record.readout.contents import Contents
from vflops.results.check.content_rules import check_contents
from vflops.results.check.data_rules import check_contradictions, check_leaks
from vflops.results.check.graph_rules import check_rebuilt_graphs

SHORT = ("synthetic.train=16384", "synthetic.validation=16384", "train.warmup_epochs=0")
STEPS = -(-(16383 // 64) // 32)
"""Steps of an epoch: windows of 64 tokens in batches of 32, the last of which is padded."""


def language_run(directory: Path, *assignments: str) -> RunFolder:
    return planned(directory, *SHORT, *assignments, workload="language-model")


def test_kill_9_then_resume_gives_the_same_weights_bit_by_bit(tmp_path: Path) -> None:
    whole = language_run(tmp_path / "whole")
    undisturbed = losses(run_ranks(whole))
    assert len(undisturbed) == 2 * STEPS
    folder = language_run(tmp_path / "killed")
    processes = start_ranks(folder, 1, KILL_AFTER=str(STEPS + 3))
    while processes.running():
        time.sleep(0.02)
    assert processes.poll() == [-signal.SIGKILL]
    log = run_ranks(folder)
    assert [e.payload(Resumed).step for e in log.events if e.kind == "resumed"] == [STEPS]
    assert losses(log) == undisturbed[STEPS:]
    assert weights(folder) == weights(whole)
    verdict, *_ = check_rebuilt_graphs(Contents(folder))
    assert verdict == "pass"  # the graph that the run captured follows from its settings


def test_real_text_without_a_download_is_learned(tmp_path: Path) -> None:
    names = ("csv", "json", "logging", "random", "textwrap")
    documents = docstrings(tmp_path / "docs", names)
    with pytest.raises(UsageError, match="none of which is for val with --set held_out=") as caught:
        language_run(tmp_path / "few", f"data={documents}", "target=0.06", "held_out=0.0001")
    assert "vflops data pack" in str(caught.value.hint)
    packing = TextPacking(TextTokenizer.open("bytes"), 0.25, TextFormat(separator="\n\n"))
    packed = pack(TextFolder.open(documents), tmp_path / "packed", packing, workers=1)
    own = (f"data={packed.path}", "target=0.06", "train.warmup_epochs=0.2")
    with pytest.raises(UsageError, match="there is no target quality for your own text"):
        language_run(tmp_path / "no-target", own[0])
    folder = language_run(tmp_path / "run", *own)
    log = run_ranks(folder)
    record = JobRecord.read(folder.job_file(1))
    assert record.data.synthetic is False
    assert record.data.facts["vocabulary"] == 256
    first, *_, last = evaluations(log)
    assert last.quality > first.quality > 1 / 256
    contents = Contents(folder)
    # Text has no labels, and its documents are held out by their hashes.
    assert check_contradictions(contents).verdict == "not applicable"
    assert check_leaks(contents).verdict == "pass"
    assert check_contents(contents).verdict == "pass"
