"""Whole results folders with anything in them: commands name what is wrong, and do the rest.

Each case is a small store, in which a few things have been replaced at random. The seed of a case
is its number, so that one that fails can be repeated alone.
"""

import contextlib
import copy
import datetime
import json
import math
import os
import random
import re
import shutil
import signal
import traceback
from pathlib import Path

import pytest
import tomli_w
from typer.testing import CliRunner

from sgdf.bench.report.findings import gather
from sgdf.bench.report.write import Report
from sgdf.bench.store import files
from sgdf.bench.store.identity import digest, run_key
from sgdf.bench.store.record_files import to_lines, with_digest
from sgdf.bench.store.run_folder import State, Store
from sgdf.cli import app

EXPERIMENT = """
seed = [0, 1, 2]
task.name = "bench_tasks:Points"
optimizer.name = ["sgdf", "sgd"]
optimizer.lr = 0.1
train = {epochs = 2, batch_size = 80, threads = 1, log_every = 1}
probe = [{name = "gradient-norm", every = 1}]
"""
NOT_FOR_A_TERMINAL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")
TEXTS = [
    "x[/][red]",
    "\x1b[2J\x1b]0;title\x07\x9b1m",
    "two\nlines\r\u202e\u2028",
    "<script>alert(1)</script>",
    "\ud800",
    "",
    "a" * 5000,
    "../../up",
    "%s{0}$x_1$\\input{x}",
]
NUMBERS = [0, -1, 1, True, 2**63, 10**400, 0.0, -0.5, 1e-320, 1e308, math.inf, -math.inf, math.nan]
OTHERS = [None, [], {}, [[]], {"": {}}, datetime.date(1979, 5, 27)]
FILES = [
    *("spec.toml", "environment.json", "metrics.jsonl", "result.json", "failure.json"),
    *("probes.jsonl", "lock", "tensorboard", ".tmp-x", "000000000009-0123456789abcdef.pt"),
]
SECONDS = 120
IMPOSSIBLE = (TypeError, ValueError, KeyError, AttributeError)


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A store with six finished runs, and the experiment that they are from."""
    place = tmp_path_factory.mktemp("template")
    (place / "mine.toml").write_text(EXPERIMENT)
    code, output = command("run", place / "mine.toml", "--out", place / "mine")
    assert code == 0, output
    return place


def nasty(draw):
    """Return any value that a file could have in place of another."""
    kind = draw.random()
    if kind < 0.1:
        deep = draw.choice([30, 500])
        return json.loads("[" * deep + "]" * deep)
    return copy.deepcopy(draw.choice(TEXTS if kind < 0.4 else NUMBERS if kind < 0.8 else OTHERS))


def spoil(draw, record):
    """Replace, remove or add something somewhere in a record."""
    inner, key = record, None
    while isinstance(inner, dict | list) and inner and (key is None or draw.random() < 0.7):
        outer = inner
        key = draw.choice(list(outer) if isinstance(outer, dict) else range(len(outer)))
        inner = outer[key]
    if key is None:
        return nasty(draw)
    if draw.random() < 0.2:
        del outer[key]
    elif draw.random() < 0.2 and isinstance(outer, dict):
        outer[draw.choice(TEXTS)] = nasty(draw)
    else:
        outer[key] = nasty(draw)
    return record


def spoil_table(draw, folder):
    """Give a run another table, under the key that belongs to it."""
    table = spoil(draw, copy.deepcopy(folder.table()))
    (folder.path / "spec.toml").write_text(tomli_w.dumps(table))
    folder.path.rename(folder.path.with_name(run_key(table)))  # but for a date, which has no key


def spoil_result(draw, folder):
    """Give a run another result, or other rows, with digests that belong to them."""
    result, rows = json.loads((folder.path / "result.json").read_text()), folder.rows()
    result.pop("sum")
    if draw.random() < 0.5:
        spoil(draw, rows)
        (folder.path / "metrics.jsonl").write_bytes(to_lines(rows))
        result["metrics"] = digest((folder.path / "metrics.jsonl").read_bytes())
    else:
        result = spoil(draw, result)
    (folder.path / "result.json").write_bytes(with_digest(result))


def spoil_probes(draw, folder):
    """Give a run other rows of probes."""
    rows = spoil(draw, folder.probe_rows())
    (folder.path / "probes.jsonl").write_bytes(to_lines(rows))


def spoil_record(draw, folder):
    """Write another environment or failure."""
    name, record = draw.choice(
        [
            ("environment.json", folder.environments()),
            ("failure.json", {"error": draw.choice(TEXTS), "traceback": draw.choice(TEXTS)}),
        ]
    )
    if name == "failure.json":
        (folder.path / "result.json").unlink(missing_ok=True)
    (folder.path / name).write_text(json.dumps(spoil(draw, record)))


def damage_bytes(draw, folder):
    """Cut a file, flip a bit of it, or write nonsense into it."""
    path = draw.choice([path for path in folder.path.iterdir() if path.is_file()] or [None])
    if path is None or not 0 < path.stat().st_size < 1 << 20:
        return
    content = bytearray(path.read_bytes())
    kind = draw.randrange(4)
    if kind == 0:
        content = content[: draw.randrange(len(content))]
    elif kind == 1:
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    elif kind == 2:
        content = draw.randbytes(draw.randrange(200))
    else:
        content = draw.choice([b"null", b"[]", b"{}", b"[" * 100_000, b'{"a":' * 100_000, b"\0"])
    path.unlink()
    path.write_bytes(content)


def replace_file(draw, folder):
    """Put something that is no plain file in place of a file."""
    path, elsewhere = folder.path / draw.choice(FILES), folder.path.parents[3] / "elsewhere"
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    make = [
        os.mkfifo,
        os.mkdir,
        lambda path: path.symlink_to(path.name),
        lambda path: path.symlink_to("nowhere"),
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to(elsewhere / "file"),
        lambda path: path.symlink_to(elsewhere),
        lambda path: os.link(elsewhere / "file", path),
        make_large,
    ]
    draw.choice(make)(path)


def make_large(path):
    """Make a file that is larger than any record, and takes no space."""
    with path.open("wb") as file:
        file.truncate(files.LARGEST_RECORD + 1)


def forbid(draw, folder):
    """Take away the right to read a file or the whole folder."""
    path = draw.choice([folder.path, *folder.path.iterdir()])
    if not path.is_symlink():
        path.chmod(0)


def add_something(draw, folder):
    """Put something beside the runs, or where the report is to be written."""
    runs, store = folder.path.parent, folder.path.parents[1]
    elsewhere = store.parent / "elsewhere"
    name = draw.choice(TEXTS[:4]).replace("/", "") or "x"
    add = [
        lambda: (runs / name).mkdir(),
        lambda: os.mkfifo(runs / name),
        lambda: (runs / name).symlink_to(name),
        lambda: (runs / name).symlink_to(elsewhere),
        lambda: (store / "report").symlink_to(elsewhere),
        lambda: (store / "report").write_text("x"),
        lambda: (store / "report").mkdir() or (store / "report/figures").symlink_to(elsewhere),
        lambda: os.mkfifo(store / "workers.log"),
    ]
    draw.choice(add)()
    experiments = store / "experiments.json"
    experiments.unlink(missing_ok=True)
    if draw.random() < 0.3:
        os.mkfifo(experiments)
    else:
        experiments.write_text(json.dumps(spoil(draw, {"mine": "about", "other": "x"})))


KINDS = [
    *(spoil_table, spoil_result, spoil_record, spoil_probes),
    *(damage_bytes, replace_file, add_something),
]
if os.geteuid():
    KINDS.append(forbid)


def contents(folder):
    """Return what would differ if anything in a folder had been touched."""
    return {
        path: (path.stat().st_mtime_ns, path.stat().st_size, path.is_file() and path.read_bytes())
        for path in (folder, *folder.rglob("*"))
    }


def command(*arguments):
    """Return the exit code and the output of a command, which must not raise, wait or escape."""

    def give_up(number, frame):
        raise TimeoutError(f"{arguments} waits for ever")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(SECONDS)
    try:
        result = CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "200"})
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise AssertionError("".join(traceback.format_exception(result.exception)))
    found = NOT_FOR_A_TERMINAL.search(result.output)
    assert not found, repr(result.output)
    return result.exit_code, result.output


def check_case(number, template, place, is_whole):
    """Make a case and give every command that reads a store."""
    draw = random.Random(number)
    store = place / "mine"
    shutil.copytree(template / "mine", store)
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("precious")
    victims = draw.sample(Store(store).folders(), draw.randint(1, 4))
    whole = {f.key: f.result() for f in Store(store).folders() if f not in victims}
    for folder in victims:
        for kind in draw.choices(KINDS, k=draw.randint(1, 2)):
            # What no file can hold is not written, nor what an earlier change has made impossible.
            with contextlib.suppress(OSError, RecursionError, *IMPOSSIBLE):
                kind(draw, folder)
    before = contents(elsewhere)

    code, output = command("status", store)
    assert code == 0, output
    assert "bench_tasks:Points" in output
    found = {run.key: run for run in gather(Store(store).folders()).runs}
    assert all(found[key].state is State.FINISHED for key in whole)
    obstructed = os.path.lexists(store / "report")
    if is_whole:
        code, output = command("report", store)
        assert code == 0 or (code == 2 and obstructed), output
        if code == 0:
            page = (store / "report/index.html").read_text()
            assert "<script>alert(1)</script>" not in page
            assert "\x1b" not in page
    else:
        assert Report.of([store]).document.tables
    code, output = command("run", template / "mine.toml", "--out", store)
    assert code in (0, 1), output
    assert contents(elsewhere) == before
    assert {key: Store(store).folder(key).result() for key in whole} == whole
    for folder, names, _ in os.walk(store):  # so that it can be removed
        for path in (Path(folder, name) for name in names):
            if not path.is_symlink():
                path.chmod(0o700)


# Twenty cases have every kind of damage; the slow ones have rare combinations of kinds.
@pytest.mark.parametrize(
    "tens", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3, 4))]
)
def test_anything_in_a_results_folder_is_survived(tens, template, tmp_path):
    for number in range(10 * tens, 10 * tens + 10):
        check_case(number, template, tmp_path / str(number), is_whole=number % 10 == 0)


@pytest.mark.slow
@pytest.mark.parametrize("tens", range(50))
def test_anything_in_many_results_folders_is_survived(tens, template, tmp_path):
    for number in range(1000 + 10 * tens, 1010 + 10 * tens):
        check_case(number, template, tmp_path / str(number), is_whole=True)
