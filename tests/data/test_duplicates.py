"""Samples that occur twice are found, counted and named."""

from __future__ import annotations

from vflops.data.duplicates import Sample, content_digest, find_duplicates


def test_pairs_are_named_with_the_first_of_equal_content() -> None:
    train = [Sample("a", "1", 0), Sample("b", "2", 1), Sample("c", "1", 0), Sample("d", "2", 0)]
    evaluated = [Sample("e", "1", 0), Sample("f", "3", 0), Sample("g", "3", 1)]
    found = find_duplicates(train, evaluated)
    assert [(pair.sample, pair.same_as) for pair in found.leaks] == [("e", "a")]
    assert [(pair.sample, pair.same_as) for pair in found.contradictions] == [
        ("d", "b"),
        ("g", "f"),
    ]


def test_a_summary_has_all_numbers_and_the_first_names() -> None:
    train = [Sample(f"t{i}", str(i)) for i in range(9)]
    summary = find_duplicates(train, [Sample(f"v{i}", str(i)) for i in range(8)]).summary()
    assert (summary.leaked, len(summary.leaks), summary.contradictory) == (8, 5, 0)
    assert summary.warnings == [
        "8 validation samples are also trained on: v0 equals t0, v1 equals t1, v2 equals t2, "
        "v3 equals t3, v4 equals t4 and 3 more"
    ]


def test_digests_tell_contents_apart() -> None:
    assert content_digest(b"a") == content_digest(b"a") != content_digest(b"b")
    assert len(content_digest(b"")) == 32
