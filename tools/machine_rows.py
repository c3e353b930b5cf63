"""The rows of ``make test-machines``: machines that differ from this one, and what each may break.

A row is a few lines of bash that make this machine look like another one, and the tests whose
outcome can depend on that.
"""

from __future__ import annotations

from dataclasses import dataclass

_ARITHMETIC = (
    "tests/counting/test_executed.py",
    "tests/machine/ceilings",
    "tests/models/detection",
    "tests/models/test_fused_resnet.py",
    "tests/train/parallel/test_modes.py",
    "tests/train/test_detection.py",
    "tests/train/test_eight_bit.py",
    "tests/train/test_lamb.py",
    "tests/train/test_lars.py",
    "tests/train/test_layerwise.py",
    "tests/train/test_normalisation.py",
    "tests/train/test_optimizers.py",
    "tests/train/test_precision.py",
    "tests/train/test_resume.py",
)
"""Results of kernels, alone and in trainings; kernels depend on the CPU's instruction sets."""
_CORES = (
    "tests/cli/test_control.py",
    "tests/cli/test_parallel.py",
    "tests/cli/test_plan.py",
    "tests/launch/test_controller.py",
    "tests/launch/test_core_binding.py",
    "tests/launch/test_placement.py",
    "tests/machine/ceilings/test_allreduce.py",
    "tests/machine/system",
    "tests/machine/telemetry",
    "tests/results/score/test_twins.py",
    "tests/run",
    "tests/train/communication/test_background.py",
    "tests/workloads/automl/test_run.py",
)
"""Code that counts, binds or shares cores."""
_COMMANDS = (
    "tests/cli/test_before.py",
    "tests/cli/test_commands.py",
    "tests/cli/test_plan.py",
    "tests/cli/test_strange_places.py",
    "tests/cli/test_suite.py",
    "tests/config",
    "tests/machine/system",
    "tests/publish/export",
    "tests/studies/compare/test_runs.py",
    "tests/studies/history/test_runs.py",
    "tests/studies/predict/test_command.py",
)
"""Commands that read and print text."""
_TABLES = (
    "tests/cli/test_before.py",
    "tests/cli/test_search_table.py",
    "tests/cli/test_training_panel.py",
    "tests/launch/node_check/test_verdicts.py",
    "tests/machine/ceilings/test_ceiling_table.py",
    "tests/machine/system/test_system_table.py",
    "tests/publish/report/test_results.py",
    "tests/studies/compare",
    "tests/studies/predict/test_command.py",
)
"""What is printed as wide as the terminal; most other tests choose a width themselves."""
_DATES = (
    "tests/launch/slurm/test_slurm_launcher.py",
    "tests/machine/telemetry",
    "tests/publish/evidence/test_archive.py",
    "tests/publish/export",
    "tests/publish/ranking/test_summary.py",
    "tests/record/log",
    "tests/studies/history",
    "tests/studies/reproduce",
)
"""Code that reads, prints and compares dates."""
_FILES = (
    "tests/cli/test_run.py",
    "tests/data/images/test_pack.py",
    "tests/data/test_staging.py",
    "tests/examples",
    "tests/launch/test_scheduler.py",
    "tests/publish/evidence",
    "tests/publish/ranking/test_static_site.py",
    "tests/record/files",
    "tests/record/test_folder.py",
    "tests/workloads/command/test_command.py",
)
"""Code that writes, packs, locks, copies or signs files, and programs that are given paths."""
_NETWORK = (
    "tests/cli/test_control.py",
    "tests/cli/test_parallel.py",
    "tests/launch/node_check",
    "tests/launch/slurm/test_slurm.py",
    "tests/launch/test_controller.py",
    "tests/launch/test_node_clock.py",
    "tests/launch/slurm/test_slurm_launcher.py",
    "tests/machine/ceilings/test_allreduce.py",
    "tests/machine/system",
    "tests/train/communication/test_average.py",
    "tests/workloads/command",
)
"""Ranks, nodes and schedulers that look each other up and connect."""
_EVERYTHING = ("tests",)


@dataclass(frozen=True)
class Row:
    """A machine to test on."""

    name: str
    tests: tuple[str, ...]
    setup: str = ""
    """Bash that runs before the tests, in their process."""
    unshare: tuple[str, ...] = ()
    """Namespaces of this row, as options of ``unshare``; they need root."""
    checkout: str = ""
    """Name of the copy of the repository in which the tests run; empty: here."""
    python: str = ""
    """Version of Python; empty: the current one."""
    install: tuple[str, ...] = ()
    """Arguments of ``uv pip install`` for an environment of this row."""


_ONE_CORE = "taskset --pid --cpu-list $(taskset -cp $$ | grep -o '[0-9]*' | tail -1) $$"
_LOOPBACK = "ip link set lo up"
_DEVELOPMENT = ("--editable", ".[dev]")
_PINNED = (*_DEVELOPMENT, "--constraint", "constraints.txt")

# Python and its environment may be in a home that others cannot enter: there, an ordinary user sees
# a home with nothing else in it.
_ORDINARY_USER = """\
chown -R nobody .
keep=$(mktemp -d)
for folder in "$BASE_PREFIX" "$PREFIX"; do
    [[ $folder == "$HOME"/* ]] || continue
    mkdir -p "$keep$folder"; mount --bind "$folder" "$keep$folder"
done
mount -t tmpfs -o mode=755 tmpfs "$HOME"
for folder in "$BASE_PREFIX" "$PREFIX"; do
    [[ $folder == "$HOME"/* ]] || continue
    mkdir -p "$folder"; mount --move "$keep$folder" "$folder"
done
export HOME=$PWD
set -- setpriv --reuid=nobody --regid=nogroup --clear-groups --no-new-privs "$@"
"""

ROWS = (
    Row("aten-default", _ARITHMETIC, "export ATEN_CPU_CAPABILITY=default"),
    Row("aten-avx2", _ARITHMETIC, "export ATEN_CPU_CAPABILITY=avx2"),
    Row("dnnl-sse41", _ARITHMETIC, "export DNNL_MAX_CPU_ISA=SSE41"),
    Row("dnnl-avx2", _ARITHMETIC, "export DNNL_MAX_CPU_ISA=AVX2"),
    Row("one-core", _CORES, _ONE_CORE),
    Row(
        "four-ranks",
        ("tests/train/parallel", "tests/train/communication", "tests/cli/test_parallel.py"),
        f"{_ONE_CORE}; export OMP_NUM_THREADS=4",
    ),
    Row(
        "ordinary-user",
        (*_FILES, "tests/launch/test_controller.py", "tests/machine/system"),
        _ORDINARY_USER,
        ("--mount",),
        checkout="user",
    ),
    Row("locale-c", _COMMANDS, "unset LANG LC_CTYPE; export LC_ALL=C"),
    Row("utc+14", _DATES, "export TZ=Pacific/Kiritimati"),
    Row("columns-40", _TABLES, "export COLUMNS=40"),
    Row("columns-300", _TABLES, "export COLUMNS=300"),
    Row("umask-077", _FILES, "umask 077"),
    Row(
        "read-only-home",
        _FILES,
        "export HOME=$(mktemp -d); mount -t tmpfs -o ro tmpfs $HOME",
        ("--mount",),
    ),
    Row("odd-path", _FILES, checkout="a checkout – Prüfstand 模型"),
    Row(
        "no-ipv6",
        _NETWORK,
        f"{_LOOPBACK}; sysctl -qw net.ipv6.conf.all.disable_ipv6=1",
        ("--net",),
    ),
    Row("no-network", _NETWORK, _LOOPBACK, ("--net",)),
    Row(
        "no-host-name",
        _NETWORK,
        f"{_LOOPBACK}; hostname node.invalid; unset CI",
        ("--net", "--uts"),
    ),
    Row("python-3.11", _EVERYTHING, python="3.11", install=_PINNED),
    Row("python-3.12", _EVERYTHING, python="3.12", install=_PINNED),
    Row("python-3.13", _EVERYTHING, python="3.13", install=_PINNED),
    Row("python-3.14", _EVERYTHING, python="3.14", install=_PINNED),
    Row("oldest", _EVERYTHING, install=("--resolution", "lowest-direct", *_DEVELOPMENT)),
    Row("newest", _EVERYTHING, install=("--upgrade", *_DEVELOPMENT)),
)
