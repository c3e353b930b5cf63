"""The outcome of an acceptance test as JUnit XML, which CI systems show."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from vflops.record.files import atomic
from vflops.studies.accept import accept_text
from vflops.studies.accept.acceptance import Acceptance, JudgedFigure
from vflops.text import printable


def write_junit(acceptance: Acceptance, path: Path) -> None:
    """Write one test case per figure and node, and one per run."""
    atomic.write_text(path, junit_text(acceptance))


def junit_text(acceptance: Acceptance) -> str:
    """Return the XML: a rejected figure is a failure; one without a decision is an error."""
    root = ElementTree.Element("testsuites", name=_text(acceptance.reference.name))
    cases = [*_figure_cases(acceptance), *_run_cases(acceptance)]
    suite = ElementTree.SubElement(root, "testsuite", name=_text(acceptance.reference.name))
    suite.extend(cases)
    for element in (root, suite):
        element.set("tests", str(len(cases)))
        for kind in ("failure", "error"):
            element.set(f"{kind}s", str(sum(case.find(kind) is not None for case in cases)))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _figure_cases(acceptance: Acceptance) -> list[ElementTree.Element]:
    cases = []
    for figure in acceptance.figures:
        subject = figure.name.partition(".")[0]
        case = _case(f"vflops.{subject}", figure.title)
        if figure.verdict == "rejected":
            _outcome(case, "failure", figure.verdict, _details(figure))
        elif figure.verdict != "accepted":
            _outcome(case, "error", figure.verdict, _details(figure))
        output = ElementTree.SubElement(case, "system-out")
        output.text = _text(_details(figure))
        cases.append(case)
    return cases


def _run_cases(acceptance: Acceptance) -> list[ElementTree.Element]:
    cases = []
    for run in acceptance.runs:
        case = _case("vflops.runs", f"{run.run} is valid evidence")
        if run.faults:
            _outcome(case, "error", "not valid", "\n".join(run.faults))
        cases.append(case)
    for fault in acceptance.faults:
        case = _case("vflops.runs", "the runs are complete")
        _outcome(case, "error", "incomplete", fault)
        cases.append(case)
    return cases


def _case(classname: str, name: str) -> ElementTree.Element:
    return ElementTree.Element("testcase", classname=_text(classname), name=_text(name))


def _outcome(case: ElementTree.Element, kind: str, verdict: str, text: str) -> None:
    element = ElementTree.SubElement(case, kind, message=_text(text), type=verdict)
    element.text = _text(text)


def _details(figure: JudgedFigure) -> str:
    named = zip(accept_text.COLUMNS[1:], accept_text.row(figure)[1:], strict=True)
    parts = [f"{name} {text}" for name, text in named if text]
    return "; ".join([*parts, *([figure.reason] if figure.reason else [])])


def _text(text: str) -> str:
    """Return ``text`` without control characters, which XML does not allow."""
    return printable(text, keep="\n\t")
