"""Measure a report on 500 runs of 200 epochs: the time to make and to open it, and its size.

The runs are made up, not trained: two problems, ten optimizers with five learning rates each,
five seeds. Opening the report needs Chromium; without it this part is left out.
"""

import random
import shutil
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

from sgdf.bench.report.write import Report
from sgdf.environment import environment

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from made_runs import make_run

BOUNDS = {"seconds to make it": 20.0, "seconds to open it": 3.0, "megabytes of HTML": 5.0}


def fill(store):
    """Write 500 runs of 200 epochs."""
    draw = random.Random(0)
    problems, rates = ("first", "second"), (0.01, 0.032, 0.1, 0.32, 1.0)
    for task, optimizer, lr, seed in product(problems, range(10), rates, range(5)):
        level, values = 0.3, []
        for _ in range(200):
            level += 0.02 * (0.95 - level) + draw.gauss(0.0, 0.003)
            values.append(level)
        make_run(
            store, values, task=task, optimizer=f"mine:Own{optimizer}", lr=lr, seed=seed, epochs=200
        )


def seconds_to_open(path):
    """Return the seconds until Chromium has loaded and drawn a page, or None without it."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        start = time.perf_counter()
        page.goto(path.as_uri(), wait_until="load")
        page.evaluate("new Promise(drawn => requestAnimationFrame(() => setTimeout(drawn)))")
        seconds = time.perf_counter() - start
        browser.close()
    return seconds


def main():
    """Measure and print."""
    print(", ".join(f"{key} {value}" for key, value in environment().items()))
    with tempfile.TemporaryDirectory() as place:
        store = Path(place) / "store"
        fill(store)
        start = time.perf_counter()
        page = Report.of([store]).write(Path(place) / "report")
        made = time.perf_counter() - start
        figures = (made, seconds_to_open(page), page.stat().st_size / 1e6)
    failed = False
    for (what, bound), figure in zip(BOUNDS.items(), figures, strict=True):
        if figure is None:
            print(f"{what}: not measured, Chromium is not installed")
            continue
        failed |= figure > bound
        print(f"{figure:6.2f} {what}, <= {bound:g}: {'FAILS' if figure > bound else 'holds'}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
