"""Run the rules of a rule set on a run folder."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from vflops.errors import FolderError
from vflops.record.readout.contents import Contents
from vflops.results.check.challenge_rule import RULE, Demand, check_challenge
from vflops.results.check.findings import Findings, LayerFinding
from vflops.results.check.level import levels
from vflops.results.check.rule_sets import rule_set as rule_set_named
from vflops.results.check.rule_sets import rule_set_of


def check(contents: Contents, rule_set: str | None = None) -> Findings:
    """Return the verdict of every rule in ``rule_set``, by default the one for this run."""
    record = contents.folder.record
    chosen = rule_set_of(record.settings) if rule_set is None else rule_set_named(rule_set)
    try:
        layers = contents.once(levels).layers
    except FolderError:  # the rules report unreadable files
        layers = ()
    return Findings(
        run=record.id,
        rule_set=chosen.name,
        rule_set_version=chosen.version,
        findings=tuple(rule.evaluate(contents) for rule in chosen.rules),
        layers=tuple(
            LayerFinding(
                layer=layer.layer,
                level=layer.level,
                differences=tuple(map(str, layer.differences)),
            )
            for layer in layers
        ),
    )


def demand_challenge(findings: Findings, contents: Contents, demand: Demand) -> Findings:
    """Return the findings of a run that must answer a challenge, for the keeper of a list.

    The findings of ``check`` follow from the run folder alone; these depend on the keeper too.
    """
    rule = rule_set_named(findings.rule_set).rule(RULE)
    demanding = replace(rule, judge=partial(check_challenge, demand=demand))
    found = tuple(
        demanding.evaluate(contents) if finding.rule == RULE else finding
        for finding in findings.findings
    )
    return findings.model_copy(update={"findings": found})
