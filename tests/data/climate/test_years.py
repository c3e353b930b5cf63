"""Years as published are opened; every fault of a file is reported with a hint."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.data_climate import (
    HEIGHT,
    WIDTH,
    boxes,
    frames,
    set_value,
    write_year,
    year_folder,
)
from vflops.data.climate.box_rows import (
    ORDERS,
    clip_box,
    column_names,
    pad_boxes,
    recognise,
    reorder_columns,
    repair_boxes,
)
from vflops.data.climate.frame_source import FrameSource
from vflops.data.climate.pack_years import pack
from vflops.data.climate.year_split import parse_years, split_years
from vflops.data.climate.years import ClimateYears, survey
from vflops.errors import UsageError


def refused(folder: Path) -> tuple[str, str]:
    """Return the message of opening a folder, and its hint."""
    with pytest.raises(UsageError) as caught:
        ClimateYears.open(folder)
    return caught.value.message, str(caught.value.hint)


def test_years_are_opened_in_order(tmp_path: Path) -> None:
    year_folder(tmp_path, (1981, 1979, 1980), number=3)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ".climo_1999.h5").write_bytes(b"hidden")
    write_year(tmp_path / "other.h5", frames(1))
    folder = ClimateYears.open(tmp_path)
    assert folder.numbers == (1979, 1980, 1981)
    assert (folder.height, folder.width) == (HEIGHT, WIDTH)
    assert folder.others == ("other.h5",)
    year = folder.year(1980)
    np.testing.assert_array_equal(year.boxes(2), boxes(3, 1980)[2, :3])
    np.testing.assert_array_equal(year.source.frame(1), frames(3, 1980)[1])
    assert year.order == "yxyxc" and not year.notes


LAYOUTS: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "frames": {"chunks": (1, 16, HEIGHT, WIDTH)},
    "rows": {"chunks": (1, 1, 7, 9), "compression": "gzip"},
    "many": {"chunks": (3, 4, 5, WIDTH), "compression": "gzip", "shuffle": True},
    "all": {"chunks": (7, 1, HEIGHT, 8)},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("budget", [1, 20_000, 1 << 28])
def test_every_storage_layout_gives_the_same_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str, budget: int
) -> None:
    monkeypatch.setattr("vflops.data.climate.frame_source._PIECE_BYTES", budget)
    images = frames(7)
    write_year(tmp_path / "climo_1979.h5", images, boxes(7), **LAYOUTS[layout])
    source = ClimateYears.open(tmp_path).years[0].source
    for start, stop in ((0, 7), (2, 5), (6, 7)):
        actual = np.full_like(images, np.nan)
        for piece in source.pieces(start, stop):
            where = slice(piece.frame, piece.frame + len(piece.fields))
            rows = slice(piece.row, piece.row + piece.fields.shape[2])
            assert np.isnan(actual[where, :, rows]).all(), "read twice"
            actual[where, :, rows] = piece.fields
        np.testing.assert_array_equal(actual[start:stop], images[start:stop])
        assert np.isnan(actual[:start]).all() and np.isnan(actual[stop:]).all()


@given(
    frames=st.integers(1, 3000),
    chunk=st.none() | st.tuples(st.integers(1, 4000), *[st.integers(1, 64)] * 3),
    most=st.integers(1, 100),
)
def test_ranges_cover_all_frames_and_end_where_chunks_do(
    frames: int, chunk: tuple[int, int, int, int] | None, most: int
) -> None:
    source = FrameSource(Path("f"), frames, 768, 1152, chunk, (0, 0, 0))
    ranges = source.ranges(most)
    assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
    assert ranges[-1][1] == frames
    longest = max(stop - start for start, stop in ranges)
    assert longest <= 4 * most
    if source.frames_per_chunk <= most:
        assert longest <= most and all(start % source.frames_per_chunk == 0 for start, _ in ranges)


def test_as_h5py_stores_them_pieces_stay_small() -> None:
    source = FrameSource(Path("f"), 1460, 768, 1152, (46, 1, 48, 72), (0, 0, 0))
    tops = source.bands()
    assert all(top % 48 == 0 for top, _ in tops)
    assert 46 * 16 * 1152 * 4 * max(b - a for a, b in tops) <= 1 << 28
    assert source.ranges(37)[0] == (0, 46)


def test_no_folder_no_file_and_bad_names(tmp_path: Path) -> None:
    assert refused(tmp_path / "none")[0].endswith("none does not exist; expected a folder of years")
    message, hint = refused(tmp_path)
    assert "has no file climo_YYYY.h5" in message and "climo_1979.h5" in hint
    write_year(tmp_path / "climo_79.h5")
    message, hint = refused(tmp_path)
    assert "climo_79.h5 has no year of four digits" in message and "rename" in hint


def test_a_year_twice(tmp_path: Path) -> None:
    write_year(tmp_path / "climo_1979.h5")
    write_year(tmp_path / "climo_1979.hdf5")
    message, hint = refused(tmp_path)
    assert "the year 1979 twice: climo_1979.h5 and climo_1979.hdf5" in message
    assert "move one" in hint


@pytest.mark.parametrize("size", [0, 900, 50_000])
def test_a_truncated_file(tmp_path: Path, size: int) -> None:
    path = write_year(tmp_path / "climo_1979.h5")
    path.write_bytes(path.read_bytes()[:size])
    message, hint = refused(tmp_path)
    assert "climo_1979.h5 is " + ("truncated" if size else "empty") in message
    assert "get the file again" in hint


def test_a_file_of_another_format(tmp_path: Path) -> None:
    (tmp_path / "climo_1979.h5").write_text("<html>404</html>" * 100)
    message, hint = refused(tmp_path)
    assert "climo_1979.h5 cannot be read as HDF5" in message and "signature" in message
    assert "get the file again" in hint


def test_a_file_that_is_being_written(tmp_path: Path) -> None:
    path = tmp_path / "climo_1979.h5"
    code = (
        "import h5py, sys; f = h5py.File(sys.argv[1], 'w'); f['images'] = 1; f.flush()\n"
        "print('open', flush=True); sys.stdin.read()"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert writer.stdout is not None and writer.stdout.readline()
    try:
        message, hint = refused(tmp_path)
    finally:
        writer.communicate()
    assert f"{path} is being written by another program" in message
    assert "wait" in hint and "copy" in hint


@pytest.mark.parametrize("key", ["images", "boxes"])
def test_a_missing_key(tmp_path: Path, key: str) -> None:
    with h5py.File(write_year(tmp_path / "climo_1979.h5"), "r+") as file:
        del file[key]
        file.create_group("extra")
    message, hint = refused(tmp_path)
    other = {"images": "boxes", "boxes": "images"}[key]
    assert f"has no array '{key}'; it holds {', '.join(sorted(['extra', other]))}" in message
    assert "(N, 16, H, W)" in hint


@pytest.mark.parametrize(
    ("images", "rows", "says"),
    [
        (np.zeros((4, 15, 24, 40), "f4"), None, r"images are \(4, 15, 24, 40\), expected .*16"),
        (np.zeros((4, 24, 40), "f4"), None, r"images are \(4, 24, 40\)"),
        (np.zeros((0, 16, 24, 40), "f4"), None, r"images are \(0, 16, 24, 40\)"),
        (np.zeros((4, 16, 24, 40), "f2"), None, "images are float16, expected float32"),
        (np.zeros((4, 16, 24, 40), "i4"), None, "images are int32, expected float32"),
        (frames(4), boxes(3), r"boxes are \(3, 15, 5\), expected \(4, 15, 5\)"),
        (frames(4), boxes(4)[:, :, :4], r"boxes are \(4, 15, 4\)"),
        (frames(4), boxes(4).astype("S3"), r"boxes are \|S3, expected int32"),
    ],
)
def test_other_shapes_and_types(
    tmp_path: Path, images: np.ndarray, rows: np.ndarray | None, says: str
) -> None:
    write_year(tmp_path / "climo_1979.h5", images, boxes(len(images)) if rows is None else rows)
    with pytest.raises(UsageError, match=f"climo_1979.h5: {says}") as caught:
        ClimateYears.open(tmp_path)
    assert caught.value.hint


def test_double_precision_is_read_as_single(tmp_path: Path) -> None:
    images = frames(4)
    write_year(tmp_path / "climo_1979.h5", images.astype(">f8"), boxes(4))
    year = ClimateYears.open(tmp_path).years[0]
    np.testing.assert_array_equal(year.source.frame(3), images[3])
    assert "float64, read as float32" in year.notes[0]


def test_another_resolution_than_its_siblings(tmp_path: Path) -> None:
    write_year(tmp_path / "climo_1979.h5")
    write_year(tmp_path / "climo_1980.h5", frames(5, height=48, width=80), boxes(5))
    message, hint = refused(tmp_path)
    assert "climo_1980.h5 has frames of 48x80, but climo_1979.h5 has 24x40" in message
    assert "the same resolution" in hint


def test_sixteen_boxes_in_a_frame(tmp_path: Path) -> None:
    rows = np.concatenate([boxes(5), np.full((5, 3, 5), -1)], axis=1)
    write_year(tmp_path / "climo_1979.h5", None, rows)
    ClimateYears.open(tmp_path)  # more rows than allowed, but no frame has more boxes
    rows[3, :16] = [1, 2, 3, 30, 0]
    write_year(tmp_path / "climo_1979.h5", None, rows)
    message, hint = refused(tmp_path)
    assert "climo_1979.h5: frame 3 has 16 boxes, at most 15" in message and "-1" in hint


def test_a_year_without_boxes(tmp_path: Path) -> None:
    rows = boxes(5)
    rows[1:] = -1
    write_year(tmp_path / "climo_1979.h5", None, rows)  # frames without boxes are fine
    ClimateYears.open(tmp_path)
    write_year(tmp_path / "climo_1980.h5", None, np.full((5, 15, 5), -1))
    message, hint = refused(tmp_path)
    assert "climo_1980.h5 has no boxes in any of its 5 frames" in message
    assert "labels are missing" in hint


def test_survey_names_all_bad_files_and_keeps_the_good(tmp_path: Path) -> None:
    year_folder(tmp_path)
    (tmp_path / "climo_1979.h5").write_bytes(b"")
    (tmp_path / "climo_1981.h5").write_bytes(b"x" * 3000)
    folder, faults = survey(tmp_path)
    assert folder.numbers == (1980, 1982)
    assert [Path(fault.message.split()[0]).name for fault in faults] == [
        "climo_1979.h5",
        "climo_1981.h5",
    ]


COLUMNS = {
    "yxyxc": [0, 1, 2, 3, 4],
    "xyxyc": [1, 0, 3, 2, 4],
    "cyxyx": [4, 0, 1, 2, 3],
    "cxyxy": [4, 1, 0, 3, 2],
}
"""From the published order to each of them."""


@pytest.mark.parametrize("order", ORDERS)
def test_every_known_order_is_recognised_and_converted(tmp_path: Path, order: str) -> None:
    rows = boxes(12)
    write_year(tmp_path / "climo_1979.h5", frames(12), rows[..., COLUMNS[order]])
    year = ClimateYears.open(tmp_path).years[0]
    assert year.order == order
    np.testing.assert_array_equal(year.rows, rows)
    assert bool(year.notes) == (order != "yxyxc")
    if year.notes:
        assert "climo_1979.h5: boxes are " in year.notes[0] and "converted" in year.notes[0]


def test_orders_in_words() -> None:
    assert column_names("yxyxc") == "ymin, xmin, ymax, xmax, class"
    assert column_names("cxyxy") == "class, xmin, ymin, xmax, ymax"


def test_a_few_bad_boxes_do_not_change_the_order(tmp_path: Path) -> None:
    rows = boxes(12)
    rows[4, 0] = [5, 3, HEIGHT + 9, 6, 1]  # fits only the other order
    write_year(tmp_path / "climo_1979.h5", frames(12), rows)
    assert ClimateYears.open(tmp_path).years[0].order == "yxyxc"


def test_an_order_that_does_not_show_is_that_of_the_other_years(tmp_path: Path) -> None:
    hidden = np.full((5, 15, 5), -1)
    hidden[:, 0] = [2, 3, 8, 9, 1]  # inside a square: fits both
    write_year(tmp_path / "climo_1980.h5", None, hidden)
    year = ClimateYears.open(tmp_path).years[0]
    assert year.order == "yxyxc" and "cannot be recognised from the values" in year.notes[0]
    assert "as published" in year.notes[0]
    write_year(tmp_path / "climo_1979.h5", frames(12), boxes(12)[..., COLUMNS["xyxyc"]])
    year = ClimateYears.open(tmp_path).year(1980)
    assert year.boxes(0).tolist() == [[3, 2, 9, 8, 1]]
    assert "as in the other years" in year.notes[0]


def test_many_boxes_without_a_sign_of_their_order_are_refused(tmp_path: Path) -> None:
    rows = boxes(12)
    rows[:, :3] = [2, 3, 8, 9, 1]
    write_year(tmp_path / "climo_1979.h5", frames(12), rows)
    message, hint = refused(tmp_path)
    assert "climo_1979.h5: the column order of its 36 boxes cannot be recognised" in message
    assert "--box-order yxyxc" in hint
    year = ClimateYears.open(tmp_path, "xyxyc").years[0]
    assert year.boxes(0)[0].tolist() == [3, 2, 9, 8, 1]


def test_one_odd_box_of_few_is_no_proof_of_another_order() -> None:
    rows = np.array([[5.0, 3, HEIGHT + 9, 6, 1]] + [[2.0, 3, 8, 9, 1]] * 4)
    with pytest.raises(UsageError, match="f: the column order of its 5 boxes cannot be recognised"):
        recognise(rows, HEIGHT, WIDTH, "f")


def test_boxes_of_no_known_order(tmp_path: Path) -> None:
    rows = boxes(12)
    rows[:, :3, 4] = 7
    write_year(tmp_path / "climo_1979.h5", frames(12), rows)
    message, hint = refused(tmp_path)
    assert "climo_1979.h5: 36 of 36 boxes are not ymin, xmin, ymax, xmax, class" in message
    assert "a class from 0 to 3" in hint


def test_bad_boxes_are_cut_or_dropped() -> None:
    rows = np.array(
        [
            [1, 2, 5, 9, 0],
            [-3, 2, 5, WIDTH + 4, 1],
            [5, 5, 5, 9, 2],
            [9, 5, 3, 9, 2],
            [1, 2, 5, 9, 4],
            [HEIGHT, 2, HEIGHT + 4, 9, 0],
        ]
    )
    kept, wrong = repair_boxes(rows, HEIGHT, WIDTH)
    assert kept.tolist() == [[1, 2, 5, 9, 0], [0, 2, 5, WIDTH, 1]]
    assert [one.rpartition(": ")[2] for one in wrong] == ["cut at the edge", *["dropped"] * 4]
    assert "reaches out of the frame of 24x40" in wrong[0]
    assert "[5, 5, 5, 9, 2] has no area" in wrong[1] and "has no area" in wrong[2]
    assert "class 4, expected 0 to 3" in wrong[3]
    assert clip_box(np.array([0, 0, HEIGHT, WIDTH, 3]), HEIGHT, WIDTH) is not None


@pytest.mark.parametrize("side", range(4))
def test_boxes_at_the_edge_are_in_and_beyond_it_are_cut(side: int) -> None:
    edge = (0, 0, HEIGHT, WIDTH)[side]
    outward = (-1, -1, 1, 1)[side]
    at_edge = np.array([5, 7, 9, 12, 2])
    at_edge[side] = edge
    kept, wrong = repair_boxes(at_edge[None], HEIGHT, WIDTH)
    assert kept.tolist() == [at_edge.tolist()] and wrong == ()
    beyond = at_edge.copy()
    beyond[side] += outward
    kept, (note,) = repair_boxes(beyond[None], HEIGHT, WIDTH)
    assert kept.tolist() == [at_edge.tolist()]
    assert "reaches out of the frame of 24x40" in note and note.endswith(": cut at the edge")
    outside = at_edge.copy()
    outside[[side, (side + 2) % 4]] = edge + 5 * outward, edge
    assert repair_boxes(outside[None], HEIGHT, WIDTH)[0].shape == (0, 5), "nothing of it is inside"


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ([1, np.nan, 5, 9, 0], "box [1, nan, 5, 9, 0] has a NaN in it: dropped"),
        ([1, 2, 5, 9, np.nan], "box [1, 2, 5, 9, nan] has a NaN in it: dropped"),
        ([1, 2, 1.9, 9, 0], "box [1, 2, 1.9, 9, 0] has a side below 1 pixel"),
        ([1, 2, 5, 2.5, 0], "box [1, 2, 5, 2.5, 0] has a side below 1 pixel"),
    ],
)
def test_boxes_that_are_none(row: list[float], says: str) -> None:
    kept, (note,) = repair_boxes(np.array([row]), HEIGHT, WIDTH)
    assert kept.shape == (0, 5) and says in note
    assert repair_boxes(np.array([[1, 2, 2, 3, 0]]), HEIGHT, WIDTH)[1] == ()


def test_boxes_are_padded_as_corners() -> None:
    actual, labels = pad_boxes(np.array([[1, 2, 5, 9, 3]]))
    assert actual.shape == (15, 4) and actual.dtype == np.float32
    assert actual[0].tolist() == [2, 1, 9, 5] and not actual[1:].any()
    assert labels.tolist() == [3] + [-1] * 14 and labels.dtype == np.int64
    assert pad_boxes(np.zeros((0, 5)))[1].tolist() == [-1] * 15


def test_orders_are_inverse_to_their_columns() -> None:
    rows = np.arange(10.0).reshape(2, 5)
    for order in ORDERS:
        np.testing.assert_array_equal(reorder_columns(rows[:, COLUMNS[order]], order), rows)


def test_the_reference_split() -> None:
    split = split_years(Path("d"), (1981, 1979, 1982, 1980))
    assert split.all == {"train": (1979, 1980), "validation": (1981,), "test": (1982,)}
    assert split.reference


@pytest.mark.parametrize(
    ("years", "says", "hint"),
    [
        ((1979, 1980), "2 years (1979, 1980)", "--train-years 1979 --validation-years 1980"),
        ((1979,), "1 year (1979)", "cannot both train and validate"),
    ],
)
def test_too_few_years_are_explained(years: tuple[int, ...], says: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        split_years(Path("d"), years)
    assert says in caught.value.message and "needs 3" in caught.value.message
    assert hint in str(caught.value.hint)


def test_an_own_split() -> None:
    years = (1979, 1980, 1981, 1982)
    split = split_years(Path("d"), years, train=(1982, 1979), validation=(1980,))
    assert split.by_name == {"train": (1979, 1982), "validation": (1980,)}
    assert not split.reference
    rest = split_years(Path("d"), years, validation=(1979,), test=(1981,))
    assert rest.train == (1980, 1982)
    for wrong, says in (
        ({"train": (1979,), "validation": (1979,)}, "names 1979 twice: for validation and for tr"),
        ({"train": (1979,), "validation": (1999,)}, "1999 for validation, but d has no climo_1999"),
        ({"train": (1979,)}, "no years for validation"),
        ({"train": (), "validation": (1979,)}, "no years for train"),
    ):
        with pytest.raises(UsageError, match=says):
            split_years(Path("d"), years, **wrong)


def test_years_as_people_write_them() -> None:
    assert parse_years("1979-1981, 1985") == (1979, 1980, 1981, 1985)
    for wrong in ("", "79", "1981-1979", "1979,", "a"):
        with pytest.raises(UsageError, match="years") as caught:
            parse_years(wrong)
        assert "1979-1983" in str(caught.value.hint)


def test_nothing_is_written_where_years_are_opened(tmp_path: Path) -> None:
    year_folder(tmp_path / "a", number=2)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    before = {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()}
    set_value(tmp_path / "a/climo_1979.h5", "images", {(0, 0, 0, 0): 1.0})
    ClimateYears.open(tmp_path / "b")
    assert {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()} == before


@pytest.mark.parametrize("key", ["images", "boxes"])
def test_an_array_without_any_size(tmp_path: Path, key: str) -> None:
    with h5py.File(write_year(tmp_path / "climo_1979.h5"), "r+") as file:
        del file[key]
        file[key] = h5py.Empty("f4")
    message, hint = refused(tmp_path)
    assert f"climo_1979.h5: {key} are without a shape, expected (" in message and hint


@pytest.mark.parametrize("first", ["small", "large"])
def test_another_resolution_is_named_before_its_boxes(tmp_path: Path, first: str) -> None:
    large = boxes(12) * 2
    large[..., 4] = boxes(12)[..., 4]
    large[large[..., 4] < 0] = -1
    years = (1979, 1980) if first == "small" else (1980, 1979)
    write_year(tmp_path / f"climo_{years[0]}.h5", frames(12), boxes(12))
    write_year(tmp_path / f"climo_{years[1]}.h5", frames(12, height=20, width=30), large)
    if first == "small":
        message, hint = refused(tmp_path)
        assert "climo_1980.h5 has frames of 20x30, but climo_1979.h5 has 24x40" in message
        assert "the same resolution" in hint
    else:  # without another year only its boxes are wrong
        assert "boxes" in refused(tmp_path)[0]


def test_a_writer_that_was_killed_is_not_taken_for_one_that_lives(tmp_path: Path) -> None:
    path = tmp_path / "climo_1979.h5"
    code = (
        "import h5py, os, sys; f = h5py.File(sys.argv[1], 'w', libver='latest')\n"
        "f['images'] = 1; f.flush(); os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    message, hint = refused(tmp_path)
    assert f"{path} is marked as open for writing" in message and "killed" in message
    assert f"h5clear -s {path}" in hint and "get the file again" in hint


def test_names_that_are_no_files(tmp_path: Path) -> None:
    year_folder(tmp_path)
    (tmp_path / "climo_1983.h5").symlink_to(tmp_path / "gone.h5")
    message, hint = refused(tmp_path)
    assert f"climo_1983.h5 is a link to {tmp_path / 'gone.h5'}, which does not exist" in message
    assert "remove the link" in hint
    (tmp_path / "climo_1983.h5").unlink()
    (tmp_path / "climo_1983.h5").mkdir()
    message, hint = refused(tmp_path)
    assert "climo_1983.h5 is a folder, expected an HDF5 file" in message and "move" in hint


def with_filter(path: Path, number: int) -> None:
    """Write images that claim to be compressed with a filter that is not installed."""
    with h5py.File(path, "r+") as file:
        shape = file["images"].shape
        del file["images"]
        made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        made.set_chunk((1, *shape[1:]))
        made.set_filter(number, h5py.h5z.FLAG_OPTIONAL, (3,))
        space = h5py.h5s.create_simple(shape)
        array = h5py.h5d.create(file.id, b"images", h5py.h5t.IEEE_F32LE, space, made)
        for frame in range(shape[0]):
            array.write_direct_chunk((frame, 0, 0, 0), b"compressed" * 9)


def test_a_filter_that_is_not_installed_is_named(tmp_path: Path) -> None:
    year_folder(tmp_path / "years")
    with_filter(tmp_path / "years/climo_1980.h5", 32015)
    message, hint = refused(tmp_path / "years")
    assert "climo_1980.h5: images are compressed with HDF5 filter 32015" in message
    assert "not installed here" in message
    assert "h5repack -f GZIP=1" in hint and "hdf5plugin" in hint
    with pytest.raises(UsageError, match="filter 32015"):  # the year is never silently left out
        pack(tmp_path / "years", tmp_path / "packed", policy="skip", workers=1)


def test_an_own_split_is_explained_in_the_words_of_the_command() -> None:
    form = "--set years.{split}={years}"
    for years, test in (((1979, 1980), None), ((1979, 1980, 1981), (1981,))):
        with pytest.raises(UsageError) as caught:
            split_years(Path("d"), years, test=test, option_format=form)
        hint = str(caught.value.hint)
        assert hint.endswith("--set years.train=1979 --set years.validation=1980")
        assert split_years(Path("d"), years, train=(1979,), validation=(1980,), test=test)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"chunks": (1, 16, HEIGHT, WIDTH)}, "2 of 5 chunks of its images"),
        ({"chunks": (2, 3, 7, 9), "compression": "gzip"}, "120 of 360 chunks of its images"),
        ({}, f"{5 * 16 * HEIGHT * WIDTH * 4:,} of {5 * 16 * HEIGHT * WIDTH * 4:,} bytes of its im"),
    ],
)
def test_a_year_that_was_not_written_to_its_end(
    tmp_path: Path, options: dict[str, Any], says: str
) -> None:
    whole = write_year(tmp_path / "climo_1979.h5", **options)
    ClimateYears.open(tmp_path)
    with h5py.File(whole, "r+") as file:
        del file["images"]
        images = file.create_dataset("images", (5, 16, HEIGHT, WIDTH), "f4", **options)
        if options:
            images[:3] = frames(3)
    message, hint = refused(tmp_path)
    assert f"climo_1979.h5: {says}" in message and "were never written" in message
    assert "did not finish" in hint


def test_boxes_that_were_not_written(tmp_path: Path) -> None:
    with h5py.File(write_year(tmp_path / "climo_1979.h5"), "r+") as file:
        del file["boxes"]
        file.create_dataset("boxes", (5, 15, 5), "i4", chunks=(1, 15, 5))[:2] = boxes(2)
    message, _ = refused(tmp_path)
    assert "climo_1979.h5: 3 of 5 chunks of its boxes were never written" in message


def test_fields_may_lie_in_other_files(tmp_path: Path) -> None:
    images = frames(5)
    write_year(tmp_path / "climo_1979.h5", images)
    write_year(tmp_path / "fields", images)
    with h5py.File(tmp_path / "climo_1979.h5", "r+") as file:
        del file["images"]
        layout = h5py.VirtualLayout(images.shape, images.dtype)
        layout[...] = h5py.VirtualSource(str(tmp_path / "fields"), "images", images.shape)
        file.create_virtual_dataset("images", layout)
    source = ClimateYears.open(tmp_path).years[0].source
    np.testing.assert_array_equal(source.frame(3), images[3])


def virtual_year(folder: Path, name: str, *, mapped: int = 5) -> None:
    """Write a year whose fields are those of the file ``name``."""
    images = frames(5)
    with h5py.File(write_year(folder / "climo_1979.h5", images), "r+") as file:
        del file["images"]
        layout = h5py.VirtualLayout(images.shape, images.dtype)
        layout[:mapped] = h5py.VirtualSource(name, "images", images.shape)[:mapped]
        file.create_virtual_dataset("images", layout)


def half_written(folder: Path) -> None:
    with h5py.File(folder / "fields", "w") as file:
        file.create_dataset("images", (5, 16, HEIGHT, WIDTH), "f4", chunks=(1, 16, HEIGHT, WIDTH))


def without_array(folder: Path) -> None:
    h5py.File(folder / "fields", "w").close()


def shorter(folder: Path) -> None:
    write_year(folder / "fields", frames(4), boxes(4))


def no_hdf5(folder: Path) -> None:
    (folder / "fields").write_text("no HDF5")


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda folder: None, "its images are partly in fields, which does not exist"),
        (half_written, "5 of 5 chunks of its images were never written"),
        (without_array, "has no array 'images'"),
        (shorter, "'images' is (4, 16, 24, 40), smaller than the part of images"),
        (no_hdf5, "which cannot be read"),
    ],
)
def test_a_virtual_array_without_its_source_is_refused(
    tmp_path: Path, write: Callable[[Path], None], says: str
) -> None:
    virtual_year(tmp_path, "fields")
    write(tmp_path)
    message, _ = refused(tmp_path)
    assert says in message and "fields" in message


def test_values_that_no_source_has_are_refused(tmp_path: Path) -> None:
    write_year(tmp_path / "fields", frames(5))
    virtual_year(tmp_path, "fields", mapped=4)
    message, _ = refused(tmp_path)
    assert "15,360 of 76,800 values of its images are in no source" in message


def map_fields(path: Path, *parts: tuple[object, str]) -> None:
    """Write a year whose fields are virtual: pairs of an index and the file that has that part."""
    images = frames(5)
    with h5py.File(write_year(path, images), "r+") as file:
        del file["images"]
        layout = h5py.VirtualLayout(images.shape, images.dtype)
        for index, name in parts:
            layout[index] = h5py.VirtualSource(name, "images", images.shape)[index]
        file.create_virtual_dataset("images", layout)


EVERY = slice(None)


@pytest.mark.parametrize(
    ("indices", "missing"),
    [
        ((slice(4), slice(3, 4)), 15_360),
        ((slice(4), slice(2)), 15_360),
        ((slice(0, 5, 2), slice(0, 5, 2)), 30_720),
        (((EVERY, [0, 1, 5]), (EVERY, [0, 1, 5])), 62_400),
        (((EVERY, slice(15)), (slice(4), EVERY)), 960),
        ((slice(4), slice(3, 5)), 0),
        ((slice(0, 5, 2), slice(1, 5, 2)), 0),
        (((EVERY, [0, 1, 5]), (EVERY, slice(1, 16))), 0),
        ((EVERY, slice(3)), 0),
    ],
)
def test_overlapping_parts_of_a_virtual_array_do_not_hide_a_gap(
    tmp_path: Path, indices: tuple[object, ...], missing: int
) -> None:
    write_year(tmp_path / "fields", frames(5))
    map_fields(tmp_path / "climo_1979.h5", *((index, "fields") for index in indices))
    if missing:
        message, _ = refused(tmp_path)
        assert f"{missing:,} of 76,800 values of its images are in no source" in message
    else:
        source = ClimateYears.open(tmp_path).years[0].source
        for number, expected in enumerate(frames(5)):
            np.testing.assert_array_equal(source.frame(number), expected)


@pytest.mark.parametrize("other", [".", "climo_1979.h5", "fields"])
def test_a_virtual_array_that_is_its_own_source_is_refused(tmp_path: Path, other: str) -> None:
    if other == "fields":
        map_fields(tmp_path / "fields", (EVERY, "climo_1979.h5"))
    map_fields(tmp_path / "climo_1979.h5", (EVERY, other))
    message, hint = refused(tmp_path)
    assert "a virtual array that has itself as a source" in message and "one file" in hint


def test_sources_beside_the_file_that_a_link_names_are_found(tmp_path: Path) -> None:
    target, links = tmp_path / "target", tmp_path / "links"
    links.mkdir()
    write_year(target / "fields", frames(5))
    map_fields(target / "climo_1979.h5", (EVERY, "fields"))
    (links / "climo_1979.h5").symlink_to(target / "climo_1979.h5")
    source = ClimateYears.open(links).years[0].source
    np.testing.assert_array_equal(source.frame(3), frames(5)[3])


def test_numbered_sources_are_refused(tmp_path: Path) -> None:
    shape, frame = (5, 16, HEIGHT, WIDTH), (1, 16, HEIGHT, WIDTH)
    h5s = h5py.h5s
    target = h5s.create_simple(shape, (h5s.UNLIMITED, *shape[1:]))
    target.select_hyperslab((0,) * 4, (h5s.UNLIMITED, 1, 1, 1), block=frame)
    numbered = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    numbered.set_virtual(target, b"fields-%b", b"images", h5s.create_simple(frame))
    with h5py.File(write_year(tmp_path / "climo_1979.h5"), "r+") as file:
        del file["images"]
        h5py.h5d.create(file.id, b"images", h5py.h5t.IEEE_F32LE, target, numbered)
    for number in range(5):
        write_year(tmp_path / f"fields-{number}", frames(1), boxes(1))
    message, hint = refused(tmp_path)
    assert "without a fixed size, from fields-%b" in message and "one file" in hint


@pytest.mark.parametrize(
    ("size", "says"),
    [
        (None, "partly in {raw}, which does not exist"),
        (1000, "306,200 bytes of its images are missing at the end of {raw}"),
    ],
)
def test_external_storage_that_is_not_there_is_refused(
    tmp_path: Path, size: int | None, says: str
) -> None:
    images, raw = frames(5), tmp_path / "raw"
    with h5py.File(write_year(tmp_path / "climo_1979.h5", images), "r+") as file:
        del file["images"]
        file.create_dataset(
            "images", images.shape, "f4", data=images, external=[(str(raw), 0, images.nbytes)]
        )
    np.testing.assert_array_equal(ClimateYears.open(tmp_path).years[0].source.frame(3), images[3])
    if size is None:
        raw.unlink()
    else:
        os.truncate(raw, size)
    message, _ = refused(tmp_path)
    assert says.format(raw=raw) in message


def test_boxes_that_reach_out_of_the_frame_are_told_from_an_unknown_order(tmp_path: Path) -> None:
    rows = boxes(12)
    rows[:, 0, 2] = HEIGHT + 9
    write_year(tmp_path / "climo_1979.h5", frames(12), rows)
    message, hint = refused(tmp_path)
    assert "12 of 36 boxes are not" in message and "has a part inside" in message
    assert "--box-order yxyxc" in hint and "--policy" not in hint  # data check has no --policy
    ClimateYears.open(tmp_path, "yxyxc")


@pytest.mark.parametrize("order", [None, *ORDERS])
@pytest.mark.parametrize("number", [2, 12])
def test_boxes_in_fractions_of_the_frame(tmp_path: Path, order: Any, number: int) -> None:
    rows = boxes(number).astype(np.float64)
    there = rows[..., 4] >= 0
    rows[there] /= [HEIGHT, WIDTH, HEIGHT, WIDTH, 1]
    rows = rows[..., COLUMNS[order or "cyxyx"]]
    write_year(tmp_path / "climo_1979.h5", frames(number), rows)
    with pytest.raises(UsageError) as caught:
        ClimateYears.open(tmp_path, order)
    says = "climo_1979.h5: boxes are fractions of the frame, expected pixels"
    assert caught.value.message.endswith(says)
    assert caught.value.hint == f"multiply their y by {HEIGHT} and their x by {WIDTH}"


@pytest.mark.parametrize("order", [None, *ORDERS])
@pytest.mark.parametrize("last", [1, 12])
def test_classes_counted_from_one(tmp_path: Path, order: Any, last: int) -> None:
    rows = boxes(12)
    rows[:, :3, 4] = (np.arange(36) % 3 + 1).reshape(12, 3)
    rows[:last, 2, 4] = 4  # in one frame, or in each
    write_year(tmp_path / "climo_1979.h5", frames(12), rows[..., COLUMNS[order or "cxyxy"]])
    with pytest.raises(UsageError) as caught:
        ClimateYears.open(tmp_path, order)
    assert "climo_1979.h5: classes run from 1 to 4, expected 0 to 3" in caught.value.message
    assert "subtract 1" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("link", "says"),
    [
        (None, "'boxes' is a group, expected an array"),
        (h5py.SoftLink("/gone"), "'boxes' is a link to /gone, which does not exist"),
        (h5py.ExternalLink("f.h5", "/b"), "'boxes' is a link to /b of f.h5, which does not exist"),
    ],
)
def test_a_name_that_is_no_array(tmp_path: Path, link: Any, says: str) -> None:
    with h5py.File(write_year(tmp_path / "climo_1979.h5"), "r+") as file:
        del file["boxes"]
        if link is None:
            file.create_group("boxes")
        else:
            file["boxes"] = link
    message, hint = refused(tmp_path)
    assert f"climo_1979.h5: {says}" in message and "get the file again" in hint
