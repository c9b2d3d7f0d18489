"""Figures of several panels: where the legend is drawn."""

import pytest

from sgdf.present.plots import Sheet, drawing

NAMES = ["validation perplexity of a trial", "best", "pruned, diverged, failed or beyond the axis"]


def sheet_with_legend(count, columns):
    """Return a sheet of so many panels, drawn, and the box around its legend in pixels."""
    with drawing("any"):
        sheet = Sheet(count, 2.7, 1.9, NAMES, columns)
        (line,) = sheet.panels[0].plot([0, 1], [0, 1])
        figure = sheet.legend(dict.fromkeys(NAMES, line))
        figure.canvas.draw()
    return sheet, figure.legends[0].get_window_extent()


@pytest.mark.parametrize(("count", "columns"), [(3, 3), (4, 3), (5, 4), (6, 4), (7, 4), (8, 3)])
def test_the_legend_is_whole_and_covers_no_panel(count, columns):
    sheet, legend = sheet_with_legend(count, columns)
    width, height = sheet.figure.canvas.get_width_height()
    assert 0.0 <= legend.x0 < legend.x1 <= width
    assert 0.0 <= legend.y0 < legend.y1 <= height
    for panel in sheet.panels:
        assert not legend.overlaps(panel.get_tightbbox())


def test_free_cells_hold_the_legend_only_if_it_fits():
    assert sheet_with_legend(6, 4)[0].in_cells
    assert not sheet_with_legend(7, 4)[0].in_cells
