"""A ReFrame test that runs `vflops accept`; see docs/how-to/accept.md.

    reframe -c reframe_accept.py -S VflopsAccept.reference_file=$PWD/reference.toml -r

The test passes if the machine is accepted. Every promised figure becomes a performance variable,
so that ReFrame records it and can compare it with references of its own.
"""

import re
import tomllib
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn

LINE = r"^{name}: (\S+) "
VERDICT = r"^verdict: accepted$"


@rfm.simple_test
class VflopsAccept(rfm.RunOnlyRegressionTest):
    """Accept a machine by the figures of a reference."""

    valid_systems = ["*"]  # noqa: RUF012
    valid_prog_environs = ["*"]  # noqa: RUF012
    reference_file = variable(str, value="reference.toml")  # noqa: F821  (ReFrame defines it)
    runs = variable(typ.List[str], value=[])  # noqa: F821
    executable = "vflops"
    time_limit = "4h"

    @run_before("run")  # noqa: F821
    def set_command(self):
        """Judge the given runs, or run the task of the reference."""
        self.executable_opts = [
            *("accept", "--against", self.reference_file, "--lines", "--quiet"),
            *self.runs,
        ]

    @sanity_function  # noqa: F821
    def accepted(self):
        """Whether the verdict is `accepted`."""
        return sn.assert_found(VERDICT, self.stdout)

    @run_before("performance")  # noqa: F821
    def extract_figures(self):
        """Read every promised figure from standard output."""
        promised = tomllib.loads(Path(self.reference_file).read_text())["figure"]
        names = [figure["name"] for figure in promised]
        self.perf_variables = {name.replace(".", "_"): self.figure(name) for name in names}

    def figure(self, name):
        """Return the deferred value of a figure, with its unit."""
        pattern = LINE.format(name=re.escape(name))
        value = sn.extractsingle(pattern, self.stdout, 1, float)
        return sn.make_performance_function(value, "base unit")
