"""The HTML report in headless Chromium: what a reader sees, and that no text of a run breaks it."""

import itertools
import math

import pytest

from made_runs import HOSTILE, begin, make_run, result_of, rows_of, table_of
from made_states import STATES, finish, make_grid, wait
from sgdf.bench.report.document_files import write_text
from sgdf.bench.report.write import Report
from sgdf.bench.store.run_folder import State, Store
from sgdf.present.formats import one_line
from sgdf.present.page import page as page_of


def write_page(store, folder, targets=None):
    """Write the page of a report alone: its figures as PNG and PDF take four times as long."""
    path = folder / "index.html"
    write_text(path, page_of(Report.of([store], targets).document))
    return path


@pytest.fixture(scope="module")
def page_path(filled_store, tmp_path_factory):
    return write_page(filled_store, tmp_path_factory.mktemp("report"), {"": 0.85})


@pytest.fixture(scope="module")
def hostile_path(tmp_path_factory):
    """A report whose names, messages, metrics and environments would break unescaped HTML."""
    store = tmp_path_factory.mktemp("hostile")
    for name, seed in itertools.product(HOSTILE, (0, 1)):
        make_run(store, [0.5, 0.6 + 0.1 * seed], optimizer=name, seed=seed)
    for name in HOSTILE[:3]:
        make_run(store, [0.5], task=name, metric=name)
    make_run(store, [0.5], task={"name": "points", **{name: name for name in HOSTILE}})
    for name in HOSTILE:
        begin(store, table_of(optimizer=name, seed=7)).fail(name)
    begin(store, table_of(seed=8)).add_environment({name: name for name in HOSTILE})
    for seed, value in enumerate((math.nan, math.inf, -math.inf)):
        make_run(store, [value, value], optimizer="odd", task="odd", seed=seed)
    for seed in (0, 1):
        rows = rows_of([0.5])
        for split in ("train", "validation", "test"):
            rows[0][split] = {}
        chosen = {**result_of(rows_of([0.5])), "selected": rows[0], "last": rows[0]}
        begin(store, table_of(optimizer="empty", seed=seed)).finish(State.FINISHED, chosen, rows)
    return write_page(store, tmp_path_factory.mktemp("report"))


def column(page, table, index):
    """Return the texts of a column in the rows that are not hidden."""
    return page.eval_on_selector_all(
        f"#{table} tbody tr:not([hidden]) td:nth-child({index})",
        "cells => cells.map(cell => cell.textContent)",
    )


def test_the_page_shows_the_comparison(show, page_path):
    page = show(page_path)
    assert page.title().startswith("Report on ")
    assert "36 of 39 runs finished" in page.inner_text("header")
    assert page.locator("figure svg").count() == 9
    assert page.locator("table[id]").count() == 10
    assert column(page, "results-0", 1) == [
        "sgdf lr=0.1 leader", "sgd lr=0.1", "mine:Own lr=0.1",
    ]  # fmt: skip
    assert page.locator("nav a").all_inner_texts()[:2] == ["lines", "points"]
    dashes = page.locator(".chip line").evaluate_all(
        "lines => lines.map(line => line.getAttribute('stroke-dasharray'))"
    )
    assert len(set(dashes)) == 3


def test_tables_can_be_sorted(show, page_path):
    page = show(page_path)
    head = page.locator("#settings-0 thead button").nth(1)
    means = [[float(text.split(" ")[0]) for text in _sorted(page, head)] for _ in range(2)]
    assert means[0] == sorted(means[0])
    assert means[1] == sorted(means[1], reverse=True)
    assert means[0] != means[1]
    assert page.locator("#settings-0 th[aria-sort=descending]").count() == 1
    names = page.locator("#settings-0 thead button").first
    names.click()
    assert column(page, "settings-0", 1)[0].startswith("mine:Own")


def _sorted(page, head):
    head.click()
    return column(page, "settings-0", 2)


def test_misses_are_sorted_after_hits(show, page_path):
    page = show(page_path)
    page.locator("#target-0 thead button").nth(3).click()
    steps = column(page, "target-0", 4)
    assert "missed" in steps
    assert steps == sorted(steps, key=lambda text: math.inf if text == "missed" else float(text))


def test_tables_can_be_filtered(show, page_path):
    page = show(page_path)
    page.fill("input[data-table=settings-0]", "SGDF lr=1")
    assert column(page, "settings-0", 1) == ["sgdf lr=1.0"]
    page.fill("input[data-table=settings-0]", "")
    assert len(column(page, "settings-0", 1)) == 6


def test_an_optimizer_can_be_hidden(show, page_path):
    page = show(page_path)
    chip = page.locator(".chip", has_text="sgdf")
    drawn = page.locator(f"svg .{chip.get_attribute('data-of')}")
    assert drawn.count() >= 7
    legend = page.locator("figure").first.locator("svg text", has_text="sgdf lr=0.1")
    assert legend.is_visible()
    chip.click()
    assert all(not drawn.nth(index).is_visible() for index in range(drawn.count()))
    assert not legend.is_visible()
    assert not page.locator("#results-0 tbody tr", has_text="sgdf").is_visible()
    assert page.locator("#comparisons-0 tbody tr", has_text="sgdf").first.is_visible()
    chip.click()
    assert page.locator("#results-0 tbody tr", has_text="sgdf").is_visible()
    assert drawn.first.evaluate("part => getComputedStyle(part).display") != "none"


def test_a_setting_leads_to_its_details(show, page_path):
    page = show(page_path)
    page.locator("#results-0 a").first.click()
    details = page.locator("details:target")
    assert details.get_attribute("open") is not None
    text = details.inner_text()
    assert 'name = "sgdf"' in text
    assert "lr = 0.1" in text
    assert "sgdf run " in text
    assert "seed 2" in text
    assert "a CPU" in page.locator("#environments ~ details").first.inner_text()


WIDTHS = (320, 390, 1400)


def check_widths(page):
    """See that at any width the page itself does not scroll sideways, and that nothing is lost.

    What is wider than the page scrolls within its own box, to its end, and says so.
    """
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 700})
        page.wait_for_function("new Promise(d => requestAnimationFrame(() => setTimeout(d, 0, 1)))")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        boxes = page.eval_on_selector_all(
            ".scroll",
            """boxes => boxes.filter(box => box.checkVisibility()).map(box => {
                const content = box.firstElementChild, hint = box.previousElementSibling;
                const wide = box.scrollWidth > box.clientWidth + 1;
                box.scrollLeft = 1e6;
                const end = content.getBoundingClientRect().right;
                const reached = end <= box.getBoundingClientRect().right + 1;
                const first = box.querySelector("tbody td");
                const stays = !first || Math.abs(
                    first.getBoundingClientRect().left - box.getBoundingClientRect().left) < 1;
                box.scrollLeft = 0;
                return {wide, reached, stays, told: !hint.hidden, height: content.clientHeight};
            })""",
        )
        for box in boxes:
            assert box["reached"], "the right end cannot be scrolled to"
            assert box["stays"], "the first column scrolls away"
            assert box["told"] == box["wide"]
            assert box["height"] > 20
        figures = page.locator("figure svg")
        assert all(figures.nth(i).is_visible() for i in range(figures.count()))
        scales = figures.evaluate_all(
            "all => all.map(svg => svg.getBoundingClientRect().width / svg.viewBox.baseVal.width)"
        )
        assert all(scale > 1.0 for scale in scales), "a figure is too small to be read"


@pytest.fixture(scope="module")
def long_names_path(tmp_path_factory):
    """A report on optimizers whose names are longer than a phone's line, and cannot be broken."""
    store = tmp_path_factory.mktemp("long_names")
    for name, seed in itertools.product(("sgdf", "mine:" + "W" * 40), (0, 1)):
        make_run(store, [0.5, 0.6 + 0.1 * seed], optimizer=name, seed=seed)
    return write_page(store, tmp_path_factory.mktemp("report"))


def test_a_narrow_screen_does_not_scroll_sideways(show, page_path, hostile_path, long_names_path):
    for path in (page_path, hostile_path, long_names_path):
        check_widths(show(path))


def test_a_wide_table_is_seen_to_scroll(show, page_path):
    page = show(page_path, viewport={"width": 390, "height": 700})
    box = page.locator(".scroll", has=page.locator("#results-0"))
    hint = box.locator("xpath=preceding-sibling::p[1]")
    assert "Scroll sideways" in hint.inner_text()
    assert hint.is_visible()
    assert "more-right" in box.get_attribute("class")
    assert box.evaluate("box => getComputedStyle(box).maskImage") != "none"
    box.evaluate("box => { box.scrollLeft = 1e6; }")
    page.wait_for_function("box => !box.classList.contains('more-right')", arg=box.element_handle())
    assert "more-left" in box.get_attribute("class")
    wide = show(page_path, viewport={"width": 1400, "height": 700})
    assert not wide.locator(".hint").first.is_visible()


# One grid has all states at once; the grids of a single state are for `make test-browser`, except
# those with nothing to show and with nothing wrong.
@pytest.mark.parametrize(
    "states",
    [
        *(
            pytest.param((state,), marks=[pytest.mark.slow] * (state not in (wait, finish)))
            for state in STATES
        ),
        STATES,
    ],
    ids=lambda s: "+".join(f.__name__ for f in s),
)
def test_a_grid_in_every_state(show, tmp_path, states):
    make_grid(tmp_path / "store", states)
    page = show(write_page(tmp_path / "store", tmp_path))
    assert "of 12 runs finished" in page.inner_text("header")
    check_widths(page)


def test_one_seed(show, tmp_path):
    for optimizer in ("sgd", "adam"):
        finish(tmp_path / "store", optimizer=optimizer, lr=0.1, seed=0)
    page = show(write_page(tmp_path / "store", tmp_path))
    assert "(one seed)" in page.inner_text("#results-0")
    check_widths(page)


def test_it_says_what_was_compared_and_marks_the_leader(show, tmp_path):
    make_grid(tmp_path / "store", [finish])
    for seed in range(3):
        make_run(tmp_path / "store", [0.98 + 0.001 * seed], optimizer="lion", seed=seed)
    about = "Whether <i>sgd</i> forgives a wrong rate"
    Store(tmp_path / "store").add_experiment("rates", about)
    page = show(write_page(tmp_path / "store", tmp_path))
    assert page.inner_text("h1") == "Report on rates"
    assert page.inner_text(".lead") == about
    assert "Trained on 2026-11-16" in page.inner_text("header")
    assert page.locator("h2", has_text="Overall").count() == 0
    assert page.locator("#results-0 tbody tr").first.locator(".mark").inner_text() == "leader"
    assert page.locator(".mark").count() == 1
    heads = page.locator("#results-0 th", has_text="larger is better")
    assert heads.count() == 2


def test_failures_have_their_traceback(show, tmp_path):
    try:
        raise ValueError("<img src=x onerror=alert(1)>")
    except ValueError as error:
        begin(tmp_path / "store", table_of()).fail(error)
    page = show(write_page(tmp_path / "store", tmp_path))
    details = page.locator("#failures ~ details").first
    assert not details.locator("pre").is_visible()
    details.locator("summary").click()
    assert "ValueError: <img src=x onerror=alert(1)>" in details.locator("pre").inner_text()
    assert "test_page.py" in details.locator("pre").inner_text()


def test_values_are_shown_under_the_pointer(show, page_path):
    page = show(page_path)
    for name in ("Every seed", "Curves against steps", "The effect of the learning rate"):
        figure = page.locator("figure", has=page.locator(f"[aria-label='{name}']")).first
        figure.scroll_into_view_if_needed()
        line = figure.locator(".of-73676466[data-points]").first
        assert line.get_attribute("data-name").startswith("sgdf")
        x, y, text = line.get_attribute("data-points").split("\n")[-1].split(" ", 2)
        at = figure.locator("svg").evaluate(
            """(svg, [x, y]) => {
                const point = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM());
                return [point.x, point.y];
            }""",
            [float(x), float(y)],
        )
        page.mouse.move(*at)
        assert text in page.inner_text(".tip")
        assert "sgdf" in page.inner_text(".tip")
        assert figure.locator(".ring").is_visible()
    assert "lr 1: 85.3 %, 3 seeds" in page.inner_text(".tip")
    page.mouse.move(0, 0)
    assert not page.locator(".tip").is_visible()


def luminance(page, selector, what):
    """Return the relative luminance of a computed colour."""
    rgb = page.eval_on_selector(selector, f"e => getComputedStyle(e).{what}")
    parts = [int(part) / 255 for part in rgb[rgb.index("(") + 1 : -1].split(",")[:3]]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_on_light_and_dark_pages(show, page_path, scheme):
    page = show(page_path, color_scheme=scheme)
    ground = luminance(page, "body", "backgroundColor")
    assert (ground > 0.5) is (scheme == "light")
    for selector, what in (("body", "color"), (".about", "color"), ("nav a", "color"),
                           ("th small", "color"), (".mark", "color"),
                           ("figure svg text", "fill")):  # fmt: skip
        ink = luminance(page, selector, what)
        assert (max(ink, ground) + 0.05) / (min(ink, ground) + 0.05) >= 4.5, selector


def test_it_can_be_printed(show, page_path):
    page = show(page_path)
    assert page.pdf().startswith(b"%PDF")
    page.emulate_media(media="print")
    assert not page.locator(".filter").first.is_visible()


def test_names_are_text(show, hostile_path):
    page = show(hostile_path)
    assert page.evaluate("document.scripts.length") == 1
    assert page.locator("img, iframe, object, b").count() == 0
    text = page.evaluate("document.body.textContent")
    for name in HOSTILE:
        assert one_line(name) in text
    assert page.evaluate("document.querySelectorAll('bdi').length") > 100


def test_nan_and_missing_numbers_are_shown(show, hostile_path):
    page = show(hostile_path)
    odd = page.locator("#trouble tbody tr", has_text="odd")
    assert odd.count() == 3
    assert "no finite accuracy" in odd.first.inner_text()
    empty = page.locator("tr", has_text="empty").first.locator("td").all_inner_texts()
    assert "–" in empty


def test_every_table_of_a_hostile_report_can_be_sorted(show, hostile_path):
    page = show(hostile_path)
    for button in page.locator("table[id] thead button").all()[:60]:
        button.click()


def test_ids_are_unique(show, page_path, hostile_path):
    for path in (page_path, hostile_path):
        ids = show(path).evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(ids) == len(set(ids))


def test_a_foreign_script_would_not_run(show, page_path):
    page = show(page_path)
    page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
        " document.body.append(s); }"
    )
    assert page.evaluate("window.ran") is None
    assert all("Content Security Policy" in complaint for complaint in show.complaints)
    assert show.complaints
    show.complaints.clear()
