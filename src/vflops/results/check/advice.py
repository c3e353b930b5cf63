"""What to do about a rule that is not met."""

from __future__ import annotations

from vflops.record.folder import RunRecord
from vflops.results.check.findings import Finding

_ALTERED = "vflops verify shows what was changed; use the original folder"
_RUN_AGAIN = "run it again with an unchanged vflops"
_SEARCH_AGAIN = "search again; a damaged search cannot be repaired"
_PUBLISHED = "train with --profile reference, which has the published settings"

ADVICE = {
    "complete": "vflops resume finishes it",
    "schema": _ALTERED,
    "chain": _ALTERED,
    "clocks": "keep the clocks of all nodes in step with NTP, and run it again",
    "manifest": "vflops verify shows what was changed",
    "package": "install the same vflops on all nodes, and run it again",
    "system": "see what vflops system reports here, and run it again",
    "devices": "see what vflops system reports on the nodes that trained, and run it again",
    "rehearsal": "run it with as many accelerators, or cores, as ranks, and without --rehearse",
    "nodes": "bring the nodes of a kind to one state, or leave the odd ones out; "
    "vflops preflight compares them",
    "image": "give all nodes the same image: see container in site.toml, and run it again",
    "planned": "vflops resume measures the rest",
    "correct": "the device computes wrongly: check its clocks, memory and driver",
    "sampled": "measure longer: --set micro.budget_s=60",
    "quiet": "end these programs, and run it again; vflops run --wait-quiet waits for their end",
    "stolen": "other virtual machines share the processors of the host: run it again at another "
    "time, or on a host of its own",
    "plausible": "measure again, best on an idle machine: vflops micro gemm --budget 20",
    "data-sheets": "see what vflops system reports, and measure again: vflops micro",
    "peaks": "run it again with its micro-benchmarks on the device and the threads that train",
    "bounded": "measure the ceilings longer: --set micro.budget_s=60",
    "recounted": _ALTERED,
    "rebuilt": _RUN_AGAIN,
    "operations": "vflops score regenerates score.json; if the model differs, run it again",
    "uncounted": "name counting rules that know these operators: rules of the workload",
    "jobs": _RUN_AGAIN,
    "seeds": "run it again; --repeat gives each repeat its own seed",
    "challenge": "ask the keeper of the list for a challenge, and run it again with --challenge",
    "data": "check the data with vflops data check, and run it again",
    "synthetic": _RUN_AGAIN,
    "leaks": "remove these samples from the training data, and pack it again: vflops data pack",
    "labels": "correct the labels of these samples, and pack them again: vflops data pack",
    "trained": "vflops resume finishes jobs that did not end; vflops verify shows changed files",
    "committed": _RUN_AGAIN,
    "contents": "give the samples of the data their digests with vflops data verify, and run again",
    "as-told": _RUN_AGAIN,
    "goal": "set a target close to what training reaches; without --data, leave it to the profile",
    "processed": "vflops resume finishes it; otherwise run it again",
    "evaluated": "evaluate the whole validation set and check the reported quality",
    "timed": "keep the clocks of all nodes in step with NTP, and run it again",
    "compilation": _RUN_AGAIN,
    "parts": _RUN_AGAIN,
    "stack": _RUN_AGAIN,
    "state-times": _RUN_AGAIN,
    "evaluation-time": "run it again with the validation data on fast storage",
    "progress": "run it again on a machine that does not stall",
    "steady": "end other programs, and run it again with more repeats: vflops run --repeat 5 "
    "--wait-quiet waits for their end",
    "telemetry": "run it again on an idle machine with free space in the run's folder",
    "energy": "check the sensor or the imported power log, and import it again with vflops power",
    "powered": "import the power log again with vflops power",
    "twins": "a node computes wrongly: find it with vflops preflight",
    "searched": _SEARCH_AGAIN,
    "first-network": _SEARCH_AGAIN,
    "charged": _SEARCH_AGAIN,
    "results": _SEARCH_AGAIN,
    "ledger": _ALTERED,
    "replayed": "replay the original ledger again with vflops replay",
    "score": "vflops score regenerates it",
    "workload": "choose the rule set of this workload; vflops list shows all",
    "epochs": _PUBLISHED,
    "target": _PUBLISHED,
    "closed": "leave the settings of the task to the profile; vflops score shows what differs",
    "published-data": "train on all of the published data with --data",
    "precision": "train in an allowed precision: --set train.precision=mixed-bf16",
    "ceilings": "run it again with its micro-benchmarks",
    "level": "install the package of the workload, and check again",
    "ensemble": "train all models at the same time, on enough nodes",
    "bootstrap": "leave bagging.bootstrap at its default, without --twins",
    "duration": "search for at least an hour: --for 1h",
    "error": "search longer, or for more epochs per candidate",
    "new-weights": "search again without weights or a ledger from elsewhere",
    "table-iv": "search with the settings that it names, or with --profile aiperf",
    "ended": "continue the search with vflops resume, or search again for longer",
    "search-space": "search again: its networks are not those of a search",
    "rounds": "search again: its candidates were not trained as its settings require",
    "tuned": "search again with search.tune_from=5, or with --profile aiperf",
}
"""The advice by rule, for a run on the machine that started it."""
_WHOLE_NODES = {"slurm": 'request whole nodes: directives = ["--exclusive"] in site.toml'}
"""How to keep other jobs off the nodes, by scheduler."""
_ON_A_SCHEDULER = {
    "plausible": "run it again, with a longer budget: --set micro.budget_s=60",
    "system": "see what vflops system reports on a compute node, and run it again",
}
"""The advice for a run on the nodes of a scheduler, where it differs."""


def advice(rule: str, run: RunRecord) -> str:
    """Return what to do about a rule of a run.

    An empty text for a rule of another version.
    """
    if run.on_this_machine:
        return ADVICE.get(rule, "")
    if rule in ("quiet", "steady"):  # --wait-quiet waits for the machine that submits
        return f"{whole_nodes(run.settings.launch.on)}, and run it again"
    return _ON_A_SCHEDULER.get(rule, ADVICE.get(rule, ""))


def whole_nodes(on: str) -> str:
    """Return how to keep other jobs off the nodes of a scheduler."""
    return _WHOLE_NODES.get(on, "use whole nodes, without other programs")


def with_advice(finding: Finding, run: RunRecord) -> str:
    """Return the evidence of a finding, followed by what to do about it if that is known."""
    known = advice(finding.rule, run)
    return f"{finding.text} → {known}" if known else finding.text
