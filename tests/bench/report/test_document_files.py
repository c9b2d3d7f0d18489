"""Documents written as files."""

import re
from pathlib import Path

from sgdf.bench.report.document_files import write_document
from sgdf.present.document import Document


def test_another_process_may_remove_the_same_old_files(tmp_path, monkeypatch):
    """Two processes that share an analysis may write its page at the same moment."""
    old = tmp_path / "tables" / "numbers-old.csv"
    old.parent.mkdir()
    old.write_text("1")
    unlink = Path.unlink

    def be_late(path, *arguments, **options):
        unlink(path)
        unlink(path, *arguments, **options)

    monkeypatch.setattr(Path, "unlink", be_late)
    document = Document(
        title="Numbers",
        about=(),
        origin="",
        version="1",
        summary=(),
        styles={},
        sections=(),
        notes={},
        tables=(),
        plots=(),
        failures=(),
        details=(),
        where="",
        environments=(),
    )
    page = write_document(document, tmp_path, re.compile(r"numbers.*\.csv"))
    assert "Numbers" in page.read_text()
    assert not old.exists()
