"""Pictures of runs in a report: which are shown, how much of them, and what strange files do."""

import os
import re

import numpy as np
import pytest

from made_runs import HOSTILE, begin, make_run, rows_of, table_of
from sgdf.bench.report.samples import FINEST, MOST_ROWS, spread
from sgdf.bench.report.write import WRITTEN_BY_REPORTS, Report
from sgdf.bench.store import pictures
from sgdf.bench.store.pictures import Picture
from sgdf.present.page import page
from sgdf.present.plots import mark_of

pytestmark = pytest.mark.usefixtures("_watchdog")


def picture(shade, height=4, width=6, colours=3):
    return Picture(height, width, colours, bytes([shade]) * (height * width * colours))


def run_with_pictures(store, epochs=(1, 2), shade=0, series="samples", size=(4, 6, 3), **spec):
    """Write a run whose pictures at each epoch are of one shade, that of the epoch added."""
    folder = make_run(store, [0.3, 0.6], **spec)
    for epoch in epochs:
        folder.pictures.write(series, epoch, picture(shade + epoch, *size))
    return folder


def plot_of(store):
    """Return the plot of pictures, None if there is none."""
    plots = [plot for plot in Report.of([store]).document.plots if plot.name == "samples-0"]
    return plots[0] if plots else None


def shown(store):
    """Return what each row shows: its name, and title and shade of each picture."""
    rows, found = plot_of(store).figure.axes, []
    for start in range(0, len(rows), 4):
        panels = [panel for panel in rows[start : start + 4] if panel.images]
        found.append(
            (
                rows[start].get_ylabel().replace("\n", " "),
                {p.get_title(): int(p.images[0].get_array().flat[0]) for p in panels},
            )
        )
    return found


def test_each_setting_has_a_row_of_its_first_seed(tmp_path):
    run_with_pictures(tmp_path, shade=10, optimizer="adam", seed=3)
    run_with_pictures(tmp_path, shade=20, optimizer="adam", seed=4)
    make_run(tmp_path, [0.3, 0.9], optimizer="sgd", seed=2)  # without pictures
    run_with_pictures(tmp_path, shade=30, optimizer="sgd", seed=3)
    assert sorted(shown(tmp_path)) == [
        ("adam seed 3", {"epoch 1": 11, "epoch 2": 12}),
        ("sgd seed 3", {"epoch 1": 31, "epoch 2": 32}),
    ]
    plot = plot_of(tmp_path)
    assert (plot.title, plot.section) == ("Samples", "points")
    assert "with seed 3 have shown" in plot.about
    assert "never the best one" in plot.about
    assert "draw the same random numbers at all epochs" in plot.about
    assert WRITTEN_BY_REPORTS.fullmatch("samples-0.png")


def test_the_seed_is_the_first_and_not_the_best(tmp_path):
    for seed, top in ((0, 0.4), (1, 0.9), (2, 0.6)):
        folder = make_run(tmp_path, [0.3, top], seed=seed)
        folder.pictures.write("samples", 1, picture(seed))
    assert shown(tmp_path) == [("sgd seed 0", {"epoch 1": 0})]


def test_a_run_that_is_lost_or_has_no_result_shows_nothing(tmp_path):
    begin(tmp_path, table_of()).append(rows_of([0.9]))
    (folder,) = (tmp_path / "runs").iterdir()
    (folder / "pictures").mkdir()
    (folder / "pictures" / "a-000001.png").write_bytes(pictures.encode(picture(1)))
    assert plot_of(tmp_path) is None


def test_four_epochs_are_shown_the_last_among_them(tmp_path):
    run_with_pictures(tmp_path, epochs=range(10, 101, 10))
    (row,) = shown(tmp_path)
    assert list(row[1]) == ["epoch 20", "epoch 50", "epoch 70", "epoch 100"]


@pytest.mark.parametrize(
    ("epochs", "expected"),
    [
        ([7], [7]),
        ([1, 2, 3, 4], [1, 2, 3, 4]),
        ([1, 2, 3, 100], [1, 2, 3, 100]),
        ([1, 2, 3, 99, 100], [3, 99, 100]),
        (range(1, 301), [75, 150, 225, 300]),
    ],
)
def test_epochs_are_spread_evenly(epochs, expected):
    assert spread(epochs) == expected


def test_series_have_rows_of_their_own(tmp_path):
    run_with_pictures(tmp_path, epochs=[1], series="noise", shade=50)
    (folder,) = (tmp_path / "runs").iterdir()
    kept = pictures.Pictures(folder / "pictures")
    kept.write("guided", 1, picture(90, colours=1))
    assert shown(tmp_path) == [
        ("sgd, guided seed 0", {"epoch 1": 90}),
        ("sgd, noise seed 0", {"epoch 1": 51}),
    ]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((71, 71, 1), (71, 71)),
        ((263, 263, 3), (132, 132, 3)),
        ((519, 519, 3), (260, 260, 3)),
        ((1000, 600, 3), (250, 150, 3)),
        ((1, 2000, 1), (1, 250)),
    ],
)
def test_of_large_pictures_the_upper_left_quarter_is_shown(size, expected, tmp_path):
    run_with_pictures(tmp_path, epochs=[1], size=size)
    found = plot_of(tmp_path).figure.axes[0].images[0].get_array()
    assert found.shape == expected
    assert max(expected) <= FINEST
    assert set(np.unique(found)) == {1}


def test_the_quarter_is_the_upper_left_one_and_coarser_pixels_are_means(tmp_path):
    pixels = np.zeros((800, 800, 1), np.uint8)
    pixels[:400:2, :400] = 200
    pixels[400:], pixels[:, 400:] = 255, 255
    folder = make_run(tmp_path, [0.3, 0.6])
    folder.pictures.write("a", 1, Picture(800, 800, 1, pixels.tobytes()))
    found = plot_of(tmp_path).figure.axes[0].images[0].get_array()
    assert found.shape == (200, 200)
    assert set(np.unique(found)) == {100}


# Files of strangers


def foreign(path, content):
    path.unlink(missing_ok=True)
    path.write_bytes(content)


STRANGE = {
    "damaged": lambda path: foreign(path, path.read_bytes()[:-9]),
    "empty": lambda path: foreign(path, b""),
    "text": lambda path: foreign(path, b"<svg onload=alert(1)>"),
    "too many bytes": lambda path: foreign(path, path.read_bytes() + bytes(5 << 20)),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "a link to nothing": lambda path: (path.unlink(), path.symlink_to("nothing")),
    "a device": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
}


@pytest.mark.parametrize("what", STRANGE)
def test_a_strange_picture_is_left_out(what, tmp_path):
    folder = run_with_pictures(tmp_path)
    STRANGE[what](folder.pictures.path / "samples-000001.png")
    assert shown(tmp_path) == [("sgd seed 0", {"epoch 2": 2})]
    STRANGE[what](folder.pictures.path / "samples-000002.png")
    assert plot_of(tmp_path) is None


def test_a_picture_with_too_many_pixels_is_left_out(tmp_path, monkeypatch):
    run_with_pictures(tmp_path)
    monkeypatch.setattr(pictures, "MOST_PIXELS", 23)
    assert plot_of(tmp_path) is None


def test_a_folder_of_pictures_that_is_none_is_no_obstacle(tmp_path):
    folder = make_run(tmp_path, [0.3, 0.6])
    folder.pictures.path.write_bytes(b"")
    assert plot_of(tmp_path) is None


def test_rows_are_bounded(tmp_path):
    folder = make_run(tmp_path, [0.3, 0.6])
    for number in range(MOST_ROWS + 6):
        folder.pictures.write(f"s{number:03}", 1, picture(number))
    assert len(shown(tmp_path)) == MOST_ROWS
    assert plot_of(tmp_path).about.endswith("24 of 30 rows are drawn.")


# On the page


def test_pictures_are_in_every_form_of_the_report(tmp_path):
    run_with_pictures(tmp_path / "store", optimizer="mine:Own")
    Report.of([tmp_path / "store"]).write(tmp_path / "report")
    for ending in ("png", "pdf"):
        assert (tmp_path / "report" / "figures" / f"samples-0.{ending}").stat().st_size > 1000
    html = (tmp_path / "report" / "index.html").read_text()
    of_own = re.findall(rf'<g class="{mark_of("mine:Own")}">\s*(?:<[^>]*>\s*)*?<image ', html)
    assert len(of_own) == 2  # so that they are hidden with their optimizer
    assert "data:image/png;base64" in html
    assert "figures/samples-0.png" in (tmp_path / "report" / "report.md").read_text()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(name, tmp_path):
    run_with_pictures(tmp_path, optimizer=name)
    html = page(Report.of([tmp_path]).document)
    assert "<script>alert" not in html
    assert "<img" not in html
