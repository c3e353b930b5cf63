"""The rule sets: their rules in order, and the choice of a set for a run."""

from __future__ import annotations

from dataclasses import dataclass

from vflops.config.profiles import PUBLISHED_PROFILES
from vflops.config.settings import Settings
from vflops.counting.conventions import conventions
from vflops.errors import UsageError, unknown_name
from vflops.results.check import (
    aiperf_rules,
    ceiling_rules,
    consistency,
    counting_rules,
    data_rules,
    energy_rules,
    folder_rules,
    ledger_rules,
    pace_rules,
    paper_rules,
    search_rules,
    training_rules,
)
from vflops.results.check.background_load import check_background_load, check_stolen_time
from vflops.results.check.challenge_rule import RULE as CHALLENGE
from vflops.results.check.challenge_rule import check_challenge
from vflops.results.check.clock_rules import check_clocks
from vflops.results.check.commitment_rules import check_commitments, check_parts
from vflops.results.check.content_rules import check_contents
from vflops.results.check.device_rules import check_devices
from vflops.results.check.graph_rules import check_rebuilt_graphs
from vflops.results.check.image_rules import check_images
from vflops.results.check.job_rules import check_jobs
from vflops.results.check.node_rules import check_nodes
from vflops.results.check.package_rules import check_package
from vflops.results.check.paper_rules import PaperRules
from vflops.results.check.published_figures import AIPERF, HPCAI500_V2, HPCAI500_V3
from vflops.results.check.rehearsal_rule import RULE as REHEARSAL
from vflops.results.check.rehearsal_rule import check_rehearsal
from vflops.results.check.repeat_rules import check_steady_repeats
from vflops.results.check.rule import Judge, Rule
from vflops.results.check.rule_set_names import NAMES
from vflops.results.check.schema_rules import check_schemas
from vflops.results.check.stack_rules import check_stack
from vflops.results.check.twin_rules import check_twins
from vflops.results.check.upper_bounds import check_upper_bounds

_RUN, _LOGS = "run.json", "jobs/*/*/events.jsonl"
_JOBS, _POWER = "jobs/*/job.json", "jobs/*/*/telemetry*.jsonl"
_IMPORTED = "telemetry/imported-*.jsonl"
_GRAPHS, _SCORE = "graphs/*.json", "score.json"
_BUFFER, _CLAIMS, _LEDGER = "buffer/*.json", "claims/*.json", "ledger.json"
_ATTEMPT_NODES = "jobs/*/*/node-*.json"
_REPLAYED, _NODES = "ledger-replayed.json", "nodes/*.json"


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
    _rule("complete", "the run finished", folder_rules.check_complete, _LOGS),
    _rule(
        "schema", "every file and every event matches its schema", check_schemas, "*.json", _LOGS
    ),
    _rule(
        "chain",
        "no line of a log was changed, dropped or cut off",
        folder_rules.check_hash_chain,
        _LOGS,
    ),
    _rule(
        "clocks",
        "times in the logs are in order",
        check_clocks,
        _LOGS,
        "jobs/*/*/node-*.json",
    ),
    _rule(
        "manifest", "no file contradicts the manifest", folder_rules.check_manifest, "manifest.json"
    ),
    _rule(
        "package",
        "every node ran the package that started the run",
        check_package,
        _RUN,
        "jobs/*/*/node-*.json",
    ),
    _rule("system", "the system is described", folder_rules.check_system, "system.json", _LOGS),
    _rule(
        "devices",
        "all devices that were used are described",
        check_devices,
        "system.json",
        _ATTEMPT_NODES,
        _LOGS,
        _NODES,
    ),
    _rule(
        "stack",
        "the logs name the software that system.json describes",
        check_stack,
        _RUN,
        "system.json",
        _LOGS,
    ),
    _rule(
        REHEARSAL,
        "every rank has a device to itself: the run is no rehearsal",
        check_rehearsal,
        _RUN,
        _LOGS,
    ),
    _rule(
        "nodes",
        "every node that trained is described, and nodes of a kind are equal",
        check_nodes,
        _NODES,
        _LOGS,
        _ATTEMPT_NODES,
    ),
    _rule(
        "image",
        "all jobs ran in the same container image, or in none",
        check_images,
        "jobs/*/*/node-*.json",
    ),
    _rule(
        "planned",
        "every planned ceiling was measured or skipped with a reason",
        ceiling_rules.check_planned_ceilings,
        _LOGS,
        _NODES,
    ),
    _rule(
        "correct",
        "the results behind the ceilings are correct",
        ceiling_rules.check_correctness,
        _LOGS,
    ),
    _rule("sampled", "every ceiling has enough samples", ceiling_rules.check_sample_counts, _LOGS),
    _rule(
        "quiet", "other processes used little of the machine", check_background_load, _LOGS, _POWER
    ),
    _rule(
        "stolen",
        "the host of a virtual machine took little of its CPU time",
        check_stolen_time,
        _LOGS,
        _POWER,
    ),
    _rule(
        "plausible",
        "the ceilings are consistent with each other",
        ceiling_rules.check_plausibility,
        _LOGS,
    ),
    _rule(
        "data-sheets",
        "no ceiling is above what its device can reach",
        ceiling_rules.check_data_sheets,
        _LOGS,
        "system.json",
        _NODES,
    ),
    _rule(
        "peaks",
        "no training is compared with the ceiling of another kind of device or of fewer threads",
        ceiling_rules.check_device_kinds,
        _LOGS,
        _ATTEMPT_NODES,
        _NODES,
    ),
    _rule(
        "bounded",
        "no training and no search exceeded its ceiling",
        check_upper_bounds,
        _GRAPHS,
        _BUFFER,
        _LOGS,
        _ATTEMPT_NODES,
        _NODES,
    ),
    _rule(
        "recounted",
        "the graphs are unchanged since they were counted",
        counting_rules.check_graph_hashes,
        _GRAPHS,
        _LOGS,
    ),
    _rule(
        "rebuilt",
        "every graph follows from the settings",
        check_rebuilt_graphs,
        _GRAPHS,
        _JOBS,
    ),
    _rule(
        "operations",
        "operation counts belong to the models that ran",
        counting_rules.check_operations,
        _GRAPHS,
        _LOGS,
        _SCORE,
    ),
    _rule(
        "uncounted",
        "the counting rules cover the operators that ran",
        counting_rules.check_uncounted,
        _GRAPHS,
        _JOBS,
    ),
    _rule("jobs", "the jobs are those that were requested", check_jobs, _RUN, _JOBS, _LOGS),
    _rule("seeds", "every training has its own seed", data_rules.check_seeds, _JOBS, _LOGS),
    _rule(
        CHALLENGE,
        "all seeds follow from the challenge, and the run came after it",
        check_challenge,
        _RUN,
        _JOBS,
        _LOGS,
    ),
    _rule("data", "the data is pinned by a checksum", data_rules.check_fingerprints, _JOBS),
    _rule("synthetic", "synthetic data is marked", data_rules.check_synthetic_flags, _JOBS),
    _rule(
        "contents", "the samples that were read are those of the data", check_contents, _JOBS, _LOGS
    ),
    _rule("leaks", "no validation sample is also trained on", data_rules.check_leaks, _JOBS, _LOGS),
    _rule("labels", "no sample has two labels", data_rules.check_contradictions, _JOBS),
    _rule(
        "trained",
        "every training finished as planned",
        training_rules.check_finished,
        "jobs/*",
    ),
    _rule(
        "committed",
        "every resumed training continued from a state of its own log",
        check_commitments,
        _LOGS,
    ),
    _rule(
        "parts",
        "the states that audits start from are those of the settings",
        check_parts,
        _JOBS,
        _LOGS,
    ),
    _rule(
        "as-told",
        "every job ran with the settings of the run",
        consistency.check_settings,
        _RUN,
        _JOBS,
        _LOGS,
    ),
    _rule(
        "goal",
        "all jobs of a workload have its goal, and the goal is not trivial",
        consistency.check_goals,
        _JOBS,
        _LOGS,
    ),
    _rule(
        "processed",
        "the samples are whole epochs of the data set",
        training_rules.check_samples,
        _JOBS,
        _LOGS,
    ),
    _rule(
        "evaluated",
        "evaluations cover the whole validation set",
        data_rules.check_evaluations,
        _JOBS,
        _LOGS,
    ),
    _rule("timed", "the time of every training adds up", training_rules.check_phase_times, _LOGS),
    _rule(
        "compilation",
        "a training compiles only in its first steps and at its first evaluation",
        pace_rules.check_compilation,
        _LOGS,
    ),
    _rule(
        "evaluation-time",
        "evaluations took as long as their samples need",
        pace_rules.check_evaluation_times,
        _LOGS,
        _GRAPHS,
        _ATTEMPT_NODES,
        _NODES,
    ),
    _rule(
        "progress",
        "every training reported its progress",
        pace_rules.check_progress,
        _LOGS,
    ),
    _rule(
        "state-times",
        "the times of committed states fit those of progress",
        pace_rules.check_state_times,
        _LOGS,
    ),
    _rule(
        "steady",
        "repeats with other seeds have nearly the same FLOPS",
        check_steady_repeats,
        _JOBS,
        _LOGS,
        _GRAPHS,
        _POWER,
    ),
    _rule("telemetry", "telemetry has no gaps", energy_rules.check_gaps, _POWER),
    _rule(
        "energy",
        "the energy is plausible",
        energy_rules.check_energy,
        _POWER,
        _IMPORTED,
        "system.json",
        _NODES,
    ),
    _rule(
        "powered",
        "power logs are unchanged since they were imported",
        training_rules.check_power_logs,
        _IMPORTED,
    ),
    _rule("twins", "twins give the same results", check_twins, _JOBS, _LOGS),
    _rule(
        "searched",
        "every candidate was trained once, as proposed",
        search_rules.check_proposals,
        _BUFFER,
        _CLAIMS,
        _LOGS,
    ),
    _rule(
        "first-network",
        "a search starts from the network of its settings, and keeps the size of its images",
        search_rules.check_first_network,
        _BUFFER,
        _JOBS,
    ),
    _rule(
        "charged",
        "operation counts match the recorded architectures",
        search_rules.check_operation_counts,
        _BUFFER,
        _LOGS,
    ),
    _rule(
        "results",
        "samples and results of candidates follow from the logs",
        search_rules.check_candidate_results,
        _LOGS,
    ),
    _rule(
        "ledger",
        "the ledger for replays lists what was trained",
        ledger_rules.check_ledgers,
        _LEDGER,
        _LOGS,
    ),
    _rule(
        "replayed",
        "a replay did all the work in its ledger",
        ledger_rules.check_replays,
        _REPLAYED,
        _LOGS,
    ),
    _rule("score", "the score follows from the record", folder_rules.check_score, _SCORE, _LOGS),
)


def _hpcai500(rules: PaperRules, sections: dict[str, str]) -> tuple[Rule, ...]:
    """Return the rules that both versions share, with the sections of one version."""
    common: tuple[tuple[str, str, Judge, tuple[str, ...]], ...] = (
        ("workload", "a published workload was run", rules.check_workload, (_JOBS,)),
        ("epochs", "the number of epochs is as published", rules.check_epochs, (_JOBS, _LOGS)),
        ("target", "target and exponent are as published", rules.check_target, (_JOBS,)),
        ("closed", "the task is that of a profile", rules.check_task, (_RUN, _JOBS)),
        ("published-data", "the data is the published data", rules.check_published_data, (_JOBS,)),
        ("precision", "the precision is allowed", rules.check_precision, (_LOGS,)),
        ("repeats", "repeats show how much the result varies", rules.check_repeats, (_JOBS, _LOGS)),
        (
            "ceilings",
            "the ceilings of the system were measured",
            rules.check_ceilings,
            (_LOGS, _NODES),
        ),
        (
            "level",
            "the level follows from settings and code",
            rules.check_level,
            (_RUN, _JOBS),
        ),
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
    },
)
_V3 = (
    *_hpcai500(
        PaperRules(HPCAI500_V3),
        {
            "workload": "table 4",
            "epochs": "V2.0, table 3",
            "target": "3.6, table 4",
            "published-data": "table 4",
            "precision": "table 2",
        },
    ),
    _rule(
        "ensemble",
        "every model is in its ensemble, and all trained at the same time",
        paper_rules.check_ensembles,
        _JOBS,
        _LOGS,
        section="eq. 5",
    ),
    _rule(
        "bootstrap",
        "every model has its own sample",
        paper_rules.check_bootstrap,
        _JOBS,
        section="3.7",
    ),
)
_SEARCHES = PaperRules(AIPERF)
_AIPERF = tuple(
    _rule(id, title, judge, *reads, section="IV.E, table IV")
    for id, title, judge, reads in (
        ("workload", "the run has a search", _SEARCHES.check_workload, (_JOBS,)),
        ("closed", "the task is that of a profile", _SEARCHES.check_task, (_RUN, _JOBS)),
        ("duration", "the search took long enough", aiperf_rules.check_duration, (_LOGS,)),
        ("precision", "the precision is allowed", aiperf_rules.check_precision, (_LOGS,)),
        ("error", "the best model is within the error limit", aiperf_rules.check_error, (_LOGS,)),
        (
            "new-weights",
            "every weight was trained in the search",
            aiperf_rules.check_new_weights,
            (_LOGS,),
        ),
        (
            "ended",
            "the search ended as planned, or once it had converged",
            aiperf_rules.check_ended,
            (_LOGS,),
        ),
        (
            "table-iv",
            "the search has what the paper fixes",
            aiperf_rules.check_table_iv,
            (_JOBS,),
        ),
        (
            "search-space",
            "every network was derived by morphs",
            aiperf_rules.check_search_space,
            (_BUFFER, _JOBS, _LOGS),
        ),
        (
            "rounds",
            "every candidate was trained as its round requires",
            aiperf_rules.check_rounds,
            (_BUFFER, _JOBS, _LOGS),
        ),
        (
            "tuned",
            "every worker tuned from the fifth round on",
            aiperf_rules.check_tuning,
            (_BUFFER, _JOBS, _LOGS),
        ),
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
    is_near = any(known.startswith(name) for known in RULE_SETS)
    if not is_near and name in conventions():
        raise UsageError(
            f"{name!r} is a counting convention, not a rule set",
            hint=f"rule sets: {', '.join(RULE_SETS)}; to count by it: "
            f"vflops count MODEL --rules {name}",
        )
    if name not in RULE_SETS:
        raise unknown_name("rule set", name, RULE_SETS)
    return RULE_SETS[name]


def rule_set_of(settings: Settings) -> RuleSet:
    """Return a paper's rule set for a run whose profile follows it, otherwise ``practice``."""
    published = [name for name in settings.workloads if name in HPCAI500_V2.workloads]
    if settings.profile not in PUBLISHED_PROFILES:
        return RULE_SETS["practice"]
    if published:
        bagged = any(settings.models_of(name) > 1 for name in published)
        return RULE_SETS["hpcai500-v3" if bagged else "hpcai500-v2"]
    return RULE_SETS["aiperf" if "automl" in settings.workloads else "practice"]
