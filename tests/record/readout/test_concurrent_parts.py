"""Parts of jobs that overlap in time, compared with a comparison of all pairs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vflops.record.readout.timeline import Part, concurrent_parts

TIMES_S = st.integers(0, 20).map(float)
SPANS = st.tuples(st.integers(1, 4), TIMES_S, st.integers(1, 8).map(float))


def overlap(first: Part, second: Part) -> bool:
    return first.span_s[0] < second.span_s[1] and second.span_s[0] < first.span_s[1]


@given(st.lists(SPANS, max_size=20))
def test_concurrent_parts_are_the_overlapping_parts_of_other_jobs_in_order(
    spans: list[tuple[int, float, float]],
) -> None:
    parts = [
        Part(job, "n1", None, None, (start_s, start_s + length_s), 0.0)
        for job, start_s, length_s in spans
    ]
    expected = [
        [other for other in parts if other.job != part.job and overlap(part, other)]
        for part in parts
    ]
    assert concurrent_parts(parts) == expected
