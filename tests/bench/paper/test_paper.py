"""The paper item by item: its labels, the commands for them, and the numbers it printed."""

import re
import shlex
import tomllib

import pytest
import typer.main

import sgdf
from locations import ROOT
from sgdf.analysis.cost.measure import PROBLEMS
from sgdf.bench.catalog.optimizers import optimizer_options
from sgdf.bench.paper.settings import published_settings, search_space
from sgdf.bench.spec.bundled import bundled_experiments
from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.read import load
from sgdf.cli import app
from sgdf.cli.options import parse_changes
from sgdf.cli.show.catalog import optimizer_help

PAPER = ROOT.parent / "shared" / "paper" / "paper.tex"
PAGE = (ROOT / "docs/paper/items.md").read_text()
PUBLISHED = tomllib.loads((ROOT / "src/sgdf/bench/paper/published.toml").read_text())

METHOD = "SGD|Ada|MSVAG|Lion|Sophia"  # what the names of methods have in them
ITEMS = "table|figure|theorem|lemma|definition|assumption|algorithm"
RESULTS = {
    *("tab:cifar_values", "tab:resnet18_imagenet", "tab:more_imagenet", "tab:object_detection"),
    *("tab:vitresult", "tab:accuracy_comparison", "tab:sgdf_muon", "tab:fid-wgan-gp"),
    *("tab:optimizer_flops", "tab:runtime_100epoch"),
    *("fig:main_hessian_spectrum", "fig:hessian_spectrum", "fig:lstm"),
}
LARGER_IS_BETTER = {
    **dict.fromkeys(("accuracy", "top5_accuracy", "ap50"), True),
    **dict.fromkeys(("inception_score", "precision", "recall"), True),
    **dict.fromkeys(("fid", "sfid", "hours", "operations"), False),
    **dict.fromkeys(("hessian_trace", "hessian_max_eigenvalue", "perplexity"), False),
}

REQUIRED = {"label", "about", "metric", "unit", "larger_is_better", "seeds", "train", "column"}
OPTIONAL = {"source", "runs", "note", "names", "quoted", "settings", "free", "only_with"}
OVERRIDES = {"metric", "unit", "larger_is_better", "train", "quoted", "settings"}

SPANS = re.findall(r"`([^`\n]+)`", PAGE)
COMMANDS = sorted({span for span in SPANS if re.match(r"(sgdf|make) ", span)})
PATHS = sorted({s for s in SPANS if re.match(r"(tests|examples|benchmarks|src|docs)/", s)})

needs_paper = pytest.mark.skipif(not PAPER.exists(), reason=f"the paper is not at {PAPER}")


def each_of(tables):
    return pytest.mark.parametrize("table", tables, ids=lambda table: table["label"])


each_table = each_of(PUBLISHED["table"])
each_printed_table = each_of([table for table in PUBLISHED["table"] if "source" not in table])
each_unprinted_table = each_of([table for table in PUBLISHED["table"] if "source" in table])


def paper():
    """Return the paper's source without comments."""
    return re.sub(r"(?<!\\)%.*", "", PAPER.read_text())


def page_labels():
    """Return the labels that rows of the page are about, and those that it mentions."""
    firsts = re.findall(r"^\| (`[^|]*`) \|", PAGE, re.M)
    mentions = {span for span in SPANS if re.match(r"(tab|fig|thm|lem|def|alg):", span)}
    return {label for first in firsts for label in re.findall(r"`(.*?)`", first)}, mentions


# The page.


@needs_paper
def test_labels_of_the_page_are_the_papers():
    rows, mentions = page_labels()
    labels = set(re.findall(r"\\label\{(.*?)\}", paper()))
    assert not (rows | mentions) - labels


@needs_paper
def test_every_item_of_the_paper_has_a_row():
    blocks = re.findall(rf"\\begin\{{({ITEMS})(\*?)\}}(.*?)\\end\{{\1\2\}}", paper(), re.S)
    labels = {label for *_, block in blocks for label in re.findall(r"\\label\{(.*?)\}", block)}
    items = {label for label in labels if not label.startswith("subfig:")}
    assert len(items) > 50
    assert not items - page_labels()[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_exist(command):
    program, name, *arguments = shlex.split(command)
    if program == "make":
        assert re.search(rf"^{name}:", (ROOT / "Makefile").read_text(), re.M)
        return
    assert name in typer.main.get_command(app).commands
    if name == "cost":
        assert set(arguments) <= set(PROBLEMS)
    if name in ("run", "experiments"):
        experiment, *options = arguments
        assert experiment in bundled_experiments()
        assert set(options[::2]) <= {"--set"}
        changes = parse_changes(options[1::2])
        assert resolve_machine(load(experiment, changes), threads=1).runs


def test_there_are_commands_and_paths():
    assert len(COMMANDS) > 5
    assert len(PATHS) > 5


@pytest.mark.parametrize("path", PATHS)
def test_paths_exist(path):
    place, _, test = path.partition("::")
    assert (ROOT / place).exists()
    files = [ROOT / place] if (ROOT / place).is_file() else (ROOT / place).rglob("*.py")
    if test:  # in a file, or in any file below a folder
        assert any(re.search(rf"^def {test}\(", file.read_text(), re.M) for file in files)


def test_names_of_the_package_exist():
    names = {span for span in SPANS if re.fullmatch(r"sgdf\.\w+", span)}
    assert names
    assert {name.removeprefix("sgdf.") for name in names} <= set(sgdf.__all__)


# The printed numbers.


def numbers(text):
    """Return the numbers in a piece of LaTeX, but for those that are no results."""
    text = re.sub(r"\\textcolor\{[^}]*\}|\\downarrow [\d.]+", "", text)
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


def words(cell):
    """Return a cell's text without commands, footnotes and units."""
    cell = re.sub(r"\\tablefootnote\{.*|\\(cmidrule|multirow)\{[^}]*\}(\{\*\})?", "", cell)
    return re.sub(r"\\[a-z]+|[{}$]|\(h\)", "", cell).strip()


def printed_table(label):
    """Return the numbers that a table of the paper has for each method, in their order."""
    blocks = re.findall(r"\\begin\{table(\*?)\}(.*?)\\end\{table\1\}", paper(), re.S)
    (block,) = (block for _, block in blocks if rf"\label{{{label}}}" in block)
    (body,) = re.findall(r"\\begin\{tabular\}[^\n]*\n(.*?)\\end\{tabular\}", block, re.S)
    rows = [row.split("&") for row in re.split(r"\\\\(?:\[\w+\])?", body)]
    rows = [[c for c in row if r"\times" not in c] for row in rows]  # breakdowns of counts
    found = {}
    across = next((r for r in rows if sum(bool(re.search(METHOD, c)) for c in r) > 1), None)
    for row in rows:
        if across is None:
            place = next((i for i, c in enumerate(row) if re.search(METHOD, c)), None)
            if place is not None:
                values = [n for cell in row[place + 1 :] for n in numbers(cell)]
                found.setdefault(words(row[place]), []).extend(values)
        elif row is not across and len(row) == len(across):
            for name, cell in zip(across[1:], row[1:], strict=True):
                found.setdefault(words(name), []).extend(numbers(cell))
    return found


def figure_of(label):
    """Return the source of a figure of the paper."""
    blocks = re.findall(r"\\begin\{figure(\*?)\}(.*?)\\end\{figure\1\}", paper(), re.S)
    (block,) = (block for _, block in blocks if rf"\label{{{label}}}" in block)
    return block


def printed_figure(label):
    """Return trace and largest eigenvalue of each method in a figure of the paper."""
    panel = r"Trace: ([\d.]+).*?\$: ([\d.]+)\}.*?\\caption\{(.*?)\}"
    found = re.findall(panel, figure_of(label), re.S)
    return {name: [float(a), float(b)] for a, b, name in found}


def test_all_results_are_there_once():
    labels = [table["label"] for table in PUBLISHED["table"]]
    assert set(labels) == RESULTS
    assert len(labels) == len(RESULTS)
    assert set(labels) <= page_labels()[0]


@needs_paper
@each_printed_table
def test_numbers_are_the_printed_ones(table):
    found = {}
    for column in table["column"]:
        for method, values in column["values"].items():
            found.setdefault(re.sub(r" \(.*\)", "", method), []).extend(values)
    read = printed_figure if table["label"].startswith("fig:") else printed_table
    assert found == read(table["label"])


@needs_paper
@each_unprinted_table
def test_numbers_with_a_source_of_their_own_are_not_printed(table):
    figure = figure_of(table["label"])
    for column in table["column"]:
        for (value,) in column["values"].values():
            assert f"{value:g}" not in figure


@each_table
def test_columns_compare_named_methods(table):
    names = PUBLISHED["optimizers"] | table.get("names", {})
    for column in table["column"]:
        assert len(column["values"]) >= 2
        assert set(column["values"]) <= set(names)
        assert all(len(values) in (1, 2) for values in column["values"].values())
    titles = [column["name"] for column in table["column"]]
    assert len(set(titles)) == len(titles)


@each_table
def test_keys_of_tables(table):
    assert REQUIRED <= set(table) <= REQUIRED | OPTIONAL
    for column in table["column"]:
        assert {"name", "values"} <= set(column) <= {"name", "task", "values"} | OVERRIDES
        assert ("task" in column) == (table["label"] != "tab:optimizer_flops")
    methods = {method for column in table["column"] for method in column["values"]}
    for part in (table, *table["column"]):
        by_method = [part.get(key, {}) for key in ("names", "quoted", "settings")]
        assert set().union(*by_method) <= methods


@each_table
def test_better_is_the_right_way_round(table):
    for column in table["column"]:
        settings = table | column
        assert settings["larger_is_better"] is LARGER_IS_BETTER[settings["metric"]]


def test_names_are_all_in_use():
    columns = [column for table in PUBLISHED["table"] for column in table["column"]]
    assert {method for c in columns for method in c["values"]} == set(PUBLISHED["optimizers"])


def test_plain_sgd_stands_beside_momentum():
    """Where a table has momentum under another name, its "SGD" is the one without.

    So is that of fig:lstm: the program gives it no momentum, and at this rate it would diverge.
    """
    for table in PUBLISHED["table"]:
        methods = set().union(*(column["values"] for column in table["column"]))
        if "SGD" in methods:
            name = (PUBLISHED["optimizers"] | table.get("names", {}))["SGD"]
            plain = methods & {"SGDM", "SGD-CM"} or table["label"] == "fig:lstm"
            assert name == ("sgd-vanilla" if plain else "sgd")


SETTINGS = tomllib.loads((ROOT / "src/sgdf/bench/paper/settings.toml").read_text())
COLUMNS = {
    "Learning Rate": "lr", r"$\beta_1$": "beta1", r"$\beta_2$": "beta2",
    "Weight Decay": "weight_decay", r"$\varepsilon$": "eps",
}  # fmt: skip


@needs_paper
@pytest.mark.parametrize(
    "table",
    [table for table in SETTINGS["setting"] if table["label"].startswith("tab:")],
    ids=lambda table: table["label"],
)
def test_settings_are_those_of_the_paper(table):
    before, _, _ = PAPER.read_text().partition(rf"\label{{{table['label']}}}")
    tabular = before[before.rindex(r"\begin{tabular}") :].partition(r"\end{tabular}")[0]
    tabular = re.sub(r"\\(toprule|midrule|bottomrule)", "", tabular)
    head, *rows = (
        [cell.strip() for cell in row.split("&")] for row in tabular.split(r"\\") if "&" in row
    )
    printed = [
        {
            COLUMNS[title]: float(cell)
            for title, cell in zip(head, row, strict=True)
            if title in COLUMNS and cell != "-"
        }
        for row in rows
    ]
    assert list(table["optimizers"].values()) == printed
    for title, key in (("Epochs", "epochs"), ("Batch Size", "batch_size")):
        assert {row[head.index(title)].partition("/")[0] for row in rows} == {
            str(table["train"][key])
        }
    names = [row[0].lower().partition("{")[0] for row in rows]
    expected = ["adabelief" if name in names[:i] else name for i, name in enumerate(names)]
    assert list(table["optimizers"]) == expected


def test_settings_are_options_that_the_optimizers_take():
    for table in SETTINGS["setting"]:
        for name in table["optimizers"]:
            for options in published_settings(name).values():
                optimizer_options(name, options)
    for search in SETTINGS["search"]:
        for name in search["optimizers"]:
            for key, values in search_space(name, search.get("task", "")).items():
                for value in values:
                    optimizer_options(name, {key: value})
    assert published_settings("msvag")["ptb"] == {
        "lr": 30.0,
        "beta": 0.9,
        "weight_decay": 1.2e-06,
    }
    assert published_settings("rmsprop")["wgan-gp"] == {"lr": 0.0002, "eps": 1e-08}
    assert search_space("adam")["betas"] == [(b, 0.999) for b in (0.5, 0.6, 0.7, 0.8, 0.9)]
    assert search_space("yogi") == {}
    assert published_settings("sign-sgdf")["sit"] == published_settings("adam")["dit"] | {
        "gamma": 1.0
    }


@needs_paper
def test_the_search_for_one_task_is_the_papers():
    (rates,) = re.findall(r"learning set \\\{(.*?)\\\}", paper())
    assert sorted(search_space("sgd", "vit")["lr"]) == sorted(map(float, rates.split(",")))
    assert 0.03 not in search_space("sgd")["lr"]


def test_the_command_shows_them():
    told = optimizer_help("adamw")
    assert (
        "# cifar100: lr = 0.001, betas = [[0.9, 0.999]], weight_decay = 0.01, eps = 1e-08" in told
    )
    assert "# betas = [[0.5, 0.999], [0.6, 0.999]" in told
    assert "# weight_decay = [0.0001, 0.0005, 0.001, 0.01, 0.1]" in told
    assert tomllib.loads(told)["optimizer"][0]["name"] == "adamw"
    assert "# What the paper searched for vit:\n# lr = [0.03, 0.01, 0.003, 0.001]" in (
        optimizer_help("sgd")
    )
    assert "paper" not in optimizer_help("qhm")
