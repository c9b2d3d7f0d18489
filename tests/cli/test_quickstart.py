"""The quickstart: what it does, and what it says."""

import re

from typer.testing import CliRunner

from sgdf.bench.spec.bundled import bundled_experiments
from sgdf.cli import app


def test_quickstart_runs_compares_and_says_what_next(tmp_path, monkeypatch):
    text = bundled_experiments()["quickstart"].read_text()
    short = tmp_path / "quickstart.toml"
    short.write_text(text.replace("epochs = 15", "epochs = 1").replace("[0, 1, 2]", "[0, 1]"))
    monkeypatch.setattr(
        "sgdf.bench.spec.document.bundled_experiments", lambda: {"quickstart": short}
    )
    place = tmp_path / "out"
    result = CliRunner().invoke(app, ["quickstart", "--out", str(place)], env={"COLUMNS": "100"})
    assert result.exit_code == 0, result.output
    figure = r"\d+\.?\d* (?:± \S+|\(no spread\))"
    for name in ("sgdf", "sgd", "adam", "adamw", "radam"):
        assert re.search(
            rf"^{name}(?: \(leader\))? +0?[\d.]+ +{figure} +{figure} +2(?: |$)", result.output, re.M
        )
    assert "With 2 seeds no difference can be judged; run at least 3." in result.output
    assert "Next: sgdf experiments digits > mine.toml" in result.output
    assert (place / "report/index.html").exists()
