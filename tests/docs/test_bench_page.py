"""The reference of the bench: what it says of probes, ``extends``, metrics and trained models."""

import math
import re
import threading
import tomllib

import pytest
import typer

from locations import ROOT
from sgdf.bench.catalog.lookup import find, options_of
from sgdf.bench.catalog.probes import PROBES
from sgdf.bench.jobs.plan import Plan
from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.read import load
from sgdf.bench.spec.run import ProbeSpec
from sgdf.bench.store.run_folder import State, Store
from sgdf.bench.tasks import TASKS, find_task
from sgdf.bench.tasks.metric import LARGER_IS_BETTER, SMALLER_IS_BETTER
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer
from sgdf.cli import app

PAGE = (ROOT / "docs/reference/bench.md").read_text()


def blocks(language, *words):
    """Return the code blocks of the page that have all these words."""
    found = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)
    return [block for block in found if all(word in block for word in words)]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with the probe of the page, and an experiment of one short run that has it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (probes,), (module,) = blocks("toml", "[[probe]]"), blocks("python", "LargestGradient")
    (tmp_path / "layers.py").write_text(module)
    (tmp_path / "mine.toml").write_text(
        'extends = "digits"\nseed = 0\n\n[train]\nepochs = 1\nthreads = 1\nbatch_size = 16\n\n'
        f'[optimizer]\nname = "sgdf"\n\n{probes}'
    )
    return tmp_path


def train(experiment, place):
    found = resolve_machine(load(experiment), threads=1)
    plan = Plan(found.runs, place, probes=found.probes)
    plan.prepare()
    plan.work(lambda run, event: None, threading.Event())
    return Store(place).folders()


def test_a_task_on_a_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (module,) = blocks("python", "class Bytes(SequenceTask)")
    (tmp_path / "texts.py").write_text(module)
    (tmp_path / "text.txt").write_bytes(bytes(range(97, 107)) * 400)
    (tmp_path / "mine.toml").write_text(
        '[task]\nname = "texts:Bytes"\nwidth = 8\n[train]\nepochs = 3\nbatch_size = 8\n'
        'threads = 1\n[optimizer]\nname = "adam"\nlr = 0.1\n'
    )
    (folder,) = train("mine.toml", tmp_path / "results")
    assert folder.state() is State.FINISHED
    assert (
        folder.result()["selected"]["test"]["perplexity"] < 2
    )  # each letter follows from the one before it


def test_a_task_that_draws_images(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (module,) = blocks("python", "class Means(Generative)")
    (tmp_path / "drawings.py").write_text(module)
    (tmp_path / "mine.toml").write_text(
        '[task]\nname = "drawings:Means"\nspread = [0.2, 3.0]\n[train]\nepochs = 3\n'
        'batch_size = 64\nthreads = 1\n[optimizer]\nname = "adam"\nlr = 0.1\n'
    )
    distances = {}
    for folder in train("mine.toml", tmp_path / "results"):
        assert folder.state() is State.FINISHED
        assert folder.pictures.known()["samples"]
        found = folder.result()["selected"]["test"]
        assert {"frechet_distance", "precision", "recall"} <= set(found)
        distances[folder.read_table()["task"]["spread"]] = found["frechet_distance"]
    assert 3 * distances[0.2] < distances[3.0]


def test_probes_and_opened_runs(project, capsys):
    (folder,) = train("mine.toml", project / "results/digits")
    assert folder.state() is State.FINISHED
    rows = folder.probe_rows()
    assert {row["probe"] for row in rows} == {
        "gradient-norm", "estimate", "sharpness", "layers:LargestGradient"
    }  # fmt: skip
    assert [row["step"] for row in rows if row["probe"] == "sharpness"] == [1]
    largest = [row for row in rows if row["probe"] == "layers:LargestGradient"]
    assert [row["step"] for row in largest] == list(range(10, 10 * len(largest) + 1, 10))
    parameters = largest[0].keys() - {"probe", "step", "optimizer"}
    assert parameters
    assert not any(name.endswith("bias") for name in parameters)
    norms = [row["norm"] for row in rows if row["probe"] == "gradient-norm"]
    assert len(norms) == len(largest) // 5 > 0
    assert all(math.isfinite(norm) for norm in norms)

    (code,) = blocks("python", "open_run")
    exec(compile(code, "bench.md", "exec"), {})
    result = folder.result()
    assert f"'accuracy': {result['last']['test']['accuracy']}" in capsys.readouterr().out


def test_a_probe_does_not_change_the_run(project):
    text = (project / "mine.toml").read_text()
    (project / "plain.toml").write_text(text.partition("[[probe]]")[0])
    (watched,) = train("mine.toml", project / "one")
    (plain,) = train("plain.toml", project / "other")
    assert watched.key == plain.key
    assert watched.result()["weights"] == plain.result()["weights"]


def test_the_page_lists_all_bundled_probes_with_what_they_write():
    """And their options, under the names that they have."""
    (table,) = re.findall(r"^These are bundled:\n\n(.*?)\n\n", PAGE, re.M | re.S)
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", table, re.M))
    assert set(rows) == set(PROBES)
    specs = [ProbeSpec(name, {}, every=2) for name in PROBES]
    (run,) = resolve_machine(load("digits", {"train.steps": 2}), threads=1).runs[:1]
    trainer = Trainer(run, Ranks(alone=True), specs)
    trainer.fit(lambda trainer: None)
    for row in trainer.probes.rows:
        for number in row.keys() - {"probe", "step", "optimizer"}:
            first, _, second = number.partition("_")
            assert f"`{number}`" in PAGE or (f"`{first}_…`" in PAGE and f"`{second}`" in PAGE)
    for name in PROBES:
        options = options_of(find(name, PROBES, "probe"), {})
        assert all(f"`{option}`" in rows[name] for option in options), name


def test_extends_does_what_the_page_says(project):
    (text,) = blocks("toml", "extends")
    (project / "larger.toml").write_text(text)
    runs, old = load("larger.toml").runs, load("cifar").runs
    assert len(runs) == 2 * len(old)
    assert {run.train.batch_size for run in runs} == {256, 512}
    assert {run.train.epochs for run in runs} == {run.train.epochs for run in old}
    assert {run.optimizer.name for run in runs} == {run.optimizer.name for run in old}
    assert load("larger.toml").name == "larger"
    assert load("larger.toml").about == tomllib.loads(text)["about"]


def test_every_known_word_of_a_metric_is_listed():
    for title, words in (("larger", LARGER_IS_BETTER), ("smaller", SMALLER_IS_BETTER)):
        (listed,) = re.findall(rf"^- {title} is better: (.*?)(?=^\n|^- )", PAGE, re.M | re.S)
        assert set(re.findall(r"`(\w+)`", listed)) == words


def test_the_page_lists_all_commands():
    found = typer.main.get_command(app).commands
    _, _, section = PAGE.partition("\n## Commands\n")
    assert set(re.findall(r"`sgdf (\w+)", section.partition("\n\nOptions of")[0])) == set(found)


def test_the_page_lists_all_bundled_tasks_and_the_options_of_ptb():
    _, _, section = PAGE.partition("\n### The bundled tasks\n")
    tasks, _, options = section.partition("\n### ")[0].partition("**`ptb`**")
    rows = re.findall(r"^\| (`.*?`) \|", tasks, re.M)
    assert {name for row in rows for name in re.findall(r"`(.*?)`", row)} == set(TASKS)
    listed = re.findall(r"^\| `(\w+)` \| (\S+) \|", options, re.M)
    assert [(name, tomllib.loads(f"value = {default}")["value"]) for name, default in listed] == [
        *options_of(find_task("ptb"), {}).items()
    ]
