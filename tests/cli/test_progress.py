"""The progress of runs: bars on a terminal, plain lines elsewhere."""

import os

from bench_tasks import run_of
from sgdf.bench.spec.labels import labels
from sgdf.cli.console import PlainConsole
from sgdf.cli.progress import Bars, Lines, display


def test_bars_on_a_terminal_and_lines_elsewhere():
    names = {"a": "the [first] run", "b": "b"}
    terminal = PlainConsole(force_terminal=True, width=150, record=True, file=open(os.devnull, "w"))  # noqa: SIM115  # closed below
    with display(terminal, names, total=2, done=0) as bars:
        assert isinstance(bars, Bars)
        bars("a", {"event": "begin"})
        row = {"kind": "epoch", "train": {"loss": 2.0}, "validation": {"accuracy": 0.5}}
        bars("a", {"event": "progress", "step": 5, "steps": 10, "row": row})
        bars("a", {"event": "saved", "step": 5})
        overall, bar = bars.progress.tasks
        assert (bar.description, bar.completed, bar.total) == ("the [first] run", 5, 10)
        assert bar.fields["figures"] == "validation accuracy 0.5"
        assert overall.completed == 0.5
        bars("a", {"event": "notice", "line": "its worker died"})
        bars("a", {"event": "begin"})
        bars("a", {"event": "end", "state": "finished", "line": "test accuracy 1"})
        assert len(bars.progress.tasks) == 1
        assert overall.completed == 1
    text = terminal.export_text()
    terminal.file.close()
    assert "the [first] run: its worker died" in text
    assert "the [first] run: test accuracy 1" in text
    assert isinstance(display(PlainConsole(force_terminal=False), names, 1, 0), Lines)


def test_lines_come_now_and_then(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr("sgdf.cli.progress.time.monotonic", lambda: now[0])
    lines = Lines(PlainConsole(width=200), {"a": "run [x]"}, total=3, done=1)
    row = {"kind": "train", "train": {"loss": 2.0}}
    lines("a", {"event": "begin"})
    lines("a", {"event": "progress", "step": 0, "steps": 1000, "row": {}})
    for now[0] in (1.0, 20.0, 31.0, 40.0, 62.0):
        lines("a", {"event": "progress", "step": 7, "steps": 1000, "row": row})
    lines("a", {"event": "end", "state": "failed", "line": "ValueError: no"})
    lines("a", {"event": "begin"})
    lines("a", {"event": "progress", "step": 7, "steps": 1000, "row": {}})
    assert capsys.readouterr().out.splitlines() == [
        "[1/3] run [x]: begins",
        "[1/3] run [x]: step 7 of 1,000: train loss 2",
        "[1/3] run [x]: step 7 of 1,000: train loss 2",
        "[1/3] run [x]: failed: ValueError: no",
        "[1/3] run [x]: resumes at step 7",
    ]


def test_lines_say_how_long_an_evaluation_will_take(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr("sgdf.cli.progress.time.monotonic", lambda: now[0])
    lines = Lines(PlainConsole(width=200), {"a": "run [x]"}, total=1, done=0)
    lines("a", {"event": "begin"})
    lines("a", {"event": "progress", "step": 9, "steps": 10, "row": {}})

    def tell(time, what, done):
        now[0] = time
        lines("a", {"event": "evaluating", "what": what, "done": done, "total": 2000})

    for time, done in ((20.0, 100), (25.0, 150), (40.0, 300), (41.0, 310), (71.0, 600)):
        tell(time, "sampling [fast]", done)
    for time, done in ((72.0, 700), (102.0, 710), (133.0, 710), (164.0, 5)):
        tell(time, "features", done)
    assert capsys.readouterr().out.splitlines() == [
        "[0/1] run [x]: resumes at step 9",
        "[0/1] run [x]: sampling [fast]: 300 of 2,000, 2 min 50 s left",
        "[0/1] run [x]: sampling [fast]: 600 of 2,000, 2 min 23 s left",
        "[0/1] run [x]: features: 710 of 2,000, 1 h 4 min left",
        "[0/1] run [x]: features: 710 of 2,000, 2 h 11 min left",
        "[0/1] run [x]: features: 5 of 2,000",
    ]


def test_the_pace_of_one_evaluation_says_nothing_about_the_next(monkeypatch, capsys):
    """Whether the run went on in between, or the next part has the same name."""
    now = [0.0]
    monkeypatch.setattr("sgdf.cli.progress.time.monotonic", lambda: now[0])
    lines = Lines(PlainConsole(width=200), {"a": "a"}, total=1, done=0)

    def evaluate(begin):
        for seconds, done in ((1, 10), (2, 20), (50, 500), (98, 980)):
            now[0] = begin + seconds
            lines("a", {"event": "evaluating", "what": "drawing", "done": done, "total": 1000})

    lines("a", {"event": "progress", "step": 0, "steps": 10, "row": None})
    evaluate(100)
    lines("a", {"event": "progress", "step": 5, "steps": 10, "row": None})
    evaluate(4000)
    evaluate(8000)
    found = [line for line in capsys.readouterr().out.splitlines() if " 500 of" in line]
    assert found == ["[0/1] a: drawing: 500 of 1,000, 50 s left"] * 3


def test_the_first_line_about_an_evaluation_has_no_pace_yet(monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr("sgdf.cli.progress.time.monotonic", lambda: now[0])
    lines = Lines(PlainConsole(width=200), {"a": "a"}, total=1, done=0)
    lines("a", {"event": "progress", "step": 0, "steps": 10, "row": {}})
    now[0] = 140.0
    lines("a", {"event": "evaluating", "what": "sampling", "done": 4, "total": 8})
    assert capsys.readouterr().out.splitlines()[1:] == ["[0/1] a: sampling: 4 of 8"]


def test_an_evaluation_has_a_bar_until_the_run_goes_on():
    terminal = PlainConsole(force_terminal=True, width=150, file=open(os.devnull, "w"))  # noqa: SIM115  # closed below
    with display(terminal, {"a": "the [first] run"}, total=1, done=0) as bars:
        bars("a", {"event": "begin"})

        def shown():
            found = bars.progress.tasks[2:]
            return [(bar.description, bar.completed, bar.total) for bar in found]

        for what, done in (("sampling", 5), ("sampling", 7), ("features", 1)):
            bars("a", {"event": "evaluating", "what": what, "done": done, "total": 9})
            assert shown() == [(f"the [first] run: {what}", done, 9)]
        for done in (9, 2):  # the part after it has the same name
            bars("a", {"event": "evaluating", "what": "features", "done": done, "total": 9})
        assert shown() == [("the [first] run: features", 2, 9)]
        assert not bars.progress.tasks[2].finished
        bars("a", {"event": "saved", "step": 5})
        assert shown()
        bars("a", {"event": "progress", "step": 5, "steps": 10, "row": None})
        assert not shown()
        bars("a", {"event": "progress", "step": 10, "steps": 10, "row": None})
        assert int(bars.progress.tasks[0].completed) == 0  # the last evaluation is still to come
        bars("a", {"event": "evaluating", "what": "sampling", "done": 1, "total": 9})
        bars("a", {"event": "end", "state": "paused", "line": "stopped"})
        assert len(bars.progress.tasks) == 1
    terminal.file.close()


def test_runs_are_called_by_what_tells_them_apart():
    runs = [
        run_of(optimizer={"name": "adam", "lr": lr, "betas": [[beta, 0.99]]}, seed=seed)
        for lr, beta, seed in ((0.1, 0.9, 0), (0.2, 0.9, 1), (0.2, 0.8, 1))
    ]
    names = labels({run.key: run.as_table() for run in runs})
    assert list(names.values()) == [
        "bench_tasks:Points, adam lr=0.1 betas=[0.9, 0.99], seed 0",
        "bench_tasks:Points, adam lr=0.2 betas=[0.9, 0.99], seed 1",
        "bench_tasks:Points, adam lr=0.2 betas=[0.8, 0.99], seed 1",
    ]
