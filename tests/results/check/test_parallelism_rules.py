"""Stages and exchanges that cannot be are found; 8 bits are for one paper and not the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch.distributed as dist

from tests.support.shared_runs import MIXED, exchange, shared_job, shared_run, stages
from tests.support.trained_runs import HandmadeRun, Note, course, resumed, started
from vflops.config.training import CEILING_PRECISIONS, TrainSettings
from vflops.record.log.events import Event
from vflops.record.readout.contents import Contents
from vflops.results.check import expected_traffic
from vflops.results.check.consistency import check_settings
from vflops.results.check.level import layer_of
from vflops.results.check.paper_rules import PaperRules
from vflops.results.check.parallelism_rules import parallelism_faults
from vflops.results.check.published_figures import HPCAI500_V2, HPCAI500_V3
from vflops.results.check.rule import Outcome
from vflops.workloads.automl import settings as automl

PARAMETERS = 1504
"""Of the graph of such a run, in tensors of 216, 8 and 1280."""


def changed(note: Note, **facts: Any) -> Note:
    return note[0], {**note[1], **facts}


GRADIENTS = exchange(
    near=2, bytes_near=30 * 3040, bytes_far=0, steps=30, elements=30 * 2 * PARAMETERS
)
"""Of two stages with 224 and 1280 numbers: 4 · (n/2 + 4) bytes each, a step."""
WITHIN = exchange(
    mode="pipeline",
    precision="fp32",
    near=2,
    algorithm="send: pairs",
    bytes_near=30 * 10 * 8000,
    bytes_far=0,
    elements=None,
)
STAGES = stages(operations=[14_000, 7_504])
PIPELINE = {"ranks": 2, "accumulate": 5, "parallel": {"mode": "pipeline"}}


def plain(ranks: int = 2, **facts: Any) -> Note:
    """What ranks with a copy each sent in 30 steps."""
    sent = {"precision": "fp32", "ranks": ranks, "near": ranks, "algorithm": "all-reduce: ring"}
    figures = {
        "bytes_near": 30 * 2 * (ranks - 1) * 4 * PARAMETERS,
        "bytes_far": 0,
        "elements": 30 * ranks * PARAMETERS,
    }
    return exchange(**{**sent, **figures, **facts})


def sharded(**facts: Any) -> Note:
    """The convolution and the norm are blocks, say, and the rest is gathered once."""
    how = "all-gather: ring; reduce-scatter: all-reduce by a ring"
    sent = 30 * 4 * (4 * 224 + 3 * 1280)
    figures = {"mode": "sharded", "elements": None, "algorithm": how, "bytes_near": sent}
    return plain(**{**figures, **facts})


TORUS = {"mode": "torus", "precision": "bf16"}
LEVELS = {"mode": "hierarchical", "precision": "int8"}
CHANNELS = {"mode": "mixed", "mesh": [2, 2], "within": "model", "split": "tensor"}
HONEST: dict[str, tuple[dict[str, Any], list[Note]]] = {
    "one": ({"ranks": 1}, []),
    "data": ({"ranks": 2}, [plain()]),
    # A ring of five does not pad: each sends 8/5 of the bytes, rounded down.
    "five": ({"ranks": 5}, [plain(5, bytes_near=30 * 5 * (8 * 4 * PARAMETERS // 5))]),
    "int8": (
        {"ranks": 2, "communication": {"precision": "int8"}},
        [exchange(near=2, bytes_near=30 * 3024, bytes_far=0, elements=30 * 2 * PARAMETERS)],
    ),
    "torus": (
        {"ranks": 4, "communication": TORUS},
        [
            plain(
                4,
                **TORUS,
                near=2,
                algorithm="all-gather: ring; all-reduce: ring; all-to-all: pairs",
                bytes_near=30 * 12_032,
                bytes_far=30 * 6_016,
            )
        ],
    ),
    "levels": (
        {"ranks": 4, "communication": LEVELS},
        [
            plain(
                4,
                **LEVELS,
                near=2,
                algorithm="all-gather: ring; all-to-all: pairs; broadcast: binomial tree; "
                "gather: pairs",
                bytes_near=30 * 6_040,
                bytes_far=30 * 3_024,
            )
        ],
    ),
    "powersgd": (
        {"ranks": 2, "communication": {"precision": "powersgd"}},
        # 1280 become (128 + 10) · 4; 8 × 27 is too small to gain.
        [plain(precision="powersgd", bytes_near=8 * (8 * 1504 + 22 * (224 + 552)))],
    ),
    "sharded": ({"ranks": 2, "parallel": {"mode": "sharded"}}, [sharded()]),
    "pipeline": (PIPELINE, [STAGES, WITHIN]),
    "mixed": (MIXED, [STAGES, WITHIN, GRADIENTS]),
    "channels": (
        {"ranks": 4, "parallel": CHANNELS},
        [
            changed(WITHIN, mode="model", algorithm="all-reduce: ring"),
            plain(bytes_near=30 * 8 * 2000, elements=30 * 2 * 2000),
        ],
    ),
}


def judged(run: HandmadeRun, mode: str, notes: Sequence[Note], **facts: Any) -> Outcome:
    """What is found in a training on a processor, unless ``facts`` say otherwise."""
    folder = shared_run(run, shared_job(**HONEST[mode][0]), *notes, **{"device": "cpu", **facts})
    return check_settings(Contents(folder))


@pytest.mark.parametrize("mode", HONEST)
def test_a_run_that_shared_as_it_was_told_passes(handmade_run: HandmadeRun, mode: str) -> None:
    outcome = judged(handmade_run, mode, HONEST[mode][1])
    assert (outcome.verdict, outcome.evidence) == ("pass", "1 job with the settings in run.json")


NCCL = {"backend": "nccl", "algorithm": None, "reason": "nccl does not say"}


def test_an_accelerator_has_a_library_of_its_own_and_a_bubble_that_nobody_sees(
    handmade_run: HandmadeRun,
) -> None:
    unseen = changed(STAGES, bubble=None, reason="the host does not see it")
    notes = [unseen, changed(WITHIN, **NCCL), changed(GRADIENTS, **NCCL)]
    assert judged(handmade_run, "mixed", notes, device="cuda").verdict == "pass"


@pytest.mark.parametrize(
    ("mode", "which", "facts", "words"),
    [
        ("mixed", 0, {"micro_batches": 50}, "micro-batches: 50, 5 configured"),
        ("mixed", 0, {"ranks": 4}, "ranks of a copy: 4, 2 configured"),
        ("mixed", 0, {"schedule": "gpipe"}, "schedule gpipe, 1f1b configured"),
        ("mixed", 0, {"operations": [1, 1, 1, 1]}, "stages: 4, 2 configured"),
        ("mixed", 0, {"operations": [1, 1]}, "operations of all stages: 2, 21483 to 21504 exp"),
        ("mixed", 0, {"operations": [21504, 0]}, "operations 0, some in every stage expected"),
        ("mixed", 0, {"bubble": 0.0}, "bubble 0.0, a measurement between 0 and 1 expected"),
        ("mixed", 0, {"bubble": None}, "bubble None, a measurement between 0 and 1 expected"),
        ("pipeline", 0, {"bubble_theory": 0.9}, "bubble_theory 0.9, 0.16666666666666666 expec"),
        ("mixed", 1, {"mode": "sharded"}, "a model shared by sharded, pipeline configured"),
        ("mixed", 1, {"ranks": 4}, "ranks that share one: 4, 2 configured"),
        ("mixed", 1, {"bytes_near": 1}, "bytes 1, a multiple of 300 expected"),
        ("mixed", 1, {"bytes_near": 0}, "bytes 0, a multiple of 300 expected"),
        ("mixed", 1, {"bytes_far": 300}, "bytes_far 300, 0 expected"),
        ("mixed", 1, {"elements": 5}, "elements 5, None expected"),
        ("mixed", 1, {"precision": "bf16"}, "sent in bf16, fp32 expected"),
        ("mixed", 2, {"precision": "fp32"}, "gradients sent in fp32, int8 configured"),
        ("mixed", 2, {"mode": "torus"}, "gradients averaged by torus, all-reduce configured"),
        ("mixed", 2, {"ranks": 4}, "copies of the model: 4, 2 configured"),
        ("mixed", 2, {"bytes_near": 30 * 3000}, "bytes_near 90000, 90720 to 91320 expected"),
        ("data", 0, {"bytes_near": 1}, "bytes_near 1, 360960 expected"),
        ("data", 0, {"steps": 100_000}, "steps 100000, 30 expected"),
        ("data", 0, {"elements": 10**15}, "elements 1000000000000000, 90240 expected"),
        ("data", 0, {"elements": None}, "elements None, 90240 expected"),
        ("data", 0, {"near": 1}, "near 1, 2 expected"),
        ("data", 0, {"algorithm": "magic"}, "algorithm magic, all-reduce: ring expected"),
        ("data", 0, {"backend": "nccl"}, "backend nccl, gloo expected"),
        ("five", 0, {"bytes_near": 1439999}, "bytes_near 1439999, 1440000 to 1444800 exp"),
        ("int8", 0, {"bytes_near": 30 * 3025}, "bytes_near 90750, 90720 expected"),
        ("torus", 0, {"bytes_far": 0}, "bytes_far 0, 180480 expected"),
        ("levels", 0, {"near": 4}, "near 4, 2 expected"),
        ("powersgd", 0, {"bytes_near": 360_960}, "bytes_near 360960, 232832 expected"),
        ("sharded", 0, {"bytes_near": 30 * 4 * 1504}, "bytes 180480, 541440 to 721920 exp"),
        ("channels", 1, {"elements": 0}, "elements 0, 90240 to 180480 expected"),
    ],
)
def test_a_figure_that_cannot_be_is_found(
    handmade_run: HandmadeRun, mode: str, which: int, facts: dict[str, Any], words: str
) -> None:
    notes = list(HONEST[mode][1])
    notes[which] = changed(notes[which], **facts)
    outcome = judged(handmade_run, mode, notes)
    assert outcome.verdict == "fail" and outcome.evidence.startswith(words)
    assert "events.jsonl:" in str(outcome.where)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, "backend gloo, nccl expected"),
        ({**NCCL, "reason": None}, "a reason for the unknown algorithm: False, True expected"),
        ({**NCCL, "algorithm": "magic"}, "algorithm magic, NCCL_ALGO expected"),
    ],
)
def test_a_library_that_the_accelerator_does_not_have_is_found(
    handmade_run: HandmadeRun, facts: dict[str, Any], words: str
) -> None:
    assert judged(handmade_run, "data", [plain(**facts)], device="cuda").evidence == words


@pytest.mark.parametrize(
    ("algorithm", "fault"),
    [
        ("NCCL_ALGO=allreduce:tree", None),
        ("NCCL_ALGO=Ring", "algorithm NCCL_ALGO=Ring, NCCL_ALGO=allreduce:tree configured"),
        (None, "algorithm None, NCCL_ALGO=allreduce:tree configured"),
    ],
)
def test_the_algorithm_is_the_one_in_the_settings(
    handmade_run: HandmadeRun, algorithm: str | None, fault: str | None
) -> None:
    sent = plain(backend="nccl", algorithm=algorithm, reason="nccl does not say")
    record = shared_job(ranks=2, communication={"algorithm": "tree"}, device="auto")
    folder = shared_run(handmade_run, record, sent, device="cuda")
    outcome = check_settings(Contents(folder))
    assert outcome.evidence == (fault or "1 job with the settings in run.json")


@pytest.mark.parametrize("mode", [mode for mode, (_, notes) in HONEST.items() if notes])
def test_what_is_missing_or_told_twice_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    notes = HONEST[mode][1]
    for place, note in enumerate(notes):
        for times in (0, 2):
            told_so = [*notes[:place], *times * [note], *notes[place + 1 :]]
            run = HandmadeRun(tmp_path / f"{place}-{times}", monkeypatch)
            outcome = judged(run, mode, told_so)
            assert outcome.verdict == "fail" and note[0] in outcome.evidence
            assert outcome.evidence.endswith(f": recorded {times} times, 1 expected")
            assert "events.jsonl:" in str(outcome.where)


def test_a_run_that_is_called_another_after_the_fact_is_found(handmade_run: HandmadeRun) -> None:
    """Relabelled, with the event that would contradict it left out."""
    outcome = judged(handmade_run, "powersgd", [])
    assert outcome.evidence == "exchange of gradients: recorded 0 times, 1 expected"


def test_one_rank_and_an_unfinished_attempt_have_sent_nothing(handmade_run: HandmadeRun) -> None:
    outcome = judged(handmade_run, "one", [plain()])
    assert outcome.evidence == "a job of this kind does not record 'exchange' events"


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ([], [plain(bytes_near=20 * 12_032, steps=20, elements=20 * 2 * PARAMETERS)], None),
        ([], [plain()], "steps 30, 20 expected"),
        ([plain()], [plain()], "exchange recorded before the training finished"),
        ([], [], "exchange of gradients: recorded 0 times, 1 expected"),
    ],
)
def test_an_attempt_tells_of_its_own_steps(
    handmade_run: HandmadeRun, first: list[Note], second: list[Note], words: str | None
) -> None:
    """The first one was killed after step 10."""
    began = started(device="cpu")
    _, *rest = course(0.7, 0.88, first_step=10)
    handmade_run.plan(shared_job(2))
    handmade_run.attempt(1, 1000.0, began, *course(0.4)[1:-2], *first)
    handmade_run.attempt(1, 2000.0, began, *rest[:-1], *second, rest[-1], tells=False)
    outcome = check_settings(Contents(handmade_run.folder))
    assert outcome.evidence == (words or "1 job with the settings in run.json")


def test_words_that_were_lost_with_an_attempt_are_not_asked_of_the_next(
    handmade_run: HandmadeRun,
) -> None:
    """Killed between its end and its words; the next one has nothing left to train."""
    began, whole = started(device="cpu"), course(0.4, 0.7, 0.88)
    handmade_run.plan(shared_job(2))
    handmade_run.attempt(1, 1000.0, began, *whole[1:-1], tells=False)
    handmade_run.attempt(1, 2000.0, began, resumed(30), ("end", {}))
    assert check_settings(Contents(handmade_run.folder)).verdict == "pass"


def test_what_is_known_without_torch_is_what_torch_does() -> None:
    assert {
        device: "gloo" if device == "cpu" else dist.get_default_backend_for_device(device)
        for device in expected_traffic.BACKENDS
    } == expected_traffic.BACKENDS


@pytest.mark.parametrize("precision", ["mixed-fp8", "mixed-int8"])
def test_8_bits_are_a_result_of_v3_and_not_of_v2(handmade_run: HandmadeRun, precision: str) -> None:
    facts: dict[str, Any] = {
        "precision": precision,
        "ceiling_precision": CEILING_PRECISIONS[precision],
    }
    sent = changed(plain(), **NCCL)
    folder = shared_run(handmade_run, shared_job(2, precision=precision), sent, **facts)
    contents = Contents(folder)
    assert check_settings(contents).verdict == "pass"
    assert PaperRules(HPCAI500_V3).check_precision(contents).verdict == "pass"
    assert PaperRules(HPCAI500_V2).check_precision(contents).verdict == "fail"


def test_every_setting_of_ranks_has_a_layer() -> None:
    found = {
        f"{section}.{name}": layer_of(f"train.{section}.{name}")
        for section in ("parallel", "communication")
        for name in getattr(TrainSettings(), section).model_dump()
    }
    assert {layer for name, layer in found.items() if name.startswith("parallel")} == {
        "programming model"
    }
    assert found["communication.mode"] == found["communication.near"] == "communication libraries"
    assert found["communication.precision"] == "workload implementation"


CANDIDATE: dict[str, Any] = {
    "candidate": "r00000-w00000",
    "digest": "a" * 64,
    "parent": None,
    "proposal_sha256": "b" * 64,
    "inherited": False,
    "batch": 32,
    "epochs": 1,
    "parameters": 1000,
    "ops_forward": 1,
    "ops_total": 3,
    "built_s": 0.1,
    "waited_s": 0.0,
    "compiled": False,
}
SENT: dict[str, Any] = {
    "mode": "all-reduce",
    "precision": "fp32",
    "ranks": 2,
    "near": 2,
    "steps": 16,
    "backend": "gloo",
    "algorithm": "all-reduce: ring",
    "bytes_near": 16 * 2 * 4000,
    "bytes_far": 0,
    "elements": 16 * 2 * 1000,
}


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, None),
        ({"steps": 17}, "steps 17, 1 to 16 expected"),
        ({"bytes_near": 16 * 2 * 3000}, "bytes_near"),
        ({"elements": 16 * 2 * 999}, "elements"),
        ({"precision": "int8"}, "gradients sent in int8, fp32 configured"),
        (None, "the traffic of this candidate was not recorded"),
    ],
)
def test_each_candidate_of_a_search_tells_what_its_ranks_sent(
    facts: dict[str, Any] | None, words: str | None
) -> None:
    """The candidates of a worker are trainings one after the other in one log."""
    settings = automl.tiny().model_dump(mode="json")
    settings["train"]["ranks"] = 2
    begun = {"device": "cpu", "device_name": "cpu", "ranks": 2, "precision": "fp32", "batch": 32}
    begun |= {"ceiling_precision": "fp32", "compiled": False, "threads": 1, "torch": "2"}
    begun |= {"parameters": 1000}
    ended = {"reason": "epochs", "step": 16, "epoch": 1.0, "samples": 512, "phases": {}}
    notes: list[tuple[str, dict[str, Any]]] = [("job", begun), ("candidate", CANDIDATE)]
    notes.append(("finished", {**ended, "peak_memory_bytes": None, "weights_sha256": "c" * 64}))
    if facts is not None:
        notes.append(("exchange", {**SENT, **facts}))
    notes.append(("candidate-trained", {}))
    events = [Event(kind, data, utc="", source="events.jsonl:1") for kind, data in notes]
    log = SimpleNamespace(events=events)
    record = SimpleNamespace(ranks=2, workload="automl", settings=settings, worker=0)
    job: Any = SimpleNamespace(
        record=record, logs=[log], attempts=[SimpleNamespace(log=log)], folders=[]
    )
    found = [fault for _, fault in parallelism_faults(cast(Contents, None), job)]
    assert ("; ".join(found) == "") if words is None else words in "; ".join(found)


@pytest.mark.parametrize(("schedule", "buckets"), [("1f1b", 2), ("interleaved", 4)])
def test_each_stage_of_a_rank_has_buckets_of_its_own(schedule: str, buckets: int) -> None:
    parallel = {"mode": "mixed", "mesh": (2, 2), "schedule": schedule}
    train = TrainSettings.model_validate({"ranks": 4, "accumulate": 2, "parallel": parallel})
    team = expected_traffic.Team(
        train, "cpu", steps=1, ranks_per_node=4, parameters=1000, graph=None
    )
    assert expected_traffic._max_buckets(team) == buckets
