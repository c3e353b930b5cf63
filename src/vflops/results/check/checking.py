"""From the run folder to its findings."""

from __future__ import annotations

from vflops.errors import FolderError
from vflops.record.readout.contents import Contents
from vflops.results.check.findings import Findings, LayerFinding
from vflops.results.check.level import levels
from vflops.results.check.rule_sets import own_rule_set
from vflops.results.check.rule_sets import rule_set as named


def check(contents: Contents, rule_set: str | None = None) -> Findings:
    """Every verdict of the rule set called ``rule_set``; by default the one that the run is for."""
    record = contents.folder.record
    chosen = own_rule_set(record.settings) if rule_set is None else named(rule_set)
    try:
        layers = contents.once(levels).layers
    except FolderError:  # what cannot be read is a finding of the rules
        layers = ()
    return Findings(
        run=record.id,
        rule_set=chosen.name,
        rule_set_version=chosen.version,
        findings=tuple(rule.judged(contents) for rule in chosen.rules),
        layers=tuple(
            LayerFinding(
                layer=each.layer,
                level=each.level,
                differences=tuple(map(str, each.differences)),
            )
            for each in layers
        ),
    )
