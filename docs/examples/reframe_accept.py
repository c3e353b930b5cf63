"""A ReFrame test that runs `vflops accept`; see docs/how-to/accept.md.

reframe -c reframe_accept.py -S VflopsAccept.reference_file=$PWD/reference.toml -r

The test passes if the machine is accepted. Every promised figure becomes a performance variable,
so that ReFrame records it and can compare it with references of its own.
"""

import re
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typ
from reframe.core.builtins import run_before, sanity_function, variable

LINE = r"^(\S+): (\S+) (\S+)$"
VERDICT = r"^verdict: accepted$"


@rfm.simple_test
class VflopsAccept(rfm.RunOnlyRegressionTest):
    """Accept a machine by the figures of a reference."""

    reference_file = variable(str, value="reference.toml")
    runs = variable(typ.List[str], value=[])
    valid_systems = ["*"]  # noqa: RUF012
    valid_prog_environs = ["*"]  # noqa: RUF012
    executable = "vflops"
    time_limit = "4h"

    @run_before("run")
    def set_command(self):
        """Judge the given runs; without any, run the task of the reference."""
        options = ["--against", self.reference_file, "--lines", "--quiet"]
        self.executable_opts = ["accept", *options, *self.runs]

    @sanity_function
    def accepted(self):
        """Whether the verdict is `accepted`."""
        return sn.assert_found(VERDICT, self.stdout)

    @run_before("performance")
    def extract_figures(self):
        """Read every line `name: value unit` of standard output."""
        output = (Path(self.stagedir) / sn.evaluate(self.stdout)).read_text()
        self.perf_variables = {
            name: sn.make_performance_function(sn.defer(float(value)), unit)
            for name, value, unit in re.findall(LINE, output, re.M)
        }
