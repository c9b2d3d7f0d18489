"""The tables of a report, made of its findings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from ...present.table import NOTHING, OVERALL, Cell, Table, number_cell, share_cell
from ...present.words import in_brackets, plural
from ..paper.published import Published
from ..spec.run import length_in_words
from ..store.records import divergence_in_words
from ..store.run_folder import State
from .description import count_examples
from .findings import SPLITS, Findings, Problem, RunRecord, Setting
from .pairs import compare_pairs
from .paper import paper_tables
from .rate_windows import GridWindows, windows_table
from .sample_cells import NO_SPREAD, interval_cell, mean_cell
from .statistics import has_no_spread
from .targets import Hit, Target, profiles, share_within
from .verdict import Verdict

LEFT_OUT = "Runs that are not in the results"
"""The title of the table of runs that have no result."""
LEADER, TIED = "leader", "tied"
"""The marks of the setting that leads, and of settings that share the lead."""
FACTORS = (1.0, 1.5, 2.0, 4.0)


def tables(
    findings: Findings,
    targets: Sequence[Target],
    published: tuple[Published, ...],
    windows: Sequence[GridWindows],
) -> Iterator[Table]:
    """Yield every table that the runs can fill."""
    by_problem = {target.problem.name: target for target in targets}
    overall = overall_section(findings)
    for index, problem in enumerate(findings.problems):
        if any(setting.finished for setting in problem.settings):
            yield _results(problem, index)
        yield from paper_tables(problem, index, published)
        comparisons = _comparisons(problem, index)
        if comparisons.rows:
            yield comparisons
        if problem.name in by_problem:
            yield _to_target(by_problem[problem.name], index)
        if len(problem.settings) > len(problem.headline):
            yield _all_settings(problem, index)
    profile = _profile(targets, overall)
    if profile.rows:
        yield profile
    if windows:
        yield windows_table(windows, overall)
    left_out = _left_out(findings, overall)
    if left_out.rows:
        yield left_out


def overall_section(findings: Findings) -> str:
    """Return the section of what is about all problems: that of the problem if there is one."""
    return findings.problems[0].name if len(findings.problems) == 1 else OVERALL


def what_was_trained(problem: Problem) -> str:
    """Return a line about a problem: its task, what its settings have in common, its metric."""
    options = [f"{key}={value}" for key, value in problem.task.items() if key != "name"]
    parts = [f"{problem.task['name']}({', '.join(options)})"]
    tables = [setting.table for setting in problem.settings]
    if problem.by_function:
        parts.append("a function that trains by itself")
    else:
        for words, values in (
            ("{}", [length_in_words(table["train"]) for table in tables]),
            ("batches of {}", [table["train"]["batch_size"] for table in tables]),
            ("{}", [table["schedule"]["name"] for table in tables]),
        ):
            if len(set(values)) == 1:
                parts.append(words.format(values[0]))
    return f"{', '.join(parts)}. Judged by {problem.metric} ({problem.direction})."


def _spread_note(problem: Problem) -> str:
    """Return what a table has to say about figures without a spread."""
    if problem.most_seeds == 1:
        return " Each figure is from one seed: it has no spread, and no difference can be tested."
    samples = (s.sample(on, problem.metric) for s in problem.settings for on in SPLITS)
    if not any(map(has_no_spread, samples)):
        return ""
    note = f' "{NO_SPREAD.capitalize()}": all seeds have the same value'
    count = count_examples(problem, "test")
    if count and "accuracy" in problem.metric:
        scale, unit = problem.units[problem.metric]
        step = f"{(scale if unit == '%' else 1.0) / count:.2g} {unit}".strip()
        note += f"; one of the {count:,} test examples more or less would change it by {step}"
    return note + "."


def _choice_in_words(problem: Problem) -> str:
    """Return what was chosen on validation data: epochs, settings, or nothing."""
    if problem.has_single_rows and len(problem.settings) == len(problem.headline):
        return "Each optimizer has one setting, and nothing was chosen."
    how = "The epoch of each run was chosen on validation data"
    if problem.has_single_rows:
        how = "The setting of each optimizer was chosen on validation data"
    elif len(problem.settings) > len(problem.headline):
        how += ", and so was the setting of each optimizer"
    return f"{how}; the test data were not used for any choice."


def _results(problem: Problem, index: int) -> Table:
    scale, unit = problem.units[problem.metric]
    if problem.protocol.is_fair:
        how = _choice_in_words(problem)
        shown = [("test", "test", ""), ("validation", "validation", "")]
    elif problem.protocol.chosen == "last":
        last = "All" if problem.has_single_rows else "The last epoch counts, and all"
        how = f"{last} settings are shown: nothing was chosen."
        shown = [("test", "test", "")]
    else:
        how = (
            "The runs trained on all training data. The best epoch was chosen on the test data, "
            "as in the paper, which flatters the result. The last epoch was not chosen."
        )
        shown = [("best epoch on test", "test", ""), ("last epoch on test", "test", "last")]
    within = (0.0, 100.0) if unit == "%" else (-math.inf, math.inf)
    rows = []
    verdict = Verdict(problem)
    lead = LEADER if verdict.leader else TIED
    for setting in problem.headline:
        figures: list[Cell] = []
        for _, split, epoch in shown:
            sample = setting.sample(split, problem.metric, epoch)
            figures += [mean_cell(sample, scale), interval_cell(sample, scale, within)]
        rows.append(
            (
                _setting_cell(setting, lead if setting in verdict.best else ""),
                number_cell(setting.rate),
                *figures,
                mean_cell(setting.sample("train", "loss")),
                _seeds_cell(setting),
                number_cell(setting.milliseconds, 3),
                number_cell(setting.state_bytes, 3),
            )
        )
    has_loss = any(setting.values("train", "loss") for setting in problem.headline)
    loss = " A training loss is that of the same epoch." if has_loss else ""
    measure = f"{problem.metric}{in_brackets(unit)}"
    metrics = [f"{name} {measure}" for name, _, _ in shown]
    intervals = [f"95 % interval ({name})" for name, _, _ in shown]
    columns = itertools.chain.from_iterable(zip(metrics, intervals, strict=True))
    caption = marked = ""
    if verdict.best and problem.protocol.is_fair:
        caption = (
            f"The rows are ordered by {problem.judged_on} {problem.metric}; the lead is by test "
            f"{problem.metric}."
        )
    if verdict.leader:
        marked = f'; the best on test data is marked as the "{LEADER}"'
    elif verdict.best:
        marked = f'; those that share the best mean on test data are marked as "{TIED}"'
    return Table(
        f"results-{index}",
        problem.name,
        "Results",
        f"Mean ± standard deviation over the seeds, and the 95 % confidence interval of the mean; "
        f"for {problem.metric}, {problem.direction}. The rows are ordered by {problem.judged_on} "
        f"{problem.metric}, best first; settings with lost or unfinished runs come last{marked}. "
        f"{how}{loss}{_spread_note(problem)}",
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
        measure,
        dict.fromkeys(metrics, problem.direction),
        caption,
    ).without_empty_columns()


def _all_settings(problem: Problem, index: int) -> Table:
    scale, unit = problem.units[problem.metric]
    measure = f"{problem.metric}{in_brackets(unit)}"
    metrics = [f"{split} {measure}" for split in ("validation", "test")]
    return Table(
        f"settings-{index}",
        problem.name,
        "Every setting",
        "All settings that were tried, so that the choice on validation data can be checked; for "
        f"{problem.metric}, {problem.direction}." + _spread_note(problem),
        (
            "setting",
            *metrics,
            "training loss there",
            "seeds",
            "chosen",
        ),
        tuple(
            (
                _setting_cell(setting),
                mean_cell(setting.sample("validation", problem.metric), scale),
                mean_cell(setting.sample("test", problem.metric), scale),
                mean_cell(setting.sample("train", "loss")),
                _seeds_cell(setting),
                Cell("yes" if setting in problem.headline else ""),
            )
            for setting in problem.settings
        ),
        measure,
        dict.fromkeys(metrics, problem.direction),
    ).without_empty_columns()


def _comparisons(problem: Problem, index: int) -> Table:
    scale, unit = problem.units[problem.metric]
    pairs = compare_pairs(problem)
    several = len(pairs) > 1  # otherwise there is nothing to correct for
    rows = [
        (
            _setting_cell(pair.first),
            _setting_cell(pair.second),
            mean_cell(pair.comparison.difference, scale),
            interval_cell(pair.comparison.difference, scale),
            number_cell(pair.comparison.p, 2),
            *([number_cell(pair.comparison.corrected, 2)] if several else []),
            Cell(pair.outcome),
        )
        for pair in pairs
    ]
    corrected = ", corrected by Holm for the number of pairs" if several else ""
    return Table(
        f"comparisons-{index}",
        problem.name,
        "Which differences are significant?",
        f"Paired t-tests on test data over the seeds that both settings have{corrected}. The "
        "difference is first minus second; for "
        f"{problem.metric}, {problem.direction}. With few seeds only large differences can be "
        "significant; a difference that is not may still be real. Runs of other sources or data "
        "are not compared.",
        (
            "first",
            "second",
            f"difference in {problem.metric}{in_brackets(unit)}",
            "95 % interval",
            "p",
            *(["p, corrected"] if several else []),
            "at 5 %",
        ),
        tuple(rows),
    )


def _to_target(target: Target, index: int) -> Table:
    problem = target.problem
    scale, unit = problem.units[problem.metric]
    value = f"{scale * target.value:.4g} {unit}".rstrip()
    bound = "at least" if problem.larger_is_better else "at most"
    origin = (
        "as requested"
        if target.given
        else "which three quarters of the optimizers reach with every seed"
    )
    shown: dict[str, Callable[[Hit], float]] = {
        "epochs": lambda hit: hit.epoch,
        "steps": lambda hit: hit.step,
    }
    seconds = ""
    if not problem.by_function:
        shown["seconds"] = lambda hit: hit.seconds
        seconds = " The time of evaluations is not counted."
    rows: list[tuple[Cell, ...]] = []
    for setting in problem.headline:
        hits = target.hits(setting)
        if not hits:
            continue
        reached, typical = sum(hit is not None for hit in hits), target.typical(setting)
        hit_by = share_cell(reached / len(hits), f"{reached} of {len(hits)}")
        times = [
            Cell("missed", math.inf) if typical is None else number_cell(time(typical))
            for time in shown.values()
        ]
        rows.append((_setting_cell(setting), hit_by, *times))
    return Table(
        f"target-{index}",
        problem.name,
        f"Time to {problem.metric} {value}",
        f"The target is {problem.metric} of {bound} {value} on {problem.judged_on} data "
        f"({problem.direction}), {origin}. Times are medians over the seeds; a setting has missed "
        "the target if half of its seeds or more have. A lost run misses the "
        f"target; an unfinished run does not count.{seconds}",
        ("optimizer", "seeds that reach it", *shown),
        tuple(rows),
    )


def _profile(targets: Sequence[Target], section: str) -> Table:
    ratios = profiles(targets)
    shares = {factor: share_within(ratios, factor) for factor in FACTORS}
    return Table(
        "profile",
        section,
        "Within a factor of the fastest to the target",
        "The share of instances on which each optimizer reached the target within this factor "
        "times the steps of the fastest. An instance is a problem with a seed for which every "
        "optimizer has a run that finished, diverged or failed, and one reached the target.",
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


def _left_out(findings: Findings, section: str) -> Table:
    rows = [
        (
            Cell(problem.name),
            _setting_cell(setting),
            number_cell(run.seed),
            Cell(run.state.value),
            Cell(_what_happened(run)),
            Cell(run.key),
        )
        for problem in findings.problems
        for setting in problem.settings
        for run in setting.runs
        if run.chosen is None
    ]
    rows += [
        (Cell(NOTHING), Cell(NOTHING), Cell(NOTHING), Cell("unreadable"), Cell(what), Cell(""))
        for what in findings.unreadable
    ]
    return Table(
        "trouble",
        section,
        LEFT_OUT,
        "No mean above includes these runs. Runs that diverged, failed or have no finite value are "
        "lost: their seeds have no result. The next sgdf run repairs damaged runs, and "
        "resumes unfinished ones.",
        ("problem", "setting", "seed", "state", "what happened", "run"),
        tuple(rows),
    )


def _what_happened(run: RunRecord) -> str:
    if run.state is State.DIVERGED and run.result:
        return f"diverged {divergence_in_words(run.result)}"
    if run.state in (State.FAILED, State.DAMAGED, State.UNREADABLE):
        return run.failure
    if run.lacks_value and run.result:
        return f"no finite {run.result['metric']}"
    if not run.epochs:
        return NOTHING
    if run.by_function:
        return plural(run.epochs[-1]["epoch"], "evaluation")
    done = run.epochs[-1]["step" if run.table["train"].get("steps") else "epoch"]
    return f"{done:,} of {length_in_words(run.table['train'])}"


def _setting_cell(setting: Setting, mark: str = "") -> Cell:
    return Cell(setting.name, key=setting.key, optimizer=setting.optimizer, mark=mark)


def _seeds_cell(setting: Setting) -> Cell:
    """Return how many seeds are finished, and the states of the others."""
    done, all_ = len(setting.finished), len(setting.runs)
    others = [
        f"{count} {state.value}"
        for state in State
        if state is not State.FINISHED
        and (count := sum(run.state is state for run in setting.runs))
    ]
    if without := sum(run.lacks_value for run in setting.runs):
        others.append(f"{without} without a finite value")
    text = str(done) if done == all_ else f"{done} of {all_} ({', '.join(others)})"
    return Cell(text, done, {"finished": done, "all": all_})
