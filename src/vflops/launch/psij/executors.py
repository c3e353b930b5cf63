"""psij's executors and job specifications; imported late, because psij imports slowly."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from psij import JobAttributes, JobExecutor, JobSpec, ResourceSpecV1
from psij.executors.batch.batch_scheduler_executor import BatchSchedulerExecutorConfig

from vflops.errors import UsageError
from vflops.launch.job_script import Request


def executor(scheduler: str, work: Path | None) -> JobExecutor:
    """Return psij's executor for the scheduler; it writes its files to ``work``."""
    config = BatchSchedulerExecutorConfig(
        work_directory=work, queue_polling_interval=1, initial_queue_polling_delay=1
    )
    return JobExecutor.get_instance(scheduler, config=config)


def specification(scheduler: str, request: Request) -> JobSpec:
    """Return the request as a job specification of psij."""
    site, flux = request.site, scheduler == "flux"
    if site.time_limit_s is None:  # psij would set ten minutes
        raise UsageError(
            f"a job for {scheduler} needs a time limit", hint="set time_limit in site.toml"
        )
    if flux and site.directives:
        raise UsageError(
            f"directives = {list(site.directives)} cannot be passed to Flux through psij",
            hint="remove them from site.toml",
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
