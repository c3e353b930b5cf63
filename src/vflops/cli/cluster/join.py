"""``vflops join``: adds this node to a run whose controller waits for nodes."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Annotated

import typer

from vflops.cli import options


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(join)


def join(
    run: Annotated[
        Path,
        typer.Argument(
            help="Run folder, or a folder of runs: the newest one that waits.", metavar="RUN"
        ),
    ],
    lead: Annotated[
        bool, typer.Option("--lead", help="Also control the run, as vflops resume does.")
    ] = False,
    allow_command: options.AllowCommand = False,
) -> None:
    """Add this node to a run that waits for nodes. It takes jobs until the run has ended.

    Start it once on every node, with mpiexec, pbsdsh, jsrun, flux run, pdsh, ssh or srun.
    """
    from vflops.cli.terminal.console import next_step, say, shell_path
    from vflops.errors import Hint, RunFailed
    from vflops.launch.join.joined_node import join_run, newest_open_run

    if lead:
        _lead(run, allow_command=allow_command)
        return
    folder = newest_open_run(run, say)
    code = join_run(folder, say)
    if code:
        raise RunFailed(
            "the run has not ended well",
            hint=Hint("see its report", f"vflops report {shell_path(folder)}"),
        )
    next_step(f"vflops report {shell_path(folder)}", "to read the result")


def _lead(run: Path, *, allow_command: bool) -> None:
    """Control the run, and add this node to it as a process of its own."""
    from vflops.cli.cluster.control import require_incomplete
    from vflops.cli.terminal.console import say, shell_path
    from vflops.cli.train.run import resume
    from vflops.errors import Hint, Left, UsageError
    from vflops.launch.factory import launcher_class
    from vflops.python_start import module_command
    from vflops.record.files.lock import is_locked
    from vflops.record.folder import RunFolder
    from vflops.run.recorded_programs import require_consent

    folder = RunFolder.open(run)
    require_incomplete(folder, "lead")
    name, on = shell_path(folder.path), folder.record.settings.launch.on
    if not launcher_class(on).nodes_join:
        raise UsageError(
            f"the jobs of {name} run on {on}: no node can join it",
            hint=Hint("resume it", f"vflops resume {name}"),
        )
    require_consent(folder, allow_command=allow_command, tell=say)
    if is_locked(folder.lock):
        raise UsageError(
            f"{name} has a controller: process {folder.lock.read_text().strip() or 'unknown'}",
            hint=Hint("join it", f"vflops join {name}"),
        )
    node = subprocess.Popen(
        module_command("vflops", "join", run), stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        resume(run, allow_command=allow_command, quiet=False)
    except Left:  # the node has jobs that continue
        raise
    except BaseException:
        node.terminate()
        raise
    finally:
        node.wait()
