"""Options and settings of the whole suite."""

import importlib.util
import shutil
import signal
from pathlib import Path

import hypothesis
import pytest
import torch

# The same examples on every machine: a test run is a fact, not a lottery.
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("fixed")

# Fixtures, not modules with examples: several have this name, which --doctest-modules refuses.
collect_ignore_glob = ["*conftest.py"]


class WithoutTorchvision(pytest.Dir):
    """A folder of tests that all need torchvision, where it is not installed."""

    def collect(self):
        """Skip the folder before a file in it is imported."""
        pytest.skip("torchvision is not installed here; make test-vision installs it")


def pytest_collect_directory(path, parent):
    """Leave tests/vision out without torchvision; its files may then import it at their top."""
    if path == Path(__file__).parent / "vision" and not importlib.util.find_spec("torchvision"):
        return WithoutTorchvision.from_parent(parent, path=path)
    return None


@pytest.fixture(autouse=True)
def _fixed_seed():
    torch.manual_seed(0)


@pytest.fixture
def _watchdog():
    """Fail a test that waits for ever, as one would that reads from a pipe."""

    def give_up(number, frame):
        raise TimeoutError("waited too long")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def publishing_at_once(monkeypatch):
    """Let runs in this process report every step that they log, not one in a second."""
    monkeypatch.setattr("sgdf.bench.jobs.recorder.PUBLISH_SECONDS", 0.0)


def _contents(folder):
    """Return what would differ if a file of the folder were changed."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="session")
def filled_store(tmp_path_factory):
    """Runs to report on, for all tests: none may change them."""
    from made_runs import filled  # here, because the optimizers' tests do not need the bench

    store = filled(tmp_path_factory.mktemp("store"))
    before = _contents(store)
    yield store
    assert _contents(store) == before, "a test has changed the runs that all tests share"


@pytest.fixture(scope="session")
def written(filled_store, tmp_path_factory):
    """The report on the shared runs, and the folder with its files; no test may change them."""
    from sgdf.bench.report.write import Report  # here, because it imports matplotlib

    report = Report.of([filled_store])
    folder = tmp_path_factory.mktemp("report")
    report.write(folder)
    before = _contents(folder)
    yield report, folder
    assert _contents(folder) == before, "a test has changed the report that all tests share"


@pytest.fixture(scope="session")
def chromium():
    """A headless browser, for tests of what readers of a page see."""
    names = ("chromium", "chromium-browser", "google-chrome")
    executable = next(filter(None, map(shutil.which, names)), None)
    if executable is None:
        pytest.skip("there is no Chromium here; make test-browser installs it where it may")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Its sandbox does not start for root; the only pages that it opens are those of tests.
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def show(chromium):
    """Open a page; in the end it must have logged no error, and requested nothing else."""
    opened, complaints = [], []

    def open_page(path, **options):
        page = chromium.new_page(**options)
        opened.append(page)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: is_own(request.url) or complaints.append(request.url))

        def is_own(url):
            return url == path.as_uri() or url.startswith("data:")  # an image within the page

        page.goto(path.as_uri())
        return page

    open_page.complaints = complaints
    yield open_page
    for page in opened:
        page.close()
    assert complaints == []
