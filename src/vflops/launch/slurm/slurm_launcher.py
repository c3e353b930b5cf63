"""Runs jobs on SLURM, as steps of one allocation or each submitted separately."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from vflops.config.launch import LaunchSettings
from vflops.launch import site
from vflops.launch.agent_report import AgentReport, last_report
from vflops.launch.job_history import nodes_that_lost_jobs
from vflops.launch.job_script import NODE_CHECK, PREFLIGHT, Request, Step
from vflops.launch.launcher import Ending, How, Launcher, Look
from vflops.launch.node_clock import serve_clock
from vflops.launch.node_layout import NodeLayout
from vflops.launch.placement import Node
from vflops.launch.scheduler import EndedBy, JobStatus
from vflops.launch.site import SiteSettings
from vflops.launch.sizing import RankShare, rank_share
from vflops.launch.slurm.commands import step_error
from vflops.launch.slurm.node_silence import NodeSilence
from vflops.launch.slurm.sbatch_script import STOP, allocation_script, job_script
from vflops.launch.slurm.slurm_allocation import scheduler_of_run, slurm_scheduler
from vflops.launch.slurm.slurm_nodes import (
    current_allocation,
    node_addresses,
    nodes_to_check,
)
from vflops.launch.slurm.slurm_resources import nodes_for_ranks, nodes_with_room
from vflops.launch.slurm.slurm_scheduler import SlurmScheduler, require_slurm
from vflops.launch.slurm.step_ends import StepEnd, StepEnds
from vflops.launch.slurm.submissions import Submissions
from vflops.launch.slurm.time_limits import time_limit_s
from vflops.launch.waiting import refresh_listing
from vflops.record.files import atomic
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord

_CHECK_LIMIT = "0:15"
"""The time limit of a preflight's allocation; a short one starts sooner."""
_SILENT_S = 120.0
"""How long a job may run before its output must be in the run folder.

A prolog of the site may take as long. The script itself ends as soon as its nodes do not see the
folder, and what it wrote is missing only once SLURM says that it has ended.
"""
_LATE_S = 5.0
"""How long a new file may take to appear on a shared file system."""
_AWAITED_S = 5.0
"""The longest time between two queries while the output of a job is missing.

With ``_LATE_S`` and the time that the nodes look for the folder it is less than 15 s.
"""
_LONGEST_S = 10.0
"""The longest time between two queries of jobs, and the time between two queries of nodes."""
_SETTLE_S = 3.0
"""How long an allocation may run on after a step of it has ended, if it ends for the same reason;
jobs that die within this time restart together."""
_LIMIT_S = 300.0
"""The same after a step that ended because of the time limit, of which SLURM warns all steps."""
_NOT_THE_NODE: tuple[EndedBy, ...] = ("cancellation", "memory", "preemption", "time limit")
"""Ends of a job for which its node is not to blame."""


class SlurmLauncher(Launcher):
    """SLURM's queue, or the allocation that the command runs in.

    Jobs that start together are steps of one allocation, whose script itself retries a step that
    dies; jobs that it gives up, or that have not finished when it ends, get another allocation.
    """

    name = "slurm"

    @classmethod
    def check(cls, settings: LaunchSettings) -> None:
        """Raise UsageError if SLURM is not installed here, or ``site.toml`` is wrong."""
        SlurmScheduler()
        site.site_for(settings)

    @classmethod
    def nodes(cls, settings: LaunchSettings, device: str) -> list[Node]:
        """Return the nodes of the partition that are up, or those of the current allocation."""
        require_slurm()
        return nodes_for_ranks(settings, device, current_allocation())

    @classmethod
    def gang_scheduled(cls, settings: LaunchSettings) -> bool:
        """Whether all jobs run as steps of one allocation; in the current one they always do."""
        return settings.start == "together" or cls.nodes_reserved()

    @classmethod
    def nodes_reserved(cls) -> bool:
        """Whether the command runs in an allocation."""
        return current_allocation() is not None

    @classmethod
    def nodes_to_check(cls, nodes: int | None, site: SiteSettings) -> tuple[int, Mapping[str, str]]:
        """Return how many nodes can be checked, and which of those requested are unusable."""
        require_slurm()
        return nodes_to_check(nodes, site.used_partition)

    @classmethod
    @contextmanager
    def checking(
        cls, folder: Path, site: SiteSettings, nodes: int, each: RankShare
    ) -> Iterator[Look]:
        """Check each node in a step of one script, which is kept in the folder."""
        request = Request(
            name="vflops-preflight",
            script=folder / PREFLIGHT,
            nodes=nodes,
            tasks_per_node=1,
            cores_per_task=each.cores,
            gpus_per_task=each.gpus,
            gpu_type=each.gpu_type if each.gpus else None,
            memory_mb_per_task=each.memory_mb,
            output=folder / "preflight.log",
            site=site.model_copy(update={"time_limit": _CHECK_LIMIT}),
        )
        # One step per node: a node that cannot be reached does not affect the others.
        steps = [Step(node, node, 1, 1) for node in range(nodes)]
        atomic.write_text(request.script, allocation_script(request, folder, steps, NODE_CHECK))
        scheduler = slurm_scheduler(folder)
        native = scheduler.submit(request)
        known, looked_s = JobStatus("waiting", (), None), float("-inf")

        def look() -> JobStatus:
            nonlocal known, looked_s
            if time.monotonic() - looked_s > scheduler.interval_s:
                now = scheduler.look([native])[native]
                # SLURM drops a node that dies from the list, which would renumber the others.
                known = JobStatus(now.state, max(now.nodes, known.nodes, key=len), now.reason)
                looked_s = time.monotonic()
            return known

        try:
            yield look
        finally:
            scheduler.cancel([native])

    @classmethod
    @contextmanager
    def controlling(cls, folder: RunFolder) -> Iterator[None]:
        """Serve this machine's clock to the nodes."""
        with serve_clock(folder, node_addresses(site.site_of_run(folder.path).used_partition)):
            yield

    def __init__(self, folder: RunFolder, records: Sequence[JobRecord]) -> None:
        jobs = [record.job for record in records]
        self._folder, self._run = folder, folder.path.resolve()
        self._settings = folder.record.settings.launch
        self._device, ranks = records[0].settings["train"]["device"], records[0].ranks
        self._site = site.site_for(self._settings, folder.path)
        self._layout = NodeLayout(ranks, self._settings.ranks_per_node or ranks)
        self._scheduler = scheduler = scheduler_of_run(folder, jobs)
        self.gang = scheduler.allocation is not None or self._settings.start == "together"
        self._submissions = Submissions(folder, scheduler, jobs)
        self._submitted = self._submissions.newest
        self._statuses: dict[str, JobStatus] = {}
        self._looked_s = float("-inf")
        self._running_since_s: dict[str, float] = {}
        self._all_nodes: dict[str, tuple[str, ...]] = {}
        self._lost_nodes: dict[tuple[str, str], str] = {}
        self._nodes_asked_s = float("-inf")
        self._silence = NodeSilence(folder)
        self._step_ends = StepEnds()
        self._ended_steps: dict[tuple[int, str], tuple[StepEnd, float]] = {}

    @property
    def label(self) -> str:
        """The queue, or the allocation that the user already has."""
        return self._scheduler.label

    def start(self, jobs: Mapping[int, int]) -> Collection[int]:
        """Submit the jobs: all in one allocation, once none of them is active, or each alone.

        Other jobs may still train in other allocations. The run keeps a copy of ``site.toml``.
        """
        site.copy_to_run(self._folder.path)
        if not self.gang:
            limit_s = time_limit_s(self._site)
            for job in jobs:
                self._start_alone(job, limit_s)
        elif not jobs.keys().isdisjoint(self.active_jobs()):
            return ()
        else:
            self._start_together(jobs)
        self._looked_s = float("-inf")
        return jobs

    def _start_together(self, jobs: Mapping[int, int]) -> None:
        steps = self._layout.steps(jobs)
        nodes = max(step.first_node + step.nodes for step in steps)
        number = 1 + len(list(self._folder.path.glob("allocation-*.sh")))
        stem, folder = f"allocation-{number}", self._folder.path
        limit_s = time_limit_s(self._site)
        request = self._request(stem, folder, nodes, self._layout.slots, limit_s)
        script = partial(allocation_script, run=self._run, steps=steps)
        self._submissions.submit(steps, request, script)

    def _start_alone(self, job: int, limit_s: float | None) -> None:
        nodes, ranks = self._layout.nodes, self._layout.ranks_per_node
        folder, number = self._folder.job_file(job).parent, self._submissions.next_attempt(job)
        request = self._request(f"job-{job}", folder, nodes, ranks, limit_s, number)
        script = partial(job_script, run=self._run, job=job)
        self._submissions.submit([Step(job, 0, nodes, ranks)], request, script)

    def _request(
        self,
        stem: str,
        folder: Path,
        nodes: int,
        tasks: int,
        limit_s: float | None,
        number: int = 1,
    ) -> Request:
        """Return the request for a script; ``number`` counts its submissions."""
        run = self._folder.record.id.rpartition("-")[2]
        share = self._submissions.share or self._first_share()
        rehearse = self._settings.rehearse  # one task has all that the ranks of a node share
        return Request(
            name=f"vflops-{run}-{stem}" + (f"-{number}" if number > 1 else ""),
            script=folder / f"{stem}.sh",
            nodes=nodes,
            tasks_per_node=1 if rehearse else tasks,
            cores_per_task=share.cores,
            gpus_per_task=share.gpus,
            gpu_type=share.gpu_type,
            memory_mb_per_task=share.memory_mb,
            output=folder / f"{stem}.log",
            site=self._site,
            exclude=tuple(nodes_that_lost_jobs(self._folder)),
            limit_s=limit_s,
            checks_folder=True,
            measures=bool(self._folder.record.settings.micro.benchmarks) and not rehearse,
            overlap=rehearse,
        )

    def _first_share(self) -> RankShare:
        """Return what each rank gets: the same on all nodes that have room for its node's ranks.

        Retries reuse it, whatever nodes are up by then.
        """
        allocation, layout = self._scheduler.allocation, self._layout
        whole = self._site.exclusive or allocation is not None
        used = layout.ranks_per_node if whole and not self.gang else layout.slots
        roomy = nodes_with_room(self._settings, self._site, self._device, allocation, used)
        return rank_share(roomy, used, self._settings, whole=whole)

    def active_jobs(self) -> Collection[int]:
        """Return the jobs that had not ended when the scheduler was last queried."""
        self._find_ended_steps()
        if self._is_query_due():
            self._statuses = self._scheduler.look(self._submissions.ids)
            self._looked_s = time.monotonic()
        self._find_lost_nodes()
        return [job for job in self._submitted if self._is_active(job)]

    def _is_active(self, job: int) -> bool:
        status = self._status(job)
        ended = status is not None and status.state == "ended"
        return not (ended or self._lost_nodes_of(job) or self._given_up_by_script(job))

    def _is_query_due(self) -> bool:
        now_s = time.monotonic()
        since_s = now_s - self._looked_s
        if since_s >= min(self._scheduler.interval_s, _LONGEST_S):
            return True
        if any(self._looked_s < due_s <= now_s for _, due_s in self._ended_steps.values()):
            return True
        return since_s >= _AWAITED_S and any(
            not self._submissions.log(record).exists()
            for job, record in self._submitted.items()
            if record.script and self._has_started(job)
        )

    def _has_started(self, job: int) -> bool:
        status = self._status(job)
        return status is not None and status.state != "waiting"

    def _find_ended_steps(self) -> None:
        """Read which steps the scripts have given up, and when each may count as ended."""
        scripts = {record.script for record in self._submitted.values()} if self.gang else set()
        ends = {script: self._step_ends.of(self._folder.path / script) for script in scripts}
        before, self._ended_steps = self._ended_steps, {}
        for job, record in self._submitted.items():
            if job not in ends.get(record.script, {}):
                continue
            end, seen_s = ends[record.script][job]
            key = job, record.id
            if key in before:
                self._ended_steps[key] = before[key]
                continue
            self._nodes_asked_s = float("-inf")  # its node may be down
            report = self._agent_report(job)
            limited = report is not None and report.outcome == "limit"
            self._ended_steps[key] = end, seen_s + (_LIMIT_S if limited else _SETTLE_S)

    def _given_up_by_script(self, job: int) -> StepEnd | None:
        """Return the end of the job's last step if the allocation still runs for other jobs.

        An allocation that has just ended, or was requeued, does not run at the next query.
        """
        record, status = self._submitted.get(job), self._status(job)
        if record is None or status is None or status.state != "running" or status.reason:
            return None
        end, due_s = self._ended_steps.get((job, record.id), (None, 0.0))
        return end if self._looked_s >= due_s else None

    def _find_lost_nodes(self) -> None:
        """Ask which nodes of running jobs are down: SLURM does not end their allocation.

        A node that SLURM does not reach is lost once its jobs are silent, too. If slurmctld is
        silent, sinfo blocks for long, so the time counts from its end.
        """
        if time.monotonic() - self._nodes_asked_s < _LONGEST_S:
            return
        running: dict[tuple[str, str], list[int]] = {}
        for job, record in self._submitted.items():
            if (status := self._status(job)) is not None and status.state == "running":
                for node in self._nodes(job):
                    running.setdefault((record.id, node), []).append(job)
        self._lost_nodes = {}
        if not running:
            return
        found = self._scheduler.unreachable_nodes(sorted({node for _, node in running}))
        for (native, node), jobs in running.items():
            state = found.get(node)
            if state is None:
                continue
            if state.is_down:
                self._lost_nodes[native, node] = state.text
            elif self._silence.is_silent(node, jobs):
                silent = f"its jobs have written nothing for {self._silence.limit_s:g} s"
                self._lost_nodes[native, node] = f"{state.text}, and {silent}"
        self._nodes_asked_s = time.monotonic()

    def _lost_nodes_of(self, job: int) -> dict[str, str]:
        """Return those nodes of the job that are down, with what the scheduler says about each."""
        record, lost = self._submitted.get(job), self._lost_nodes
        if record is None or not lost:
            return {}
        pairs = [(record.id, node) for node in self._nodes(job)]
        return {pair[1]: lost[pair] for pair in pairs if pair in lost}

    def location(self, job: int) -> str:
        """Return the job's nodes, or what the job waits for."""
        status = self._status(job)
        if status is None:
            return ""
        return ", ".join(self._nodes(job)) or (status.reason or status.state)

    def ending(self, job: int) -> Ending:
        """Return the scheduler's reason and the last report of the job's agent."""
        if lost := self._lost_nodes_of(job):
            reason = f"{self.label}: node {'; node '.join(lost.values())}"
            return Ending(reason=reason, suspects=[*lost])
        status, report = self._status(job), self._agent_report(job)
        reason = f"{self.label}: {status.reason}" if status and status.reason else ""
        error = self._step_error(job) if report is None else None
        end = self._given_up_by_script(job)
        if end is not None and report is None and error is None:
            error = f"its step ended with exit code {end.code}"
        text = "; ".join(filter(None, (reason, error))) or None
        how = self._how(job, status, report)
        # A job that was requeued has other nodes by now.
        suspects = () if how == "requeue" else self._suspects(job, report)
        return Ending(how, text, report, suspects)

    def _how(self, job: int, status: JobStatus | None, report: AgentReport | None) -> How:
        """Return how the attempt ended; an agent that was stopped may not say why."""
        record, outcome = self._submitted.get(job), report.outcome if report is not None else None
        if outcome == "elsewhere":
            return "elsewhere"
        if record is None or status is None:
            return "fault"
        if status.restarts > record.restarts:
            self._submissions.record_restarts(job, status.restarts)
            return "requeue"
        if status.ended_by == "preemption":
            return "requeue"
        if status.ended_by == "cancellation":
            return "cancelled"
        if outcome in ("failed", "killed", "hung"):  # the time limit came later
            return "fault"
        return "limit" if outcome == "limit" or status.ended_by == "time limit" else "fault"

    def stop(self) -> None:
        """Ask all jobs of this run, and no others, to write a checkpoint and end."""
        self._prevent_retries()
        self._scheduler.stop(self._submissions.ids)
        self._looked_s = float("-inf")

    def kill(self) -> None:
        """End all jobs of this run, and no others, that are queued or running."""
        self._prevent_retries()
        self._scheduler.cancel(sorted({self._submitted[job].id for job in self.active_jobs()}))
        self._looked_s = float("-inf")

    def _prevent_retries(self) -> None:
        # A script that waits before a retry has no step that could be signalled.
        if self.gang:
            for script in {record.script for record in self._submitted.values() if record.script}:
                atomic.write_text((self._folder.path / script).with_suffix(STOP), "")

    def expect_end(self) -> None:
        """Query the scheduler soon, because the logs of the jobs have ended."""
        self._scheduler.expect_change()
        self._looked_s = float("-inf")

    def _suspects(self, job: int, report: AgentReport | None) -> Collection[str]:
        """Return the job's nodes, unless its end was intended or it reported an error itself."""
        status = self._status(job)
        if status is None or status.ended_by in _NOT_THE_NODE:
            return ()
        if status.state != "ended" and not self.gang:  # it was requeued
            return ()
        if report is not None and report.outcome == "unseen":
            return (report.node,)
        return () if report is not None and not report.may_be_the_node else self._nodes(job)

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
        ran = status.state == "ended" and status.ended_by in ("failure", "completion")
        since_s = self._running_since_s.setdefault(record.id, time.monotonic())
        if not ran and (status.state != "running" or time.monotonic() - since_s < _SILENT_S):
            return None
        end_s = time.monotonic() + (_LATE_S if ran else 0)
        log = self._submissions.log(record)
        while not log.exists():
            refresh_listing(log.parent)
            if time.monotonic() >= end_s:
                how = status.reason or f"running for {_SILENT_S:g} s"
                nodes = ", ".join(self._nodes(job)) or "its node"
                return f"job {job} ran on {nodes} ({self.label}: {how}) and wrote nothing here"
            time.sleep(0.5)
        return None

    def _step_error(self, job: int) -> str | None:
        """Return the first error of the job's newest step with one, if it has had a step."""
        script, *steps = self._submissions.outputs(job) or [b""]
        return next(filter(None, map(step_error, reversed(steps or [script]))), None)

    def _agent_report(self, job: int) -> AgentReport | None:
        """Return the last report of the job's agents: those of its last step if that has ended.

        Otherwise the last step may be a retry, and an earlier one the attempt that died.
        """
        outputs, status = self._submissions.outputs(job), self._status(job)
        if (status is not None and status.state == "ended") or self._given_up_by_script(job):
            outputs = [*outputs[:1], *outputs[1:][-1:]]
        return last_report(b"\n".join(outputs), job)

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
