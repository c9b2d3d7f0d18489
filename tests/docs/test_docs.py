"""The documentation: every public name is in it, its code runs, its links lead somewhere."""

import inspect
import re
from operator import attrgetter

import pytest

import sgdf
from locations import ROOT

PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "records").rglob("*.md")]
)
API = (ROOT / "docs/reference/api.md").read_text()
NAMES = [name for name in sgdf.__all__ if not name.startswith("__")]
THEORY = [
    *("kalman", "steady_kalman", "gain_law", "steady_gain", "influence", "influence_bound"),
    *("running_mean_moments", "expected_running_variance", "filter_steps", "drift_response"),
    *("noise_response", "noise_change_response", "jump_response"),
    *("fuse", "mmse_gain", "effective_variance"),
]
INNER = ["monitor.attach", *(f"theory.{name}" for name in THEORY)]
FUNCTIONS = [n for n in NAMES if n not in ("FilterOutput", "monitor", "theory")] + INNER

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@pytest.mark.parametrize("name", sgdf.__all__)
def test_public_name_is_documented(name):
    assert re.search(rf"^\| `sgdf\.{name}` \| \S", API, re.M)
    if not name.startswith("__"):
        assert inspect.getdoc(getattr(sgdf, name)), f"{name} has no docstring"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_argument_is_documented(name):
    public = attrgetter(name)(sgdf)
    docstring, page = inspect.getdoc(public), API
    (shared,) = re.findall(r"^(``[^:]*? are as in\s+:class:`sgdf.SGDF`)", docstring, re.M) or [""]
    for argument in inspect.signature(public).parameters:
        named = f"``{argument}``" in shared  # and explained by SGDF itself
        assert named or re.search(rf"^ +{argument}: \S", docstring, re.M), argument
        assert re.search(rf"\b{argument}\b", page), argument


def test_public_names_are_all_there_is():
    public = {name for name in dir(sgdf) if not name.startswith("_")}
    modules = {name for name in public if inspect.ismodule(getattr(sgdf, name))} - set(NAMES)
    assert public - modules == set(NAMES)


@each_page
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for code in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S):
        exec(compile(code, str(page), "exec"), namespace)


@each_page
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", linked.read_text(), re.M)
            slugs = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
            assert anchor in slugs, target


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "RELEASE.md", "docs/architecture.md"])
def test_named_files_exist(page):
    spans = re.findall(r"`([^`\n]+)`", (ROOT / page).read_text())
    paths = [span for span in spans if re.match(r"(src|tests|docs|records)/|[A-Z]+\.\w+$", span)]
    assert paths
    assert not [path for path in paths if not (ROOT / path).exists()]


def test_every_page_is_in_the_index():
    index = ROOT / "docs/index.md"
    links = re.findall(r"\]\(([^)#]+)\)", index.read_text())
    linked = {(index.parent / link).resolve() for link in links}
    assert {page for page in PAGES if page.is_relative_to(index.parent)} - {index} <= linked


@each_page
def test_lines_are_short(page):
    """A table can force a longer line; a printed report is left as it was printed."""
    if page.name == "cifar-reports.md":
        return
    lines = [line for line in page.read_text().splitlines() if not line.startswith("|")]
    assert not [line for line in lines if len(line) > 100]


def test_make_targets_are_documented():
    makefile, readme = (ROOT / "Makefile").read_text(), (ROOT / "README.md").read_text()
    targets = re.findall(r"^([a-z][a-z-]*):", makefile, re.M)
    assert {"quickstart", "test"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target}:.* ## \S", makefile, re.M), target
    called = re.findall(r"^make (.+)$", (ROOT / ".ci/run").read_text(), re.M)
    assert called == ["test", "test-vision", "test-browser"]
    assert all(f"make {target}" in readme for target in ("quickstart", *called))
