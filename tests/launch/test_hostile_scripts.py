"""Job scripts with hostile values, run by a real bash: nothing in a value is executed."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from vflops.errors import UsageError
from vflops.launch.job_script import Request, Step, steps_folder
from vflops.launch.site import SiteSettings
from vflops.launch.slurm.sbatch_script import allocation_script, job_script

HOME = "/the home"
FRAGMENTS = (
    *("$(pwn)", "`pwn`", "$((pwn))", "${x:-$(pwn)}", "$[pwn]", "$'\\x24(pwn)'", "<(pwn)"),
    *(";pwn;", "&&pwn", "|pwn", ">pwn", "#SBATCH --wrap=pwn", "--", "-c", "!pwn", "~", "{a,b}"),
    *("'", '"', "\\", "$", "%j", "100%", "*", "?", "[a]", " ", "\t", "=", ",", ":", "é", "\x1b"),
    *("$HOME", "${HOME}", "$1", "${HOME", "a", "b/c", "\u2028"),
)
LINE_BREAKS = ("\npwn\n", "\n#SBATCH --wrap=pwn\n", "\r")
TEXTS = st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=6).map("".join)
LINES = TEXTS.filter(str.strip)
VALUES = st.lists(st.sampled_from((*FRAGMENTS, *LINE_BREAKS)), max_size=6).map("".join)
NAMES = LINES.map(lambda text: text.replace("/", ":").replace("\\", ":"))
FEW = settings(
    max_examples=24,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
RUNTIMES = (None, "apptainer", "docker", "pyxis")
SHOW = '#!/bin/bash\nprintf "%s\\0" "$0" "$@" "ODD=$ODD" "LOCAL=$VFLOPS_LOCAL_PATH"\n'

Runner = Callable[[str, Path], list[list[str]]]


def expanded(text: str) -> str:
    """Return the text as a site means it: variables have their values, all else is literal."""
    return re.sub(
        r"\$(\{)?([A-Za-z_][A-Za-z0-9_]*)(?(1)\})",
        lambda found: HOME if found[2] == "HOME" else "",
        text,
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """Runs a script with programs that show their words; fails if ``pwn`` runs or is written."""
    programs, folder = tmp_path_factory.mktemp("bin"), tmp_path_factory.mktemp("cwd")
    trace = programs / "executed"
    for name, text in {
        **dict.fromkeys(("srun", "apptainer", "docker", "python3"), SHOW),
        "pwn": f"#!/bin/bash\ntouch {shlex.quote(str(trace))}\n",
        "scontrol": "#!/bin/bash\necho n1\n",
        "sleep": "#!/bin/bash\n",
        "id": "#!/bin/bash\necho 7\n",
    }.items():
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)

    def start(script: str, run: Path) -> list[list[str]]:
        environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": HOME, "LC_ALL": "C.UTF-8"}
        environment |= {"SLURM_JOB_NODELIST": "n1", "BASH_FUNC_module%%": "() { :; }"}
        done = subprocess.run(
            ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert not trace.exists(), f"executed: {script}"
        assert not list(folder.iterdir()), f"written: {script}"
        steps = [path.read_bytes() for path in steps_folder(run / "job.sh").glob("*.log")]
        words = b"".join([done.stdout, *steps]).decode().split("\0")
        starts = [at for at, word in enumerate(words) if word.startswith(str(programs))]
        ends = [*starts[1:], len(words)]
        return [words[at:end] for at, end in zip(starts, ends, strict=True)]

    return start


def request(folder: Path, site: SiteSettings) -> Request:
    return Request("vf", folder / "job.sh", 1, 4, 8, 1, folder / "job.out", site)


def hostile_site(value: str, line: str, image: str, runtime: str | None) -> SiteSettings:
    container = {"image": image, "runtime": runtime, "mounts": [line]}
    return SiteSettings.model_validate(
        {
            "account": line,
            "partition": image,
            "modules": [line],
            "environment": {"ODD": value},
            "local_path": line,
            "container": container if runtime else None,
            "python": None if runtime else "python3",
        }
    )


@FEW
@given(st.sampled_from(RUNTIMES), NAMES, VALUES, LINES, LINES)
@example(None, "$(pwn)", "$(pwn)", "$(pwn)", "$(pwn)")
@example("apptainer", "$(pwn)", "$(pwn)", "$(pwn)", "$(pwn)")
@example("docker", "job%j-100%", "%", "`pwn`", "'")
@example("pyxis", "`pwn`", "\n#SBATCH --wrap=pwn\n", "`pwn`", "'")
def test_values_reach_slurm_and_the_agent_unchanged(
    run: Runner, runtime: str | None, name: str, value: str, line: str, image: str
) -> None:
    with TemporaryDirectory() as parent:
        folder = Path(parent) / name
        folder.mkdir()
        check_values(run, runtime, folder, hostile_site(value, line, image, runtime))


def check_values(run: Runner, runtime: str | None, folder: Path, site: SiteSettings) -> None:
    """Run the scripts of a job, and compare what the agent gets with the values of the site."""
    wanted, line, image = request(folder, site), str(site.account), str(site.partition)
    value = site.environment["ODD"]
    for script in (
        job_script(wanted, folder, 7),
        allocation_script(wanted, folder, [Step(7, 0, 1, 4)]),
    ):
        check_directives(script, folder, line, image)
        (words,) = run(script, folder)
        program, *_ = (at for at, word in enumerate(words) if word == "vflops.launch.agent")
        assert words[program - 2 : program] == ["-P", "-m"]
        assert words[program + 1 : program + 3] == [str(folder), "7"]
        assert words[program + 3 :][:2] == [f"ODD={expanded(value)}", f"LOCAL={expanded(line)}"]
        if runtime == "pyxis":
            assert f"--container-image={expanded(image)}" in words
            mounts = ",".join(f"{path}:{path}" for path in (folder, *[expanded(line)] * 2))
            assert f"--container-mounts={mounts}" in words
        elif runtime is not None:
            assert expanded(image) in words
            for path in (str(folder), expanded(line)):
                assert f"{path}:{path}" in words


def check_directives(script: str, folder: Path, line: str, image: str) -> None:
    """Compare the directives as SLURM reads them: up to the first command, words with quotes."""
    comments = takewhile(lambda text: not text or text.startswith("#"), script.split("\n"))
    lines = [text for text in comments if text.startswith("#SBATCH")]
    values = [shlex.split(text.removeprefix("#SBATCH "))[0] for text in lines]
    assert f"--account={line}" in values and f"--partition={image}" in values
    (output,) = (value for value in values if value.startswith("--output="))
    symbols = re.findall("%(.)", output)
    assert set(symbols) <= {"%"}, "SLURM replaces a symbol"
    assert output.removeprefix("--output=").replace("%%", "%") == str(folder / "job.out")
    assert not any(value.startswith("--wrap") for value in values)


@pytest.mark.parametrize("name", ["a\nb", "a\rb", "\n#SBATCH --wrap=pwn\n"])
def test_a_line_break_in_a_path_is_refused(name: str) -> None:
    folder = Path("/runs") / name
    with pytest.raises(UsageError, match="has a line break"):
        job_script(request(folder, SiteSettings()), folder, 7)


@pytest.mark.parametrize(
    "key", ["account", "partition", "local_path", "python", "modules", "directives"]
)
@pytest.mark.parametrize("text", ["-a\npwn", "-a\rpwn", "-a\0pwn"])
def test_a_site_has_no_line_breaks_or_null_characters(key: str, text: str) -> None:
    value = [text] if key in ("modules", "directives") else text
    with pytest.raises(ValueError, match="expected one line of text"):
        SiteSettings.model_validate({key: value})
    with pytest.raises(ValueError, match="has a null character"):
        SiteSettings.model_validate({"environment": {"ODD": "a\0b"}})
