"""The pages of all analyses in headless Chromium: every picture is there for its reader."""

import pytest

from bench_tasks import run_of
from kept_runs import do
from sgdf.analysis.conduct import measure_runs
from sgdf.analysis.estimator import page as estimator_page
from sgdf.analysis.estimator.of_runs import EstimatesOfRuns
from sgdf.analysis.gradients.analysis import GradientAnalysis
from sgdf.analysis.hessian.of_runs import HessianOfRuns
from sgdf.analysis.landscape.lines import lines_between
from sgdf.analysis.landscape.measure import Landscape
from sgdf.analysis.page import write_analysis
from sgdf.analysis.runs import trained_runs
from sgdf.bench.store.run_folder import Store

ANALYSES = (
    Landscape(points=3, pairs=1, examples=30),
    HessianOfRuns(examples=30, top=3, probes=2),
    GradientAnalysis(every=2, steps=4),
    EstimatesOfRuns(every=2, draws=2, steps=4, beta1=(0.9,)),
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return two trained runs that differ in the seed."""
    store = Store(tmp_path_factory.mktemp("store"))
    for seed in (0, 1):
        do(run_of(seed=seed), store)
    return trained_runs(list(store.folders()))


@pytest.mark.parametrize("analysis", ANALYSES, ids=lambda analysis: analysis.name)
def test_every_picture_of_a_page_is_shown(show, runs, analysis, tmp_path, monkeypatch):
    monkeypatch.setattr(estimator_page, "SIGNALS", estimator_page.SIGNALS[:1])  # they take long
    lines = lines_between(runs) if isinstance(analysis, Landscape) else []
    measured = measure_runs(analysis, [*runs, *lines], tmp_path, lambda run, share: None)
    document = write_analysis(analysis, measured, f"sgdf analyze {analysis.name}", tmp_path)
    page = show(tmp_path / "index.html")
    assert page.locator("figure svg").count() == len(document.plots) > 0
    widths = page.locator("figure svg image").evaluate_all(
        """images => Promise.all(images.map(async image => {
            const copy = new Image();
            copy.src = image.href.baseVal;
            await copy.decode().catch(() => 0);
            return copy.naturalWidth;
        }))"""
    )
    assert all(width > 0 for width in widths)
    # A map and a surface of the only setting, and the colours of both.
    assert len(widths) >= (4 if isinstance(analysis, Landscape) else 0)
