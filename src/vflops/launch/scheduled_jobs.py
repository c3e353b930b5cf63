"""Jobs that a scheduler runs: their submission, and their status."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from vflops.errors import UsageError
from vflops.launch.agent_report import AgentReport, last_report
from vflops.launch.job_script import Request, Step
from vflops.launch.launcher import Launcher
from vflops.launch.node_layout import NodeLayout
from vflops.launch.outage import Outage, SchedulerUnavailable, patiently
from vflops.launch.placement import Node
from vflops.launch.scheduler import JobStatus, Scheduler
from vflops.launch.site import site_for
from vflops.launch.sizing import RankShare, rank_share
from vflops.launch.submissions import (
    Intent,
    Submitted,
    defer_signals,
    read_intents,
    read_submission,
)
from vflops.record.files import atomic
from vflops.record.folder import RunFolder

_SILENT_S = 120.0
"""How long a job may run before its output must be in the run folder."""
_LATE_S = 5.0
"""How long a new file may take to appear on a shared file system."""
_IN_FLIGHT_S = 5.0
"""How long a submission may still take after the submitting process has died."""
_STALE_S = 300.0
"""A script that the scheduler does not know after this time was not submitted, or has ended."""
_STEP_ERRORS = ("srun: error: ", "slurmstepd: error: ")
_LONGEST_S = 10.0
"""The longest time between two queries, so that a lost node is noticed soon."""
_NOT_THE_NODE = ("CANCELLED", "DEADLINE", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT")
"""Reasons for the end of a job for which its node is not to blame."""


class ScheduledJobs(Launcher):
    """Jobs that are identified by their recorded ids, and queried together."""

    gang = False
    """Whether all jobs start together, as steps of one allocation."""

    def __init__(self, folder: RunFolder, scheduler: Scheduler, jobs: Mapping[int, int]) -> None:
        """``jobs`` maps each job to its number of ranks."""
        self._folder, self._scheduler, self._run = folder, scheduler, folder.path.resolve()
        self._settings = folder.record.settings.launch
        self._site = site_for(self._settings, folder.path)
        ranks = next(iter(jobs.values()))
        self._layout = NodeLayout(ranks, self._settings.ranks_per_node or ranks)
        self._adopt()
        self._submitted = {job: record for job in jobs if (record := self._read(job)) is not None}
        self._statuses: dict[str, JobStatus] = {}
        self._looked_s = float("-inf")
        self._running_since_s: dict[str, float] = {}
        self._all_nodes: dict[str, tuple[str, ...]] = {}
        self._lost_nodes: dict[str, str] = {}
        self._restarts: dict[tuple[int, str], int] = {}

    @property
    def label(self) -> str:
        """The queue, or the allocation that the user already has."""
        return self._scheduler.label

    def active_jobs(self) -> Collection[int]:
        """Return the jobs that had not ended when the scheduler was last queried."""
        if time.monotonic() - self._looked_s >= min(self._scheduler.interval_s, _LONGEST_S):
            ids = sorted({record.id for record in self._submitted.values()})
            self._statuses = self._scheduler.look(ids)
            self._looked_s = time.monotonic()
            self._find_lost_nodes()
        return [
            job
            for job, record in self._submitted.items()
            if self._is_active(record) and not self._lost_nodes_of(job)
        ]

    def _find_lost_nodes(self) -> None:
        """Ask which nodes of running jobs are down: SLURM does not end their allocation."""
        running = {
            node
            for job in self._submitted
            if (status := self._status(job)) is not None and status.state == "running"
            for node in self._nodes(job)
        }
        self._lost_nodes = self._scheduler.down_nodes(sorted(running)) if running else {}

    def _lost_nodes_of(self, job: int) -> list[str]:
        """Return what the scheduler says about those nodes of the job that are down."""
        return [self._lost_nodes[node] for node in self._nodes(job) if node in self._lost_nodes]

    def location(self, job: int) -> str:
        """Return the job's nodes, or what the job waits for."""
        status = self._status(job)
        if status is None:
            return ""
        return ", ".join(self._nodes(job)) or (status.reason or status.state)

    def exit_reason(self, job: int) -> str | None:
        """Return the scheduler's reason and the last message of the job's agent."""
        status = self._status(job)
        if lost := self._lost_nodes_of(job):
            return f"{self.label}: node {'; node '.join(lost)}"
        reason = f"{self.label}: {status.reason}" if status and status.reason else None
        report = self._agent_report(job)
        text = report.text if report is not None else self._step_error(job)
        return "; ".join(filter(None, (reason, text))) or None

    def stop(self) -> None:
        """Ask all jobs of this run, and no others, to write a checkpoint and end."""
        self._prevent_retries()
        self._scheduler.stop(sorted({record.id for record in self._submitted.values()}))
        self._looked_s = float("-inf")

    def expect_end(self) -> None:
        """Query the scheduler soon, because the logs of the jobs have ended."""
        self._scheduler.expect_change()
        self._looked_s = float("-inf")

    def kill(self) -> None:
        """End all jobs of this run, and no others, that are queued or running."""
        self._prevent_retries()
        self._scheduler.cancel(sorted({self._submitted[job].id for job in self.active_jobs()}))
        self._looked_s = float("-inf")

    def suspects(self, job: int) -> Collection[str]:
        """Return the job's nodes, unless its end was intended or it reported an error itself."""
        if lost := [node for node in self._nodes(job) if node in self._lost_nodes]:
            return lost
        status, report = self._status(job), self._agent_report(job)
        if status is None or (status.reason or "").startswith(_NOT_THE_NODE):
            return ()
        if status.state != "ended" and not self.gang:  # it was requeued
            return ()
        if report is not None and report.outcome == "unseen":
            return (report.node,)
        return () if report is not None and not report.may_be_the_node else self._nodes(job)

    def is_excused(self, job: int, *, advanced: bool) -> bool:
        """Whether the attempt ended by a time limit, by preemption, or with a requeued job."""
        record, status = self._submitted.get(job), self._status(job)
        if record is None or status is None or self._lost_nodes_of(job):
            return False
        requeued = status.restarts > self._restarts.get((job, record.id), 0)
        self._restarts[job, record.id] = status.restarts
        report = self._agent_report(job)
        reason = status.reason or ""
        stopped = report is not None and report.outcome == "stopped"
        at_limit = advanced and (stopped or reason.startswith("TIMEOUT"))
        return requeued or at_limit or reason.startswith("PREEMPTED")

    def running_elsewhere(self, job: int) -> bool:
        """Whether the job's agent found another one running the job."""
        report = self._agent_report(job)
        return report is not None and report.outcome == "elsewhere"

    def invisible_reason(self, job: int) -> str | None:
        """Return why a job that ran wrote nothing to the run folder; None if all is well."""
        record, status = self._submitted.get(job), self._status(job)
        if record is None or status is None or not record.script:
            return None
        report = self._agent_report(job)
        if report is not None and report.outcome == "unseen":
            return report.text
        if status.state == "running" and not status.nodes:
            return None
        ran = status.state == "ended" and (status.reason or "").startswith(("FAILED", "COMPLETED"))
        since_s = self._running_since_s.setdefault(record.id, time.monotonic())
        if not ran and (status.state != "running" or time.monotonic() - since_s < _SILENT_S):
            return None
        end_s = time.monotonic() + (_LATE_S if ran else 0)
        while not self._log(record).exists():
            if time.monotonic() >= end_s:
                how = status.reason or f"running for {_SILENT_S:g} s"
                nodes = ", ".join(self._nodes(job)) or "its node"
                return f"job {job} ran on {nodes} ({self.label}: {how}) and wrote nothing here"
            time.sleep(0.5)
        return None

    def _step_error(self, job: int) -> str | None:
        """Return the first error of the job's step that never got to its agent."""
        record = self._submitted.get(job)
        if record is None or not record.script or not (log := self._log(record)).is_file():
            return None
        lines = log.read_bytes()[record.log_start :].decode(errors="replace").splitlines()
        return next((line for line in lines if line.startswith(_STEP_ERRORS)), None)

    def _agent_report(self, job: int) -> AgentReport | None:
        """Return the last report of the job's agent in the output of its script."""
        record = self._submitted.get(job)
        if record is None or not record.script or not (log := self._log(record)).is_file():
            return None
        return last_report(log.read_bytes()[record.log_start :], job)

    def _prevent_retries(self) -> None:
        """Keep the script from retrying jobs by itself."""

    def _log(self, record: Submitted) -> Path:
        return (self._folder.path / record.script).with_suffix(".log")

    def _status(self, job: int) -> JobStatus | None:
        record = self._submitted.get(job)
        return self._statuses.get(record.id) if record else None

    def _nodes(self, job: int) -> tuple[str, ...]:
        """Return the nodes of the job, including dead ones that the scheduler no longer lists."""
        record, status = self._submitted.get(job), self._status(job)
        if record is None or status is None:
            return ()
        nodes = max(status.nodes, self._all_nodes.get(record.id, ()), key=len)
        self._all_nodes[record.id] = nodes
        end = None if record.nodes is None else record.first_node + record.nodes
        return nodes[record.first_node : end]

    def _is_active(self, record: Submitted) -> bool:
        status = self._statuses.get(record.id)
        return status is None or status.state != "ended"

    def _adopt(self) -> None:
        """Find the ids of scripts whose controller died while submitting them."""
        for intent in read_intents(self._folder):
            if intent.scheduler != self.label:
                continue
            hint = f"vflops attach {self._folder.path} when {self.label} answers"
            outage = Outage(self.label, hint=hint)
            native = patiently(partial(self._find, intent), outage)
            if native is not None:
                intent.settle(self._folder, native)
            elif intent.age_s(self._folder) > _STALE_S:
                intent.forget(self._folder)

    def _find(self, intent: Intent) -> str | None:
        """Return the id of a script that may have been submitted; wait if it may be on its way."""
        left_s = min(_IN_FLIGHT_S - intent.age_s(self._folder), _IN_FLIGHT_S)
        end_s, file = time.monotonic() + left_s, intent.file(self._folder)
        native = self._scheduler.find(intent.name, file)
        while native is None and time.monotonic() < end_s:
            time.sleep(0.5)
            native = self._scheduler.find(intent.name, file)
        return native

    def _submit(
        self, steps: Sequence[Step], request: Request, script: Callable[[Request], str]
    ) -> None:
        """Submit a script; record its name before the submission, and its id afterwards."""
        path, log = str(request.script.relative_to(self._folder.path)), request.output
        start = log.stat().st_size if log.is_file() else 0
        jobs = {
            step.job: Submitted(
                scheduler=self.label,
                id="",
                attempt=self._next_attempt(step.job),
                script=path,
                first_node=step.first_node,
                nodes=step.nodes,
                log_start=start,
            )
            for step in steps
        }
        intent = Intent(name=request.name, scheduler=self.label, script=path, jobs=jobs)
        atomic.write_text(request.script, script(request))
        with defer_signals():
            intent.write_beside(self._folder)
            try:
                self._settle(intent, self._scheduler.submit(request))
                return
            except SchedulerUnavailable as error:
                unavailable: SchedulerUnavailable | None = error
            except UsageError:  # after other errors, the script may still have been accepted
                intent.forget(self._folder)
                if not request.exclude:
                    raise
                unavailable = None
        if unavailable is not None:
            self._submit_later(intent, request, unavailable)
            return
        # Too few nodes may be left, so try again with the excluded ones.
        self._submit(steps, replace(request, exclude=()), script)

    def _submit_later(self, intent: Intent, request: Request, error: SchedulerUnavailable) -> None:
        """Submit a script as soon as the scheduler answers, unless it was accepted before."""
        hint = f"nothing is lost: vflops resume {self._folder.path} when {self.label} answers"
        outage, uncertain = Outage(self.label, hint=hint), error.may_have_succeeded
        while True:
            outage.wait(error)
            with defer_signals():
                try:
                    native = self._find(intent) if uncertain else None
                    self._settle(intent, native or self._scheduler.submit(request))
                    break
                except SchedulerUnavailable as again:
                    error, uncertain = again, uncertain or again.may_have_succeeded
        outage.over()

    def _settle(self, intent: Intent, native: str) -> None:
        """Record the id of the jobs of a script that was submitted."""
        self._submitted |= intent.settle(self._folder, native)
        self._looked_s = float("-inf")

    def _next_attempt(self, job: int) -> int:
        before = self._submitted.get(job)
        return before.attempt + 1 if before else 1

    def _request(
        self, stem: str, folder: Path, nodes: int, tasks: int, exclude: Iterable[str], number: int
    ) -> Request:
        """Return the request for a script; ``number`` counts its submissions."""
        run = self._folder.record.id.rpartition("-")[2]
        share, settings = self._share(), self._folder.record.settings
        shared = settings.launch.rehearse  # one task has all that the ranks of a node share
        return Request(
            name=f"vflops-{run}-{stem}" + (f"-{number}" if number > 1 else ""),
            script=folder / f"{stem}.sh",
            nodes=nodes,
            tasks_per_node=1 if shared else tasks,
            cores_per_task=share.cores,
            gpus_per_task=share.gpus,
            gpu_type=share.gpu_type,
            memory_mb_per_task=share.memory_mb,
            output=folder / f"{stem}.log",
            site=self._site,
            exclude=tuple(exclude),
            limit_s=self._limit_s(),
            measures=bool(settings.micro.benchmarks) and not shared,
            overlap=shared,
        )

    def _limit_s(self) -> float | None:
        """Return the time limit of the jobs; None if it is not known."""
        return self._site.time_limit_s

    def _nodes_for_ranks(self) -> Sequence[Node]:
        """Return the nodes that the scheduler may give to the jobs."""
        return ()

    def _share(self) -> RankShare:
        """Return what each rank gets, the same on all nodes that have room for its node's ranks."""
        layout, whole = self._layout, self._site.exclusive or self._scheduler.owns_nodes
        used = layout.ranks_per_node if whole and not self.gang else layout.slots
        nodes = [node for node in self._nodes_for_ranks() if node.slots >= used]
        return rank_share(nodes, used, self._settings, whole=whole)

    def _read(self, job: int) -> Submitted | None:
        record = read_submission(self._folder, job)
        return record if record is not None and record.scheduler == self._scheduler.label else None
