"""The rule sets: their rules in order, and which set applies to a run."""

from __future__ import annotations

from dataclasses import dataclass

from vflops.config.settings import Settings
from vflops.errors import unknown_name
from vflops.results.check import (
    aiperf_rules,
    ceiling_rules,
    consistency,
    counting_rules,
    data_rules,
    energy_rules,
    folder_rules,
    ledger_rules,
    paper_rules,
    search_rules,
    training_rules,
)
from vflops.results.check.background_load import quiet
from vflops.results.check.device_rules import described
from vflops.results.check.job_rules import all_jobs
from vflops.results.check.paper_rules import PaperRules
from vflops.results.check.published_figures import AIPERF, HPCAI500_V2, HPCAI500_V3
from vflops.results.check.rule import Judge, Rule
from vflops.results.check.rule_set_names import NAMES
from vflops.results.check.schema_rules import schema
from vflops.results.check.twin_rules import twins

_RUN, _LOGS = "run.json", "jobs/*/*/events.jsonl"
_JOBS, _POWER = "jobs/*/job.json", "jobs/*/*/telemetry*.jsonl"
_IMPORTED = "telemetry/imported-*.jsonl"
_GRAPHS, _SCORE = "graphs/*.json", "score.json"
_BUFFER, _CLAIMS, _LEDGER = "buffer/*.json", "claims/*.json", "ledger.json"
_REPLAYED = "ledger-replayed.json"


@dataclass(frozen=True)
class RuleSet:
    """Rules that are checked together."""

    name: str
    version: int
    title: str
    rules: tuple[Rule, ...]

    def rule(self, id: str) -> Rule:
        """Return the rule with this id."""
        for rule in self.rules:
            if rule.id == id:
                return rule
        raise unknown_name("rule", id, (rule.id for rule in self.rules), where=f" in {self.name}")


def _rule(id: str, title: str, judge: Judge, *reads: str, section: str = "") -> Rule:
    return Rule(id, title, judge, section, reads)


_PRACTICE = (
    _rule("complete", "the run finished", folder_rules.complete, _LOGS),
    _rule("schema", "every file and every event matches its schema", schema, "*.json", _LOGS),
    _rule("chain", "no line of a log was changed, dropped or cut off", folder_rules.chain, _LOGS),
    _rule("clocks", "no clock went back", folder_rules.clocks, _LOGS),
    _rule("manifest", "no file contradicts the manifest", folder_rules.manifest, "manifest.json"),
    _rule("system", "the system is described", folder_rules.system, "system.json", _LOGS),
    _rule(
        "devices",
        "all devices that were used are described",
        described,
        "system.json",
        "jobs/*/*/node-*.json",
        _LOGS,
    ),
    _rule(
        "planned",
        "every planned ceiling was measured or skipped with a reason",
        ceiling_rules.planned,
        _LOGS,
    ),
    _rule("correct", "the results behind the ceilings are correct", ceiling_rules.correct, _LOGS),
    _rule("sampled", "every ceiling has enough samples", ceiling_rules.sampled, _LOGS),
    _rule("quiet", "other processes used little of the machine", quiet, _LOGS, _POWER),
    _rule(
        "plausible", "the ceilings are consistent with each other", ceiling_rules.plausible, _LOGS
    ),
    _rule(
        "peaks",
        "no training is compared with the ceiling of another kind of device",
        ceiling_rules.peaks,
        _LOGS,
    ),
    _rule("bounded", "no training exceeded its ceiling", ceiling_rules.bounded, _GRAPHS, _LOGS),
    _rule(
        "recounted",
        "the graphs are those that were counted",
        counting_rules.recounted,
        _GRAPHS,
        _LOGS,
    ),
    _rule(
        "operations",
        "operations are those of the models that ran",
        counting_rules.operations,
        _GRAPHS,
        _LOGS,
        _SCORE,
    ),
    _rule("jobs", "the jobs are those that were requested", all_jobs, _RUN, _JOBS, _LOGS),
    _rule("seeds", "every training has its own seed", data_rules.seeds, _JOBS, _LOGS),
    _rule("data", "the data is pinned by a checksum", data_rules.fingerprinted, _JOBS),
    _rule("synthetic", "synthetic data is marked", data_rules.marked, _JOBS),
    _rule(
        "trained",
        "every training finished as planned",
        training_rules.trained,
        "jobs/*",
    ),
    _rule(
        "as-told",
        "every job ran with the settings of the run",
        consistency.settings_applied,
        _RUN,
        _JOBS,
        _LOGS,
    ),
    _rule("goal", "all jobs of a workload have its goal", consistency.goal, _JOBS, _LOGS),
    _rule(
        "processed",
        "the samples are whole epochs of the data set",
        training_rules.processed,
        _JOBS,
        _LOGS,
    ),
    _rule(
        "evaluated",
        "evaluations cover the whole validation set",
        data_rules.evaluated,
        _JOBS,
        _LOGS,
    ),
    _rule("timed", "the time of every training adds up", training_rules.timed, _LOGS),
    _rule("telemetry", "telemetry has no gaps", energy_rules.unbroken, _POWER),
    _rule(
        "energy",
        "the energy is plausible",
        energy_rules.plausible,
        _POWER,
        _IMPORTED,
        "system.json",
    ),
    _rule(
        "powered",
        "power logs are unchanged since they were imported",
        training_rules.powered,
        _IMPORTED,
    ),
    _rule("twins", "twins give the same results", twins, _JOBS, _LOGS),
    _rule(
        "searched",
        "every candidate was trained once, as proposed",
        search_rules.searched,
        _BUFFER,
        _CLAIMS,
        _LOGS,
    ),
    _rule(
        "charged",
        "operations are those of the recorded architectures",
        search_rules.charged,
        _BUFFER,
        _LOGS,
    ),
    _rule(
        "results",
        "samples and results of candidates follow from the logs",
        search_rules.sampled,
        _LOGS,
    ),
    _rule(
        "ledger",
        "the ledger for replays lists what was trained",
        ledger_rules.ledgered,
        _LEDGER,
        _LOGS,
    ),
    _rule(
        "replayed",
        "a replay did all the work in its ledger",
        ledger_rules.replayed,
        _REPLAYED,
        _LOGS,
    ),
    _rule("score", "the score follows from the record", folder_rules.scored, _SCORE, _LOGS),
)


def _hpcai500(judges: PaperRules, sections: dict[str, str]) -> tuple[Rule, ...]:
    """Return the rules of both versions, with the section of one version."""
    common: tuple[tuple[str, str, Judge, tuple[str, ...]], ...] = (
        ("workload", "a published workload was run", judges.workload, (_JOBS,)),
        ("epochs", "the number of epochs is as published", judges.epochs, (_JOBS, _LOGS)),
        ("target", "target and exponent are as published", judges.target, (_JOBS,)),
        ("published-data", "the data is the published data", judges.published_data, (_JOBS,)),
        ("precision", "the precision is allowed", judges.precision, (_LOGS,)),
        ("repeats", "there are enough repeats", judges.repeats, (_JOBS, _LOGS)),
        ("ceilings", "the ceilings of the system were measured", judges.ceilings, (_LOGS,)),
        ("level", "the level follows from the settings", judges.level, (_RUN, _JOBS)),
    )
    return tuple(
        _rule(id, title, judge, *reads, section=sections.get(id, ""))
        for id, title, judge, reads in common
    )


_V2 = _hpcai500(
    PaperRules(HPCAI500_V2),
    {
        "workload": "4.1",
        "epochs": "4.2, table 3",
        "target": "4.1 and 4.3",
        "published-data": "4.1, table 2",
        "repeats": "3.2",
    },
)
_V3 = (
    *_hpcai500(
        PaperRules(HPCAI500_V3),
        {
            "workload": "table 4",
            "epochs": "V2.0, table 3",
            "repeats": "V2.0, 3.2",
            "target": "3.6, table 4",
            "published-data": "table 4",
            "precision": "table 2",
        },
    ),
    _rule(
        "ensemble",
        "every model is in its ensemble, and all trained at the same time",
        paper_rules.whole_ensembles,
        _JOBS,
        _LOGS,
        section="eq. 5",
    ),
    _rule(
        "bootstrap",
        "every model has its own sample",
        paper_rules.bootstrapped,
        _JOBS,
        section="3.7",
    ),
)
_SEARCHES = PaperRules(AIPERF)
_AIPERF = tuple(
    _rule(id, title, judge, *reads, section="IV.E, table IV")
    for id, title, judge, reads in (
        ("workload", "the run has a search", _SEARCHES.workload, (_JOBS,)),
        ("duration", "the search took long enough", aiperf_rules.duration, (_LOGS,)),
        ("precision", "the precision is allowed", aiperf_rules.precision, (_LOGS,)),
        ("error", "the best model is within the error limit", aiperf_rules.error, (_LOGS,)),
        (
            "new-weights",
            "every weight was trained in the search",
            aiperf_rules.new_weights,
            (_LOGS,),
        ),
        ("table-iv", "the search is as table IV fixes it", aiperf_rules.table_iv, (_JOBS,)),
    )
)

_RULES = {
    "practice": _PRACTICE,
    "hpcai500-v2": (*_PRACTICE, *_V2),
    "hpcai500-v3": (*_PRACTICE, *_V3),
    "aiperf": (*_PRACTICE, *_AIPERF),
}
RULE_SETS: dict[str, RuleSet] = {
    name: RuleSet(name, entry.version, entry.title, _RULES[name]) for name, entry in NAMES.items()
}


def rule_set(name: str) -> RuleSet:
    """Return the rule set called ``name``."""
    if name not in RULE_SETS:
        raise unknown_name("rule set", name, RULE_SETS)
    return RULE_SETS[name]


def rule_set_of(settings: Settings) -> RuleSet:
    """Return the rule set for a run: a paper's at reference size, else ``practice``."""
    published = [name for name in settings.workloads if name in HPCAI500_V2.workloads]
    if settings.profile != "reference":
        return RULE_SETS["practice"]
    if published:
        bagged = any(settings.models_of(name) > 1 for name in published)
        return RULE_SETS["hpcai500-v3" if bagged else "hpcai500-v2"]
    return RULE_SETS["aiperf" if "automl" in settings.workloads else "practice"]
