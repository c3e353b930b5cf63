"""Consistent forgeries of whole runs, and what catches each of them.

Every hash, chain, pin, manifest and score of a forged folder is computed anew, so that only its
contents can give it away. ``docs/explanation/forgeries.md`` has the same list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.support.forged_attempts import (
    OTHER_STATE,
    kept_at,
    on_h200,
    resumed,
    with_ceilings,
    with_ranks,
    with_torch,
)
from tests.support.forged_runs import Forger
from tests.support.forged_times import (
    busy,
    clocks_times,
    moved_time,
    progress_times,
    quieter,
    readings_times,
    renamed_device,
    timed_states,
)
from tests.support.forgeries import (
    Break,
    changed,
    graph_of_settings,
    measured,
    together,
    with_graph,
)
from vflops.results.evidence.audit_record import AuditVerdict
from vflops.testing.conventions import sample_graph


def unchanged(run: Forger) -> None:
    """Change nothing."""


@dataclass(frozen=True)
class RuleForgery:
    """A forgery that breaks a rule."""

    name: str
    rule: str
    """The only rule that fails."""
    harm: Break = unchanged
    base: str = "ResNet-50"
    """The run that is forged, of ``BUILDERS``."""
    given: Break = unchanged
    """What the honest run has too."""
    honest: str | None = None
    """The honest run, if it is not ``base``."""
    rules: str = "practice"


@dataclass(frozen=True)
class AuditForgery:
    """A forgery that breaks no rule; training parts of it again shows it."""

    name: str
    verdict: AuditVerdict | None
    """What the audit concludes; None if it refuses, because the data is not that of the run."""


@dataclass(frozen=True)
class UncaughtForgery:
    """A forgery that nothing in a run folder shows."""

    name: str
    harm: Break = unchanged
    base: str = "ResNet-50"
    given: Break = unchanged


on_busy_machine = together(changed("load", others_share=0.4), busy(1, 95.0, 80.0))
"""Other programs, while ceilings were measured and while the first job trained."""


def copied_losses(run: Forger) -> None:
    """The losses of the first model in the log of the second one."""
    for source, copy in zip(run.lines("progress", 1), run.lines("progress", 2), strict=True):
        copy["data"]["loss"] = source["data"]["loss"]


def same_weights(run: Forger) -> None:
    (source,), (copy,) = run.lines("finished", 1), run.lines("finished", 2)
    copy["data"]["weights_sha256"] = source["data"]["weights_sha256"]


def other_samples(run: Forger) -> None:
    """A shard was changed after the data was packed, and the digests that were read with it."""
    for line in run.lines("data-read"):
        line["data"]["splits"]["train"]["sha256"] = "f" * 64


def arithmetic(value: float) -> Break:
    """Ceilings of matrix product and convolution."""
    return together(measured("gemm", value=value), measured("convolution", value=value))


TOY_GRAPH = sample_graph(batch=256).model_copy(update={"model": "image-classification"})

BY_RULES: Sequence[RuleForgery] = (
    RuleForgery("an accuracy of 1", "evaluated", changed("evaluation", quality=1.0)),
    RuleForgery("an mAP of 1", "evaluated", changed("evaluation", quality=1.0), "weather"),
    RuleForgery("clocks × 0.01", "bounded", clocks_times(0.01)),
    RuleForgery(
        "a search above its ceiling",
        "bounded",
        arithmetic(2e11),
        "search",
        given=with_ceilings(1e14),
    ),
    RuleForgery(
        "ceilings × 5,000, and clocks as fast",
        "data-sheets",
        together(arithmetic(4.7e18), clocks_times(2e-4)),
        given=on_h200,
    ),
    RuleForgery("power × 0.001", "energy", readings_times(1e-3), given=on_h200),
    RuleForgery(
        "slow steps called compilation",
        "compilation",
        moved_time("compilation", 0.5, after_step=1000),
    ),
    RuleForgery(
        "clocks × 0.85 but not those of commitments",
        "state-times",
        progress_times(0.85),
        given=timed_states,
    ),
    RuleForgery(
        "training time called evaluation", "evaluation-time", moved_time("evaluation", 0.5)
    ),
    RuleForgery("a copied model with another hash", "seeds", copied_losses, "ResNet-50 ensembles"),
    RuleForgery("the same weights twice", "seeds", same_weights, "ResNet-50 ensembles"),
    RuleForgery("ResNet-50 at 448 pixels", "rebuilt", graph_of_settings(size=448, resize=448)),
    RuleForgery("a toy graph", "rebuilt", with_graph(TOY_GRAPH.to_json())),
    RuleForgery(
        "a first network with another label",
        "first-network",
        base="search from another network",
        honest="search",
    ),
    RuleForgery(
        "a search that is too short",
        "duration",
        base="short search",
        honest="search",
        rules="aiperf",
    ),
    RuleForgery(
        "a smuggled checkpoint at a resume",
        "committed",
        changed("resumed", sha256=OTHER_STATE),
        given=resumed,
    ),
    RuleForgery(
        "a training that commits to no state",
        "committed",
        lambda run: run.drop(lambda line: line["kind"] != "commitment"),
    ),
    RuleForgery("parts of an audit whose ends the owner chose", "parts", kept_at(7)),
    RuleForgery(
        "validation samples in the training data", "leaks", changed("data-read", leaked=501)
    ),
    RuleForgery("other samples than those of the data", "contents", other_samples),
    RuleForgery("more ranks than accelerators", "devices", with_ranks(8)),
    RuleForgery(
        "ceilings of accelerators that are not described",
        "devices",
        measured("gemm", device="cuda:99"),
    ),
    RuleForgery(
        "another version of torch in the log, for a lenient audit",
        "stack",
        changed("job", torch="2.1"),
        given=with_torch("2.13.0"),
    ),
)

BY_AUDIT: Sequence[AuditForgery] = (
    AuditForgery("a model or an ensemble that was never trained", "contradicted"),
    AuditForgery("the weights of another training from a step on", "contradicted"),
    AuditForgery("a better quality of the trained model", "contradicted"),
    AuditForgery("a checkpoint that holds the state after a later step", "contradicted"),
    AuditForgery("a checkpoint that cannot be read", "contradicted"),
    AuditForgery("other data, with the hashes of that data", None),
    AuditForgery("checkpoints that were deleted or changed", "not conclusive"),
    AuditForgery("clocks × 0.85", "not conclusive"),
    AuditForgery("times × 0.2 without progress events", "not conclusive"),
)

BY_RANKINGS = ("a rival's result under another name and date",)

UNCAUGHT: Sequence[UncaughtForgery] = (
    UncaughtForgery("another name of the machine", renamed_device("Other GPU")),
    UncaughtForgery("a meter that reads too little", readings_times(0.7), given=on_h200),
    UncaughtForgery("power × 0.001 on an accelerator without a data sheet", readings_times(1e-3)),
    UncaughtForgery("ceilings that are too low", arithmetic(9e14)),
    UncaughtForgery(
        "faster clocks on a machine that no auditor has", clocks_times(0.85), "ResNet-50 ensembles"
    ),
    UncaughtForgery("a busy machine called quiet", quieter, given=on_busy_machine),
    UncaughtForgery("the best of many runs"),
)
"""Every folder passes all rules."""
