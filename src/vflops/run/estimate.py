"""What the trainings of a run would need, before anything runs: from settings and earlier runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from vflops.config.settings import Settings
from vflops.config.training import WorkloadSettings
from vflops.counting.conventions import SCORING_CONVENTION, convention
from vflops.counting.count import Count, count
from vflops.extensions import imported
from vflops.launch.placement import Plan
from vflops.record.formats.graph import Graph
from vflops.record.formats.job import DataFacts, DeclaredWork
from vflops.record.readout.contents import Contents
from vflops.results.roofline.analysis import measured_ceilings
from vflops.results.score.training_score import training_scores
from vflops.run.training_cost import Estimate, Speed, Training, bounding_speed, measured_speed
from vflops.run.training_cost import estimate as reckon
from vflops.run.validate import check_model
from vflops.workloads.contract.expected_data import ExpectedData
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.run_settings import workload_settings
from vflops.workloads.contract.spec import WorkloadSpec

_NOT_THE_MODELS = {"train", "data", "target", "synthetic", "models"}
"""Settings that a model is the same with or without; what its data decides is compared itself."""

Working = Callable[[str], AbstractContextManager[object]]


def estimate_run(
    settings: Settings,
    mapping: Plan,
    earlier: Contents | None,
    working: Working = lambda text: nullcontext(),
) -> dict[str, Estimate]:
    """What each workload of a run would take, its models placed as ``mapping`` says.

    Refused where the run would refuse a model.
    ``earlier``: a run that says how fast it would be. ``working`` wraps what takes its time.
    """
    return {
        name: _Foresight(workload(name), section, settings, mapping, earlier, working).estimate()
        for name, section in workload_settings(settings).items()
    }


def check_searches(settings: Settings) -> None:
    """Refuse a search that a run would refuse once it had the data."""
    for name, section in workload_settings(settings).items():
        spec = workload(name)
        if spec.is_search and spec.expected is not None:
            found: ExpectedData = imported(spec.expected)(section)
            check_model(spec, section, found.facts)


@dataclass(frozen=True)
class _Foresight:
    """One workload of a run that is not yet."""

    spec: WorkloadSpec
    section: WorkloadSettings
    settings: Settings
    mapping: Plan
    earlier: Contents | None
    working: Working

    def estimate(self) -> Estimate:
        data = self._data()
        with self.working(f"looking at {self.spec.name}"):
            held = check_model(self.spec, self.section, data.facts)
        work = self._work(data.facts)
        counted, parameters = None, None
        if isinstance(work, Graph):
            counted, parameters = count(work, convention(SCORING_CONVENTION)), work.parameter_count
            ops = counted.total
            forward, total = ops.forward // work.batch, ops.total // work.batch
        else:
            forward, total = work.ops_forward, work.ops_total
        one = Training(
            train=self.section.train,
            samples=data.facts.train,
            validation=data.facts.validation,
            test=data.facts.test,
            data_bytes=data.size_bytes,
            ops_forward=forward,
            ops_total=total,
            parameters=parameters,
            kept_bytes=data.kept_bytes,
            out_of_bag=self.settings.bagging.out_of_bag if self.mapping.models > 1 else None,
            held=held,
        )
        speed, unknown = self._speed(one, counted)
        repeat = self.settings.repeat
        return reckon(self.mapping, one, repeat=repeat, speed=speed, unknown=unknown)

    def _data(self) -> ExpectedData:
        if self.spec.expected is not None:
            found: ExpectedData = imported(self.spec.expected)(self.section)
            return found
        with self.working(f"making the data of {self.spec.name}: its settings do not describe it"):
            code = self.spec.load_code()
            made = code.prepare_data(self.section, lambda text, done, whole: None)
        return ExpectedData(made, None, None)

    def _work(self, data: DataFacts) -> Graph | DeclaredWork:
        """The model's graph: that of an earlier run of the same model, else captured by torch."""
        known = self._known_graph(self.earlier, data) if self.earlier else None
        if known is not None:
            return known
        with self.working(f"counting {self.spec.name}"):
            code = self.spec.load_code()
            found: Graph | DeclaredWork = code.work(self.section, data, self.spec.name)
        return found

    def _known_graph(self, earlier: Contents, data: DataFacts) -> Graph | None:
        own = self.section.model_dump(mode="json", exclude=_NOT_THE_MODELS)
        for job in (job for job in earlier.trained if job.record.workload == self.spec.name):
            same = {key: job.record.settings.get(key) for key in own} == own
            known = {key: job.record.data.facts.get(key) for key in data.facts} == data.facts
            for graph in earlier.graphs if same and known else ():
                if graph.model == self.spec.name and graph.batch == self.section.train.rank_batch:
                    return graph
        return None

    def _speed(self, one: Training, counted: Count | None) -> tuple[Speed | None, str]:
        """As an earlier run trained, else as its ceilings allow; else why it is not known."""
        name, mapping, earlier = self.spec.name, self.mapping, self.earlier
        if earlier is None:
            short = f"vflops run {name} --profile {self.settings.profile} --set train.epochs=1"
            short += " --set train.warmup_epochs=0"
            return None, f"not known: give an earlier run, --like RUN; a short one: {short}"
        run = earlier.folder.path.name
        speed = measured_speed(training_scores(earlier), name, one, run)
        if speed is None and counted is not None:
            on_cpu = any(each.device == "cpu" for each in earlier.measurements if each.precision)
            # Processors were measured as one, and a node's ranks share them; devices one by one.
            share = mapping.ranks / (min(each.slots for each in mapping.nodes) if on_cpu else 1)
            speed = bounding_speed(
                counted, measured_ceilings(earlier.measurements), one, run, share=share
            )
        return speed, f"not known: {run} has neither trained {name} nor its ceilings"
