"""What to do about a rule that is not met."""

from __future__ import annotations

_ALTERED = "see what was altered with vflops verify, and use the original folder"
_MEASURE_AGAIN = "measure again on an idle machine: vflops micro --budget 20"
_RUN_AGAIN = "run it again with an unchanged vflops"
_SEARCH_AGAIN = "search again; a damaged search cannot be repaired"
_PUBLISHED = "train with --profile reference, which has the published settings"

REMEDIES = {
    "complete": "finish it with vflops resume",
    "schema": _ALTERED,
    "chain": _ALTERED,
    "clocks": "keep the clocks of all nodes in step with NTP, and run it again",
    "manifest": _ALTERED,
    "system": "see what vflops system reports here, and run it again",
    "devices": "see what vflops system reports on the nodes that trained, and run it again",
    "planned": "finish it with vflops resume, or measure the rest with vflops micro",
    "correct": "update the driver and torch, and measure again; the device computes wrong results",
    "sampled": "give the ceilings more time: --set micro.budget_s=60",
    "quiet": "stop the other programs and run it again",
    "plausible": _MEASURE_AGAIN,
    "peaks": "run it again with as many threads, and on the device, for ceilings and training",
    "bounded": _MEASURE_AGAIN,
    "recounted": _ALTERED,
    "operations": "renew score.json with vflops score; if the model differs, run it again",
    "jobs": _RUN_AGAIN,
    "seeds": "run it again; --repeat gives each repeat its own seed",
    "data": "check the data with vflops data check, and run it again",
    "synthetic": _RUN_AGAIN,
    "trained": "finish it with vflops resume; if a file was altered, use the original folder",
    "as-told": _RUN_AGAIN,
    "goal": _RUN_AGAIN,
    "processed": "finish it with vflops resume, or run it again",
    "evaluated": "evaluate the whole validation set and check the reported quality",
    "timed": "keep the clocks of all nodes in step with NTP, and run it again",
    "telemetry": "run it again on a machine with time for one sample per interval",
    "energy": "check the sensor or the imported power log, and import it again with vflops power",
    "powered": "import the power log again with vflops power",
    "twins": "test the suspect nodes, and exclude them with the options of your scheduler",
    "searched": _SEARCH_AGAIN,
    "charged": _SEARCH_AGAIN,
    "results": _SEARCH_AGAIN,
    "ledger": _ALTERED,
    "replayed": "replay the original ledger again with vflops replay",
    "score": "renew it with vflops score",
    "workload": "choose the rule set of this workload; vflops list shows all",
    "epochs": _PUBLISHED,
    "target": _PUBLISHED,
    "published-data": "train on the published data with --data",
    "precision": "train in an allowed precision: --set train.precision=mixed-bf16",
    "repeats": "run it with --repeat 4",
    "ceilings": "run it again with its micro-benchmarks",
    "level": "install the package of the workload, and check again",
    "ensemble": "train all models at the same time, on enough nodes",
    "bootstrap": "leave bagging.bootstrap at its default, without --twins",
    "duration": "search for at least an hour: --for 1h",
    "error": "search longer, or for more epochs per candidate",
    "new-weights": "search again without weights or a ledger from elsewhere",
    "table-iv": "search on ImageNet with --data, and start from ResNet-50",
}
"""What a person does so that the rule is met; the key is the id of the rule."""


def remedy(rule: str) -> str:
    """Return what to do about a rule; an empty text for a rule of another version."""
    return REMEDIES.get(rule, "")
