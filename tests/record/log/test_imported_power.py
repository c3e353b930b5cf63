"""Power logs as CSV: what is accepted, and what is refused with line, value and hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from vflops.errors import UsageError
from vflops.record.log.imported_power import import_power, imported_files, read_imported

AT = 1_800_000_000


def rows(header: str, *cells: str, sep: str = ",") -> str:
    """Return a log with a reading every two seconds."""
    lines = [f"{AT + 2 * number}{sep}{cell}" for number, cell in enumerate(cells)]
    return "\n".join([header, *lines]) + "\n"


def imported(tmp_path: Path, text: str) -> dict[str, list[float | None]]:
    log = tmp_path / "pdu 7.csv"
    log.write_text(text)
    import_power(tmp_path / "run", log)
    (telemetry,) = read_imported(tmp_path / "run")
    return {item.id: telemetry.column(item.id) for item in telemetry.header.series}


@pytest.mark.parametrize(
    ("header", "scale"),
    [
        ("time,power_w", 1),
        ("Timestamp,Power (W)", 1),
        ("epoch,PDU7 total power [kW]", 1e3),
        ("time,power_mW", 1e-3),
        ("time,power_mw", 1e-3),
    ],
)
def test_power_in_the_unit_of_its_header(tmp_path: Path, header: str, scale: float) -> None:
    telemetry = imported(tmp_path, rows(header, "1", "2.5", "", "4e2"))
    assert telemetry == {"node.power": [scale, 2.5 * scale, None, 400 * scale]}


@pytest.mark.parametrize(
    ("header", "scale"),
    [("time,energy_j", 1), ("time,Energy (kWh)", 3.6e6), ("time,energy_wh", 3600)],
)
def test_energy_counters(tmp_path: Path, header: str, scale: float) -> None:
    assert imported(tmp_path, rows(header, "1", "2")) == {"node.energy": [scale, 2 * scale]}


@pytest.mark.parametrize("sep", [",", ";", "\t"])
def test_delimiters_a_byte_order_mark_blank_lines_and_other_columns(
    tmp_path: Path, sep: str
) -> None:
    text = "\ufeff" + rows(
        sep.join(["time", "power_w", "outlet, name"]), f"1{sep}A", f"2{sep}B", sep=sep
    )
    if sep == ",":
        text = text.replace("outlet, name", '"outlet, name"')
    assert imported(tmp_path, text + "\n\n") == {"node.power": [1, 2]}


def test_power_and_energy_of_one_log_are_two_series(tmp_path: Path) -> None:
    telemetry = imported(tmp_path, rows("time,power_w,energy_kwh", "100,1", "200,2"))
    assert set(telemetry) == {"node.power", "node.energy"}


def test_times_by_iso_8601_are_utc_unless_they_say_otherwise(tmp_path: Path) -> None:
    log = tmp_path / "node.csv"
    for time in ("2027-01-15T08:00:00Z", "2027-01-15 08:00:00", "2027-01-15T09:00:00+01:00"):
        log.write_text(f"time,power_w\n{time},1\n2027-01-15T08:00:01.5Z,2\n")
        path = import_power(tmp_path / time, log)
        (telemetry,) = read_imported(tmp_path / time)
        assert list(telemetry.utc_s) == [AT, AT + 1.5]
        assert telemetry.header.interval_s == 1.5
        assert telemetry.header.series[0].source == "imported: node.csv"
        assert path == tmp_path / time / "telemetry/imported-1.jsonl"


def test_logs_are_numbered_kept_by_node_and_never_twice(tmp_path: Path) -> None:
    log = tmp_path / "node.csv"
    for power_w, node in ((1, 0), (2, 0), (3, 1)):
        log.write_text(rows("time,power_w", str(power_w), "9"))
        import_power(tmp_path, log, node=node)
    assert [path.name for path in imported_files(tmp_path)] == [
        *("imported-1.jsonl", "imported-2.jsonl", "imported-3.jsonl"),
    ]
    assert len(read_imported(tmp_path)) == 2
    assert len(read_imported(tmp_path, node=1)) == 1
    with pytest.raises(UsageError, match=r"already imported as .*imported-3\.jsonl"):
        import_power(tmp_path, log)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "0 time columns"),
        (rows("when,power_w", "1", "2"), "0 time columns in its header: when, power_w"),
        (rows("time,utc,power_w", "1,1", "2,2"), "2 time columns"),
        (rows("time,watts", "1", "2"), "0 power or energy columns"),
        (rows("time,power", "1", "2"), "0 power or energy columns"),
        (rows("time,psu1_power_w,psu2_power_w", "1,1", "2,2"), "2 power or energy columns"),
        (rows("time,Power (MW)", "1", "2"), "may mean mega or milli"),
        (rows("time,power_w", "1"), "has 1 readings"),
        (rows("time,power_w", "1", "two"), ":3: power_w is 'two', expected a number"),
        (rows("time,power_w", "1", "-5"), ":3: power_w is '-5'"),
        (rows("time,power_w", "1", "nan"), ":3: power_w is 'nan'"),
        (rows("time;power_w", "1", "2,5", sep=";"), ":3: power_w is '2,5'"),
        (rows("time,power_w", "1", "2,5"), ":3 has 3 cells, expected 2"),
        ("time,power_w\n\n1800000000000,5\n", ":3: time '1800000000000' is a number, but"),
        ("time,power_w\n12:00:00,5\n", ":2: time '12:00:00' is neither ISO 8601 nor a number"),
        ("time,power_w\n1800000001,5\n1800000001,5\n", ":3: time '1800000001' is not later"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    log = tmp_path / "node.csv"
    log.write_text(text)
    with pytest.raises(UsageError) as error:
        import_power(tmp_path, log)
    assert expected in error.value.message
    assert "node.csv" in error.value.message
    assert error.value.hint
    assert imported_files(tmp_path) == []


def test_a_log_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        import_power(tmp_path, tmp_path / "nothing.csv")
    log = tmp_path / "latin.csv"
    log.write_bytes(b"time,power_w (\xb0)\n")
    with pytest.raises(UsageError, match="not UTF-8"):
        import_power(tmp_path, log)
