"""psij as vflops uses it; imported only where a job is submitted: psij takes half a second."""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import IO

from psij import Job, JobAttributes, JobExecutor, JobSpec, ResourceSpecV1
from psij.executors.batch.batch_scheduler_executor import BatchSchedulerExecutorConfig
from psij.executors.batch.slurm import SlurmExecutorConfig, SlurmJobExecutor

from vflops.errors import UsageError
from vflops.launch.job_script import Request


def executor(scheduler: str, work: Path | None) -> JobExecutor:
    """psij's executor of that scheduler, with its own files in ``work``."""
    if scheduler == "slurm":
        return _AsItStands()
    config = BatchSchedulerExecutorConfig(
        work_directory=work, queue_polling_interval=1, initial_queue_polling_delay=1
    )
    return JobExecutor.get_instance(scheduler, config=config)


def specification(scheduler: str, request: Request) -> JobSpec:
    """The request in psij's words; for SLURM the script says the rest itself."""
    if scheduler == "slurm":
        return JobSpec(executable=str(request.script))
    site, flux = request.site, scheduler == "flux"
    if site.time_limit_s is None:  # psij would make it ten minutes
        raise UsageError(
            f"a job for {scheduler} needs a time limit", hint="set time_limit in site.toml"
        )
    if flux and site.directives:
        raise UsageError(
            f"directives = {list(site.directives)} cannot be passed to Flux through psij",
            hint="take them out of site.toml",
        )
    options = (directive.lstrip("-").partition(" ") for directive in site.directives)
    return JobSpec(
        name=request.name,
        executable="/bin/bash",
        arguments=[str(request.script)],
        stdout_path=request.output,
        stderr_path=request.output,
        resources=ResourceSpecV1(
            node_count=request.nodes,
            process_count=request.nodes * request.tasks_per_node,
            processes_per_node=None if flux else request.tasks_per_node,
            cpu_cores_per_process=request.cores_per_task,
            gpu_cores_per_process=request.gpus_per_task or None,
        ),
        attributes=JobAttributes(
            duration=timedelta(seconds=site.time_limit_s),
            queue_name=site.partition,
            account=site.account,
            custom_attributes={f"{scheduler}.{key}": value for key, _, value in options},
        ),
    )


class _AsItStands(SlurmJobExecutor):
    """Hands in the script as it stands in the run folder, and leaves the queue alone."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="vflops-psij-")
        never_s = 10**9  # look() asks for all jobs at once; psij's thread would ask again
        config = SlurmExecutorConfig(
            work_directory=Path(self._folder.name), initial_queue_polling_delay=never_s
        )
        super().__init__(config=config)

    @property
    def name(self) -> str:
        return "slurm"

    def generate_submit_script(
        self, job: Job, context: dict[str, object], submit_file: IO[str]
    ) -> None:
        assert job.spec is not None and job.spec.executable is not None
        submit_file.write(Path(job.spec.executable).read_text(encoding="utf-8"))

    def get_submit_command(self, job: Job, submit_file_path: Path) -> list[str]:
        return ["sbatch", "--parsable", str(submit_file_path)]

    def job_id_from_submit_output(self, out: str) -> str:
        return out.strip().split(";")[0]  # a federation adds the cluster's name
