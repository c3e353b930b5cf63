"""What to do about a rule that is not met."""

from __future__ import annotations

from vflops.results.check.findings import Finding

ADVICE = {
    "complete": "vflops resume finishes it",
    "correct": "the device computes wrongly: check its clocks, memory and driver",
    "sampled": "measure longer: --set micro.budget_s=60",
    "quiet": "end these programs, or add --wait-quiet to the command, and run it again",
    "plausible": "measure again, best on an idle machine: vflops micro gemm --budget 20",
    "peaks": "run it again with its micro-benchmarks on the device and the threads that train",
    "bounded": "measure the ceilings longer: --set micro.budget_s=60",
    "trained": "vflops resume finishes jobs that did not end",
    "telemetry": "run it again on an idle machine with free space in the run's folder",
    "twins": "a node computes wrongly: find it with vflops preflight",
    "score": "vflops score regenerates it",
    "manifest": "vflops verify shows what was changed",
    "ceilings": "run it again with its micro-benchmarks",
    "repeats": "add --repeat",
}
"""The advice by rule; changed files have none, because no command repairs them."""


def with_advice(finding: Finding) -> str:
    """Return the evidence of a finding, followed by what to do about it if that is known."""
    advice = ADVICE.get(finding.rule)
    return f"{finding.text} → {advice}" if advice else finding.text
