"""The page about the analyses: each number of its tables is in a record."""

import csv
import re
from statistics import mean, stdev

import pytest

from locations import ROOT

RECORDS = ROOT / "records" / "analyses"
PAGE = ROOT / "docs" / "results" / "analyses.md"
SECTIONS = {
    title: text
    for title, text in re.findall(r"^## (.*?)$(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
    if re.search(r"records/analyses/.*\.csv", text) and title != "Training with better estimates"
}


def number_of(text):
    """Return a number of the page, and half a unit of its last digit."""
    digits = text.partition(".")[2]
    return float(text), 0.5 * 10.0 ** -len(digits)


def recorded(section):
    """Return the rows of all records that a section names: the text of each row and its numbers."""
    rows = []
    for name in re.findall(r"records/(analyses/[\w./-]+\.csv)", SECTIONS[section]):
        with (ROOT / "records" / name).open(newline="") as file:
            for row in csv.reader(file):
                texts, numbers = [], []
                for cell in row:
                    try:
                        numbers.append(float(cell))
                    except ValueError:
                        texts.append(cell)
                rows.append((texts, numbers))
    return rows


def table_rows(section):
    """Return the rows of a section's tables, without their heads, cell by cell."""
    for table in re.findall(r"^\|[-|]+\|\n((?:\|.*\n)+)", SECTIONS[section], re.M):
        for line in table.splitlines():
            yield [cell.strip().strip("*`") for cell in line.strip("|").split("|")]


@pytest.mark.parametrize("section", SECTIONS)
def test_each_number_of_a_table_is_in_a_record(section):
    records, checked = recorded(section), 0
    for cells in table_rows(section):
        matching = [row for row in records if cells[0] in row[0]]
        assert matching, cells[0]
        values = [value for _, numbers in matching for value in numbers]
        for cell in cells[1:]:
            for text in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e-?\d+)?", cell.replace("−", "-")):
                value, half = number_of(text)
                assert any(abs(value - kept) <= 1.01 * half for kept in values), (cells[0], text)
                checked += 1
    assert checked


def test_every_section_with_numbers_has_a_record():
    assert {"Gradients", "Estimates", "Hessian", "Landscape"} <= set(SECTIONS)


def test_the_count_of_settings_is_that_of_the_record():
    with (RECORDS / "estimator-errors-0-9.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))

    def closer_than(name):
        others = [float(row[f"{name} mean"]) if name else 1.0 for row in rows]
        own = [float(row["SGDF, β 0.9 mean"]) for row in rows]
        return sum(a < b for a, b in zip(own, others, strict=True))

    names = ("EMA, β 0.9", "", "gain 0.175, β 0.9", "half-batch Kalman")
    counts = [closer_than(name) for name in names]
    assert (
        f"closer than EMA's in {counts[0]}, than the raw gradient in {counts[1]}, than a fixed "
        f"gain of 0.175 in {counts[2]}, and than the half-batch Kalman filter in {counts[3]}"
    ) in " ".join(PAGE.read_text().split())


def test_training_losses_are_those_of_the_record():
    losses = {}
    with (RECORDS / "estimator-training-small.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            arm = ("exact" if row["batch_size"] == "1100" else "batches of 64", row["optimizer"])
            rate = losses.setdefault(arm, {}).setdefault(float(row["lr"]), [])
            if row["state"] == "finished":
                rate.append((float(row["last validation loss"]), float(row["last train loss"])))
    for arm, by_rate in losses.items():
        whole = {
            rate: list(zip(*runs, strict=True)) for rate, runs in by_rate.items() if len(runs) == 3
        }
        cells = [*arm]
        for which in (0, 1):
            best = min(whole, key=lambda rate, which=which: mean(whole[rate][which]))
            train = whole[best][1]
            cells += [
                f"{best:g}" if best != 1 else "1.0",
                f"{mean(train):.4f} ± {stdev(train):.4f}",
            ]
        assert f"| {' | '.join(cells)} |" in PAGE.read_text()
