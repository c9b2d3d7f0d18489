"""The tables of a report, made of its findings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ...present.table import NOTHING, OVERALL, Cell, Table, number_cell, share_cell
from ..paper.published import Published
from ..spec.run import length_in_words
from ..store.run_folder import State
from ..tasks.metric import direction_in_words
from .findings import Findings, Problem, RunRecord, Setting
from .paper import beside_the_paper
from .sample_cells import interval_cell, mean_cell
from .statistics import Comparison, compare
from .targets import Target, profiles, share_within

SIGNIFICANT = 0.05
MOST_COMPARED = 30
"""Settings that can still be told apart in a plot, and tested pair by pair."""
FACTORS = (1.0, 1.5, 2.0, 4.0)


def tables(
    findings: Findings, targets: Sequence[Target], published: tuple[Published, ...]
) -> Iterator[Table]:
    """Yield every table that the runs have something for."""
    by_problem = {target.problem.name: target for target in targets}
    for index, problem in enumerate(findings.problems):
        if any(setting.finished for setting in problem.settings):
            yield _results(problem, index)
        yield from beside_the_paper(problem, index, published)
        comparisons = _comparisons(problem, index)
        if comparisons.rows:
            yield comparisons
        if problem.name in by_problem:
            yield _to_target(by_problem[problem.name], index)
        if len(problem.settings) > len(problem.headline):
            yield _all_settings(problem, index)
    shares = _profile(targets)
    if shares.rows:
        yield shares
    trouble = _trouble(findings)
    if trouble.rows:
        yield trouble


def what_was_trained(problem: Problem) -> str:
    """Return the task, and what all settings on it have in common, in a line."""
    options = [f"{key}={value}" for key, value in problem.task.items() if key != "name"]
    told = [f"{problem.task['name']}({', '.join(options)})"]
    tables = [setting.table for setting in problem.settings]
    for words, values in (
        ("{}", [length_in_words(table["train"]) for table in tables]),
        ("batches of {}", [table["train"]["batch_size"] for table in tables]),
        ("{}", [table["schedule"]["name"] for table in tables]),
    ):
        if len(set(values)) == 1:
            told.append(words.format(values[0]))
    better = direction_in_words(problem.larger_is_better)
    return f"{', '.join(told)}. Judged by {problem.metric} ({better})."


def verdicts(problem: Problem) -> list[str]:
    """Return in words which differences between optimizers on a problem are shown."""
    if len(problem.headline) > MOST_COMPARED:
        return [
            f"These are more than {MOST_COMPARED} settings: they are neither drawn nor compared "
            "pair by pair."
        ]
    settings, found = _compared(problem)
    tests = sum(comparison.corrected is not None for comparison in found)
    if not tests:
        return []
    shown = [
        f"{settings[c.first].name} and {settings[c.second].name}: "
        + _verdict(c, problem, settings[c.first], settings[c.second])
        for c in found
        if c.corrected is not None and c.corrected < SIGNIFICANT
    ]
    made = f"{tests} paired t-test{'' if tests == 1 else 's'} over the seeds, corrected by Holm"
    return shown or [f"Between no two of them is a difference shown at 5 % ({made})."]


def _spread_note(problem: Problem) -> str:
    """Return what has to be said where a figure rests on a single seed."""
    if problem.most_seeds != 1:
        return ""
    return " Each figure is of one seed: there is no spread, and no test of differences."


def _results(problem: Problem, index: int) -> Table:
    scale, unit = problem.units[problem.metric]
    by_paper = not problem.protocol.is_fair
    if by_paper:
        how = (
            "Trained on all training data. The best epoch was picked on the test data, as the "
            "paper does: that flatters. The last epoch was not picked."
        )
        shown = [("best epoch on test", "test", ""), ("last epoch on test", "test", "last")]
    else:
        how = "The epoch of each run was chosen on validation data"
        if len(problem.settings) > len(problem.headline):
            how += ", and so was the setting of each optimizer"
        how += "; test data decide nothing."
        shown = [("test", "test", ""), ("validation", "validation", "")]
    within = (0.0, 100.0) if unit else (-math.inf, math.inf)
    rows = []
    for setting in problem.headline:
        figures: list[Cell] = []
        for _, split, epoch in shown:
            sample = setting.sample(split, problem.metric, epoch)
            figures += [mean_cell(sample, scale), interval_cell(sample, scale, within)]
        rows.append(
            (
                _named(setting),
                number_cell(setting.rate),
                *figures,
                mean_cell(setting.sample("train", "loss")),
                _seeds(setting),
                number_cell(setting.milliseconds, 3),
                number_cell(setting.state_bytes, 3),
            )
        )
    columns = [
        title
        for name, _, _ in shown
        for title in (f"{name} {problem.metric}{unit}", f"95 % interval, {name}")
    ]
    return Table(
        f"results-{index}",
        problem.name,
        "Results",
        f"Mean ± standard deviation over the seeds, and the 95 % interval of the mean. {how} The "
        "training loss is that of the same epoch." + _spread_note(problem),
        (
            "optimizer",
            "lr",
            *columns,
            "training loss there",
            "seeds",
            "ms a step",
            "state (bytes per parameter)",
        ),
        tuple(rows),
    )


def _all_settings(problem: Problem, index: int) -> Table:
    scale, unit = problem.units[problem.metric]
    return Table(
        f"settings-{index}",
        problem.name,
        "Every setting",
        "All that was tried, so that the choice can be checked." + _spread_note(problem),
        (
            "setting",
            f"validation {problem.metric}{unit}",
            f"test {problem.metric}{unit}",
            "training loss there",
            "seeds",
            "chosen",
        ),
        tuple(
            (
                _named(setting),
                mean_cell(setting.sample("validation", problem.metric), scale),
                mean_cell(setting.sample("test", problem.metric), scale),
                mean_cell(setting.sample("train", "loss")),
                _seeds(setting),
                Cell("yes" if setting in problem.headline else ""),
            )
            for setting in problem.settings
        ),
    )


def _comparisons(problem: Problem, index: int) -> Table:
    scale, unit = problem.units[problem.metric]
    settings, found = _compared(problem)
    rows = []
    for comparison in found:
        first, second = settings[comparison.first], settings[comparison.second]
        rows.append(
            (
                _named(first),
                _named(second),
                mean_cell(comparison.difference, scale),
                interval_cell(comparison.difference, scale),
                number_cell(comparison.p, 2),
                number_cell(comparison.corrected, 2),
                Cell(_verdict(comparison, problem, first, second)),
            )
        )
    return Table(
        f"comparisons-{index}",
        problem.name,
        "Are the differences real?",
        "Paired t-tests over the shared seeds on test data, corrected by Holm for the number of "
        "pairs. With few seeds only large differences can be shown; that none is shown does not "
        "mean that there is none.",
        (
            "first",
            "second",
            f"difference in {problem.metric}{unit}",
            "95 % interval",
            "p",
            "p, corrected",
            "at 5 %",
        ),
        tuple(rows),
    )


def _compared(problem: Problem) -> tuple[list[Setting], list[Comparison]]:
    settings = [setting for setting in problem.headline if len(setting.finished) > 1]
    if len(problem.headline) > MOST_COMPARED:
        settings = []
    return settings, compare([setting.values("test", problem.metric) for setting in settings])


def _verdict(comparison: Comparison, problem: Problem, first: Setting, second: Setting) -> str:
    if comparison.corrected is None:
        return "no spread to tell by"
    if comparison.corrected >= SIGNIFICANT:
        return "no difference shown"
    better = first if (comparison.difference.mean > 0) is problem.larger_is_better else second
    return f"{better.name} is better"


def _to_target(target: Target, index: int) -> Table:
    problem = target.problem
    scale, _ = problem.units[problem.metric]
    value = f"{scale * target.value:.4g}{' %' if scale == 100 else ''}"
    origin = (
        "as asked for"
        if target.given
        else "what three quarters of the optimizers reach with every seed"
    )
    rows: list[tuple[Cell, ...]] = []
    for setting in problem.headline:
        hits = target.hits(setting)
        if not hits:
            continue
        reached, typical = sum(hit is not None for hit in hits), target.typical(setting)
        times = [Cell("missed", math.inf)] * 3
        if typical is not None:
            times = [number_cell(time) for time in (typical.epoch, typical.step, typical.seconds)]
        hit_by = share_cell(reached / len(hits), f"{reached} of {len(hits)}")
        rows.append((_named(setting), hit_by, *times))
    return Table(
        f"target-{index}",
        problem.name,
        f"Time to {problem.metric} {value}",
        f"The target on {problem.judged_on} data is {origin}. Medians over the seeds; where half "
        "of them or more miss it, the setting has missed it. A lost run misses it, one that is not "
        "over does not count. Evaluation is off the clock.",
        ("optimizer", "seeds that reach it", "epochs", "steps", "seconds"),
        tuple(rows),
    )


def _profile(targets: Sequence[Target]) -> Table:
    ratios = profiles(targets)
    shares = {factor: share_within(ratios, factor) for factor in FACTORS}
    return Table(
        "profile",
        OVERALL,
        "Within a factor of the fastest to the target",
        "On what share of the instances (a problem with a seed, on which all have a run that is "
        "over) each reached the target within so many times the steps of the fastest.",
        ("optimizer", "instances", *(f"{factor:g} ×" for factor in FACTORS)),
        tuple(
            (
                Cell(name, optimizer=name),
                number_cell(len(ratios[name])),
                *(share_cell(shares[factor][name]) for factor in FACTORS),
            )
            for name in (ratios if len(ratios) > 1 else ())
        ),
    )


def _trouble(findings: Findings) -> Table:
    rows = [
        (
            Cell(problem.name),
            _named(setting),
            number_cell(run.seed),
            Cell(run.state.value),
            Cell(_what_happened(run)),
            Cell(run.key),
        )
        for problem in findings.problems
        for setting in problem.settings
        for run in setting.runs
        if run.state is not State.FINISHED
    ]
    rows += [
        (Cell(NOTHING), Cell(NOTHING), Cell(NOTHING), Cell("unreadable"), Cell(str(path)), Cell(""))
        for path in findings.unreadable
    ]
    return Table(
        "trouble",
        OVERALL,
        "Runs that are not in the figures",
        "Diverged and failed runs are lost seeds. The next sgdf run mends damaged ones, and goes "
        "on with those that are not over.",
        ("problem", "setting", "seed", "state", "what happened", "run"),
        tuple(rows),
    )


def _what_happened(run: RunRecord) -> str:
    if run.state is State.DIVERGED and run.result:
        return f"diverged at step {run.result['diverged_at_step']:,}"
    if run.state is State.FAILED:
        return run.failure
    if not run.epochs:
        return NOTHING
    return f"{run.epochs[-1]['epoch']} epochs of {length_in_words(run.table['train'])}"


def _named(setting: Setting) -> Cell:
    return Cell(setting.name, key=setting.key, optimizer=setting.optimizer)


def _seeds(setting: Setting) -> Cell:
    """Return how many seeds the figures rest on, and how many were lost on the way."""
    done, all_ = len(setting.finished), len(setting.runs)
    lost = [
        f"{count} {state.value}"
        for state in State
        if state is not State.FINISHED
        and (count := sum(run.state is state for run in setting.runs))
    ]
    text = str(done) if done == all_ else f"{done} of {all_} ({', '.join(lost)})"
    return Cell(text, done, {"finished": done, "all": all_})
