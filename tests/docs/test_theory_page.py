"""What docs/paper/theory.md quotes, beside the functions that it is from."""

import re

import pytest

from locations import ROOT
from sgdf.analysis.theory.momentum import BETAS, TIMES
from sgdf.analysis.theory.quadratic import Quadratic
from sgdf.theory import counter_examples

PAGE = (ROOT / "docs/paper/theory.md").read_text()


def test_the_table_of_errors_is_the_commands():
    """All but its simulated column, which the tests of the command hold to its closed form."""
    _, table = PAGE.split("| β | t = 20 | t = 100 | t = 1000 |")
    rows = [
        [float(cell.split("±")[0]) for cell in line.strip("| ").split("|")]
        for line in re.findall(r"^\| [0-9].*$", table.split("\n\n")[0], re.M)
    ]
    problem = Quadratic(1.0, 1.0, 0.1, None, 10.0, 0)
    assert tuple(row[0] for row in rows) == BETAS
    for beta, *errors, _, printed, corrected in rows:
        assert errors == pytest.approx(problem.errors(beta, TIMES), rel=6e-4)
        assert (printed, corrected) == pytest.approx(problem.bounds(beta), rel=6e-4)


def test_counter_examples_that_the_page_names_exist():
    """[name] is one of sgdf.theory.counter_examples(), in every section."""
    named = set(re.findall(r"\[([a-z0-9]+(?:-[a-z0-9]+)+)\](?!\()", PAGE))
    assert {"no-trade-off", "constant-power"} <= named
    assert named <= {case.name for case in counter_examples()}
