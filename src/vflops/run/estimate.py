"""Estimates of the time, memory and storage that a run needs, from settings and earlier runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from vflops.config.settings import Settings
from vflops.config.training import TrainSettings, WorkloadSettings
from vflops.counting.conventions import convention
from vflops.counting.count import Count, count
from vflops.extensions import import_object
from vflops.launch.placement import Plan, plan
from vflops.record.formats.batch_ops import BatchOps
from vflops.record.formats.graph import Graph
from vflops.record.formats.job import DataFacts, DeclaredWork
from vflops.record.readout.contents import Contents
from vflops.record.readout.job_ceilings import main_ceilings
from vflops.results.roofline.run_ceilings import run_ceilings
from vflops.results.score.scoring import score
from vflops.results.score.training_score import training_scores
from vflops.results.score.unscored import require_measurement
from vflops.run.captured_graphs import counted_before
from vflops.run.jobs import PreparedWorkload
from vflops.run.training_cost import Estimate, Speed, Training, bounding_speed, measured_speed
from vflops.run.training_cost import estimate as estimate_training
from vflops.run.validate import check_batch, check_model, rehearsed_fault
from vflops.workloads.contract.expected_data import ExpectedData
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.run_settings import workload_settings
from vflops.workloads.contract.spec import ENGINE, WorkloadSpec

_NOT_ABOUT_MODEL = {"train", "data", "target", "synthetic", "models"}
"""Settings that do not change the model; facts about the data are compared separately."""

ShowStep = Callable[[str], AbstractContextManager[object]]


def estimate_run(
    settings: Settings,
    placement: Plan,
    earlier: Contents | None,
    show_step: ShowStep = lambda text: nullcontext(),
) -> dict[str, Estimate]:
    """Return an estimate for each workload of a run, with its models placed as in ``placement``.

    Raise if the run would reject a model. The speed is estimated from the run ``earlier``, if any.
    ``show_step`` is called with a description of each slow operation, and returns a context in
    which the operation is executed.
    """
    return {
        name: _WorkloadEstimator(
            workload(name),
            section,
            settings,
            _own_placement(section, settings, placement),
            earlier,
            show_step,
        ).estimate()
        for name, section in workload_settings(settings).items()
    }


def _own_placement(section: WorkloadSettings, settings: Settings, placement: Plan) -> Plan:
    """Return ``placement``, or that of a workload of a suite with another number of models."""
    shape = (section.models or settings.bagging.models, section.train.ranks)
    if shape == (placement.models, placement.ranks):
        return placement
    return plan(placement.nodes, *shape, waves=settings.bagging.waves)


def short_training(settings: Settings) -> list[str]:
    """Return the settings with which every workload trains for one epoch only."""
    assignments = []
    for name, section in workload_settings(settings).items():
        prefix = "" if len(settings.workloads) == 1 else f"{name}."
        assignments.append(f"{prefix}train.epochs=1")
        if section.train.warmup_epochs > 0:
            assignments.append(f"{prefix}train.warmup_epochs=0")
        if section.train.milestones:
            assignments += [f"{prefix}train.schedule=constant", f"{prefix}train.milestones=[]"]
    return assignments


def check_searches(
    settings: Settings, show_step: ShowStep = lambda text: nullcontext()
) -> list[str]:
    """Raise if a run would reject one of its searches after preparing the data.

    Return why the run that a rehearsal stands for would reject one.
    """
    rejected = []
    for name, section in workload_settings(settings).items():
        spec = workload(name)
        if spec.is_search:
            data = _expected_data(spec, section, settings.profile, show_step)
            check_model(spec, section, data.facts)
            check_batch(settings, spec, section.train, data.facts.train)
            rejected.append(rehearsed_fault(settings, spec, section.train, data.facts.train))
    return [text for text in rejected if text is not None]


def _expected_data(
    spec: WorkloadSpec, section: WorkloadSettings, profile: str, show_step: ShowStep
) -> ExpectedData:
    """Return a description of the data, which is prepared if nothing else describes it."""
    expected: ExpectedData | None = None
    if spec.expected is not None:
        expected = import_object(spec.expected)(section)
    if expected is not None:
        return expected
    with show_step(f"preparing the data of {spec.name}, which its settings do not describe"):
        facts = spec.load_code().prepare_data(section, lambda text, done, whole: None)
    PreparedWorkload(spec, section, facts).goal(profile)  # raises if no quality can be the target
    return ExpectedData(facts, None, None)


@dataclass(frozen=True)
class _WorkloadEstimator:
    """Estimates one workload of a planned run."""

    spec: WorkloadSpec
    section: WorkloadSettings
    settings: Settings
    placement: Plan
    earlier: Contents | None
    show_step: ShowStep

    def estimate(self) -> Estimate:
        data = _expected_data(self.spec, self.section, self.settings.profile, self.show_step)
        with self.show_step(f"checking the model of {self.spec.name}"):
            footprint = check_model(self.spec, self.section, data.facts)
        check_batch(self.settings, self.spec, self.section.train, data.facts.train)
        work = self._work(data.facts)
        counted, parameters = None, None
        if isinstance(work, Graph):
            counted, parameters = count(work, convention(self.spec.rules)), work.parameter_count
            ops = counted.total
            batch_ops = BatchOps(batch=work.batch, forward=ops.forward, total=ops.total)
        else:
            batch_ops = BatchOps(batch=1, forward=work.ops_forward, total=work.ops_total)
        bagging, by_engine = self.settings.bagging, self.spec.runner == ENGINE
        training = Training(
            train=self.section.train,
            samples=data.facts.train,
            validation=data.facts.validation,
            test=data.facts.test,
            data_bytes=data.size_bytes,
            batch_ops=batch_ops,
            parameters=parameters,
            kept_bytes=data.kept_bytes,
            out_of_bag=bagging.out_of_bag * by_engine if self.placement.models > 1 else None,
            combine_every=by_engine
            * bagging.combine_interval(
                self.placement.models,
                self.section.train.epochs // self.section.train.evaluate_every,
            ),
            footprint=footprint,
        )
        speed, unknown = self._speed(training, counted)
        repeat = self.settings.repeat
        needs = estimate_training(
            self.placement, training, repeat=repeat, speed=speed, unknown=unknown
        )
        rejected = rehearsed_fault(self.settings, self.spec, self.section.train, data.facts.train)
        return needs.model_copy(update={"remarks": data.remarks, "real_run": rejected})

    def _work(self, data: DataFacts) -> Graph | DeclaredWork:
        """Return the model's graph, from an earlier run or from torch, or its declared work."""
        known = self._known_graph(self.earlier, data) if self.earlier else None
        if known is not None:
            return known
        return counted_before(self.spec, self.section, data, lambda: self._captured(data))

    def _captured(self, data: DataFacts) -> Graph | DeclaredWork:
        with self.show_step(f"counting the operations of {self.spec.name}"):
            code = self.spec.load_code()
            work: Graph | DeclaredWork = code.work(self.section, data, self.spec.name)
        return work

    def _known_graph(self, earlier: Contents, data: DataFacts) -> Graph | None:
        settings = self.section.model_dump(mode="json", exclude=_NOT_ABOUT_MODEL)
        for job in (job for job in earlier.training_jobs if job.record.workload == self.spec.name):
            same_settings = {key: job.record.settings.get(key) for key in settings} == settings
            same_facts = {key: job.record.data.facts.get(key) for key in data.facts} == data.facts
            for graph in earlier.graphs if same_settings and same_facts else ():
                if graph.model == self.spec.name and graph.batch == self.section.train.rank_batch:
                    return graph
        return None

    def _speed(self, training: Training, counted: Count | None) -> tuple[Speed | None, str]:
        """Return the speed from an earlier run or its ceilings, and the reason if it is None."""
        name, placement, earlier = self.spec.name, self.placement, self.earlier
        if earlier is None:
            return None, "not known: name an earlier run with --like RUN"
        require_measurement(earlier, "no time can be estimated from them")
        run = earlier.folder.path.name
        speed = measured_speed(training_scores(earlier), name, training, run)
        if speed is None and counted is not None:
            on_cpu = any(item.device == "cpu" for item in main_ceilings(earlier) if item.precision)
            # All CPUs are measured as one device, which a node's ranks share.
            share = placement.ranks / (min(node.slots for node in placement.nodes) if on_cpu else 1)
            speed = bounding_speed(counted, run_ceilings(earlier), training, run, share=share)
        precision = training.train.precision
        return speed, (
            f"not known: {run} neither trained {name} in {precision} nor measured the ceilings"
        )


def search_speed(train: TrainSettings, earlier: Contents) -> float | None:
    """Return the operations per second of a worker in an earlier search, scaled to its ranks.

    Return None if there is none in this precision.
    """
    searches, workers = score(earlier).searches, earlier.workers
    precisions = {worker.record.settings["train"]["precision"] for worker in workers}
    if not searches or not searches[0].ops_per_s or precisions != {train.precision}:
        return None
    ranks = sum(worker.record.ranks for worker in workers)
    return searches[0].ops_per_s / ranks * train.ranks
