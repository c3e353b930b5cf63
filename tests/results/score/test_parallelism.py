"""How ranks shared a model and what they sent: the same words in score, report and exports."""

from __future__ import annotations

import csv
from io import StringIO
from typing import Any

import pytest

from tests.support.shared_runs import MIXED, exchange, shared_job, shared_run, stages
from tests.support.trained_runs import HandmadeRun, Note
from vflops.errors import FolderError
from vflops.publish.export.csv_table import runs_csv
from vflops.publish.report.report_page import write_report
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import JobRearranged
from vflops.record.readout.contents import Contents
from vflops.results.score import score_tables
from vflops.results.score.scoring import score

NAMES = ("ranks", "stages", "bubble", "traffic", "exchange")


def rows(run: HandmadeRun, *notes: Note, ranks: int = 4, **train: Any) -> dict[str, str]:
    """What the score says of how the ranks shared the model."""
    folder = shared_run(run, shared_job(ranks, **train), *notes)
    (training,) = score(Contents(folder)).trainings
    return {name: text for name, text in score_tables.training_rows(training) if name in NAMES}


def test_copies_of_a_pipeline_are_told_in_five_rows(handmade_run: HandmadeRun) -> None:
    found = rows(handmade_run, stages(), exchange(), **MIXED)
    assert found == {
        "ranks": "4 ranks, mixed: 2 copies × 2, pipeline parallel: each has some layers",
        "stages": "2, with 75.0 %, 25.0 % of the operations; 5 micro-batches by 1f1b",
        "bubble": "25.0 % of the ranks' time in steps, 16.7 % in theory",
        "traffic": "2.00 MB per step by all ranks (500 kB near, 1.50 MB far), "
        "25.0 % of the 8.00 MB of an all-reduce in fp32",
        "exchange": "all-reduce in int8 over gloo; all-gather: ring; all-to-all: pairs",
    }


WITHIN = {
    "mode": "pipeline",
    "precision": "bf16",
    "near": 2,
    "algorithm": "send: pairs",
    "bytes_near": 30_000_000,
    "bytes_far": 0,
    "elements": None,
}


def test_ranks_of_a_copy_and_copies_are_told_apart(handmade_run: HandmadeRun) -> None:
    folder = shared_run(handmade_run, shared_job(**MIXED), exchange(**WITHIN), exchange())
    (training,) = score(Contents(folder)).trainings
    found = dict(score_tables.training_rows(training))
    assert found["traffic"].startswith("2.00 MB per step by all ranks")
    assert found["traffic in copies"] == "1.00 MB per step by all ranks (1.00 MB near, 0 B far)"
    assert found["exchange in copies"] == "pipeline in bf16 over gloo; send: pairs"
    (row,) = csv.DictReader(StringIO(runs_csv([Contents(folder)])))
    assert (row["communication"], row["sent a step [B]"]) == ("all-reduce int8", "3000000.0")


def test_without_copies_it_is_what_ranks_of_one_sent(handmade_run: HandmadeRun) -> None:
    pipeline = {"mode": "pipeline"}
    found = rows(handmade_run, exchange(**WITHIN), ranks=2, accumulate=5, parallel=pipeline)
    assert found["traffic"] == "1.00 MB per step by all ranks (1.00 MB near, 0 B far)"
    assert found["exchange"] == "pipeline in bf16 over gloo; send: pairs"


def test_what_is_not_known_has_its_reason(handmade_run: HandmadeRun) -> None:
    unseen = "the host does not see when an accelerator computes"
    many = stages(operations=[1, 2, 3, 4] * 3, bubble=None, reason=unseen)
    silent = {"algorithm": None, "reason": "nccl does not say"}
    sent = exchange(mode="torus", near=2, backend="nccl", elements=None, **silent)
    found = rows(handmade_run, many, sent, **MIXED)
    assert found["stages"].startswith("12, with 3.3 % to 13.3 % of the operations")
    assert found["bubble"] == f"16.7 % in theory; not measured: {unseen}"
    assert found["traffic"] == "2.00 MB per step by all ranks (500 kB near, 1.50 MB far)"
    way = "torus in int8, rows of 2 over nccl; algorithm not known: nccl does not say"
    assert found["exchange"] == way


@pytest.mark.parametrize(
    ("parallel", "words"),
    [
        ({}, "data parallel: each has the whole model and a share of a batch"),
        ({"mode": "sharded"}, "sharded data: each keeps a part of every layer and has a share"),
        ({"mode": "model", "split": "tensor"}, "model parallel: each has some channels"),
    ],
)
def test_every_mode_is_named(
    handmade_run: HandmadeRun, parallel: dict[str, str], words: str
) -> None:
    found = rows(handmade_run, ranks=2, parallel=parallel)
    assert list(found) == ["ranks"] and found["ranks"].startswith(f"2 ranks, {words}")


def test_stages_of_a_rank_are_added_up(handmade_run: HandmadeRun) -> None:
    plain = {"precision": "fp32", "algorithm": "all-reduce: ring"}
    found = rows(handmade_run, exchange(**plain), exchange(**plain), ranks=2)
    assert found["traffic"] == "4.00 MB per step by all ranks (1.00 MB near, 3.00 MB far)"


def test_one_rank_says_nothing(handmade_run: HandmadeRun) -> None:
    assert rows(handmade_run, ranks=1) == {}


def test_nobody_knows_how_a_command_shares_its_work(handmade_run: HandmadeRun) -> None:
    folder = shared_run(handmade_run, shared_job(2), torch=None)
    (training,) = score(Contents(folder)).trainings
    assert training.shared is None


def test_a_training_that_went_on_in_another_way_is_told_as_it_is_now(
    handmade_run: HandmadeRun,
) -> None:
    folder = shared_run(handmade_run, shared_job(2))
    settings = {"train": {"ranks": 2, "parallel": {"mode": "sharded"}}}
    change = JobRearranged(job=1, ranks=2, settings=settings, changes=("parallel.mode",))
    with folder.start_attempt(job=0) as log:
        log.write("job-rearranged", **change.model_dump(mode="json"))
    (training,) = score(Contents(folder)).trainings
    assert training.shared is not None and training.shared.settings.mode == "sharded"


def test_settings_that_are_none_are_a_fault_of_the_folder(handmade_run: HandmadeRun) -> None:
    folder = shared_run(handmade_run, shared_job(2, parallel={"mode": "telepathy"}))
    with pytest.raises(FolderError, match=r"has no valid train\.parallel: mode"):
        score(Contents(folder))


def test_products_of_8_bits_are_named_with_what_they_cost(handmade_run: HandmadeRun) -> None:
    precision = {"precision": "mixed-fp8", "ceiling_precision": "fp8", "layers_of_8_bits": 36}
    folder = shared_run(handmade_run, shared_job(2), **precision)
    (training,) = score(Contents(folder)).trainings
    found = dict(score_tables.training_rows(training))["precision"]
    assert "36 linear layers and 1×1 convolutions in fp8" in found
    assert "in the quality factor, 1.611" in found
    assert found.endswith("vflops scale image-classification --precisions fp32,mixed-fp8")


def page_of(folder: RunFolder) -> str:
    write_report(Contents(folder))
    return folder.report_file.read_text()


def test_the_page_and_the_table_tell_it_too(handmade_run: HandmadeRun) -> None:
    folder = shared_run(handmade_run, shared_job(**MIXED), stages(), exchange())
    page = page_of(folder)
    assert page.count("How the ranks shared the model") == 1
    assert "5 micro-batches by 1f1b" in page and "25.0 % of the 8.00 MB" in page
    (row,) = csv.DictReader(StringIO(runs_csv([Contents(folder)])))
    assert (row["parallel mode"], row["communication"]) == ("mixed", "all-reduce int8")
    assert row["sent a step [B]"] == "2000000.0"


def test_the_page_of_one_rank_has_no_such_block(handmade_run: HandmadeRun) -> None:
    assert "How the ranks shared" not in page_of(shared_run(handmade_run, shared_job(1)))
