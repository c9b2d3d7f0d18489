"""The numbers of a report as JSON."""

import json

from sgdf.bench.report.findings import Findings
from sgdf.bench.report.results_json import results_json


def test_no_run_at_all_is_an_empty_list():
    assert json.loads(results_json(Findings((), ()))) == []
