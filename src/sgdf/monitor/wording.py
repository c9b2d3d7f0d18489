"""Measurements in words. The marks are those of ``docs/guide/not_helping.md``."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from statistics import median

from .measurement import QUANTILES, Measurement, Statistics

_SMALL_UPDATE, _LARGE_UPDATE = 1e-4, 1e-2
_ALMOST_EQUAL = 0.98
"""Above this cosine the estimate is almost the gradient."""
_LOW_COSINE = 0.75
"""Below this cosine the estimate has a direction of its own."""
_NEAR, _FAR = 1.35, 4.0
"""How many times the odds of steady noise the odds of the gain are, at most, where both are about
equal; and at least, where they are far apart."""
_FEWEST = 5
"""Among fewer parameters than these nothing is the rule, and nothing the exception."""
_ENOUGH, _LARGE_ENOUGH, _UNRELIABLE = 3, 10, ("gain_mean", "cosine")
"""From fewer measurements nothing is said about a single parameter, and of one with fewer elements
nothing about these statistics: they would be chance."""
_WIDTH = 80
_SHOWN = 3  # names in one sentence
_LEAST_DISTANCES = {"gain_mean": 0.2, "cosine": 0.2, "update_ratio": 1.0}
"""How far from the median of all parameters one is at least, if it is unlike the others. For
``update_ratio`` in powers of ten."""
_TITLES = {"gain_mean": "gain", "cosine": "cosine", "update_ratio": "update ratio"}


def describe(title: str, measurements: Sequence[Measurement]) -> str:
    """Return a few lines that say what the last measurements of an optimizer show.

    Args:
        title: name of the optimizer's class.
        measurements: one or more; the medians of their statistics are described.
    """
    last = measurements[-1]
    number = len(last.params)
    heading = f"{title}, step {last.step}, {number} parameter{'s' if number > 1 else ''}"
    if len(measurements) > 1:
        heading += f", medians of {len(measurements)} measurements"
    lines = [f"{heading}:"]
    if broken := _broken(last.params):
        lines.append(f"NaN or infinity is in gradient, state or values of {_listed(broken)}.")
    else:
        total = _medians([measurement.total for measurement in measurements])
        steady = last.steady_noise
        lines += [*_about_memory(last.memory), _about_filter(title, total, steady)]
        if steady.get("gain_mean"):  # else there is no gain, whatever the gradients are
            lines += _about_silent_elements(total)
        lines.append(_about_update(total["update_ratio"]))
    if len(measurements) >= _ENOUGH:
        params = {
            name: _medians([m.params[name] for m in measurements if name in m.params])
            for name in last.params
            if name not in broken
        }
        for name, statistics in params.items():
            if last.sizes[name] < _LARGE_ENOUGH:
                statistics |= dict.fromkeys(_UNRELIABLE, math.nan)
        lines += _about_params(params)
    return "\n".join(
        textwrap.fill(
            line,
            _WIDTH,
            subsequent_indent="  ",
            break_long_words=False,  # names can be searched for
            break_on_hyphens=False,
        )
        for line in lines
    )


def summarize(measurement: Measurement) -> str:
    """Return one line with the main numbers of a measurement."""
    total = measurement.total
    shown = [f"cosine {total['cosine']:.2f}", f"update ratio {total['update_ratio']:.1e}"]
    if steady := measurement.steady_noise:
        shown.insert(0, f"gain {total['gain_mean']:.2f} (steady noise {steady['gain_mean']:.2f})")
    if broken := _broken(measurement.params):
        shown.append(f"not finite: {_listed(broken)}")
    return f"step {measurement.step}: {', '.join(shown)}"


def _medians(rows: list[Statistics]) -> Statistics:
    """Return the median of each statistic, of the values that it has."""
    medians = {}
    for name in rows[-1]:
        values = [row[name] for row in rows if math.isfinite(row[name])]
        medians[name] = median(values) if values else math.nan
    return medians


def _about_filter(title: str, total: Statistics, steady: Statistics) -> str:
    """Return what the filter does, compared with what it would do on steady noise."""
    cosine, residual = total["cosine"], total["residual_ratio"]
    if not steady:
        return f"{title} has no gain; its momentum and the gradient have a cosine of {cosine:.2f}."
    gain, powered = total["gain_mean"], total["powered_gain_mean"]
    facts = (
        f"The gain is {gain:.2f} on average, {powered:.2f} after its power; steady noise would "
        f"give {steady['gain_mean']:.2f} and {steady['powered_gain_mean']:.2f}. "
    )
    times = _odds(gain) / _odds(steady["gain_mean"]) if steady["gain_mean"] else 1.0
    if math.isnan(cosine):
        return f"{facts}The gradient or the estimate is 0."
    if cosine > _ALMOST_EQUAL:
        reason = ""
        if residual < 0.2 and steady["gain_mean"]:
            reason = ", since there is little noise to filter"
        elif times >= _FAR:
            reason = ", since the gradients have shrunk faster than the filter's betas[1] forgets"
        return f"{facts}The estimate is almost the gradient (cosine {cosine:.2f}){reason}."
    if not steady["gain_mean"]:
        verdict = "The estimate is mostly the running mean"
    elif times >= _FAR and cosine < _LOW_COSINE:
        verdict = "The filter sees few large gradients among many small ones"
    elif times > _NEAR:
        verdict = (
            "The filter lets more of the gradients through, as it does while they shrink, or where "
            "few are large"
        )
    elif times >= 1.0 / _NEAR:
        verdict = "The filter works as on steady noise"
    elif times > 1.0 / _FAR:
        verdict = "The filter holds more of the gradients back"
    else:
        verdict = "The estimate is mostly the running mean, as it is where noise grows or bursts"
    return f"{facts}{verdict} (cosine {cosine:.2f} between estimate and gradient)."


def _about_memory(memory: float) -> list[str]:
    """Return that it is early, if it is."""
    if not memory:
        return []
    return [
        f"It is early: the filter's betas[1] remembers the first gradients for about "
        f"{memory:,.0f} steps."
    ]


def _about_silent_elements(total: Statistics) -> list[str]:
    """Return how many elements have no gain to speak of, if they are many.

    On normal noise of a constant size there are none.
    """
    silent = [share for share in QUANTILES if total.get(f"gain_q{100 * share:02.0f}", 1.0) < 1e-3]
    if not silent or silent[-1] < 0.25:
        return []
    return [
        f"In at least {silent[-1]:.0%} of the elements the gain is below 0.001: there the "
        f"gradients hardly vary (they may be 0), or are suddenly far larger than before."
    ]


def _about_update(ratio: float) -> str:
    """Return how large the step was."""
    if math.isnan(ratio):
        return "The weights were all 0, so that nothing can be said about the size of a step."
    if ratio < _SMALL_UPDATE:
        size = f"small (below {_SMALL_UPDATE:g})"
    elif ratio > _LARGE_UPDATE:
        size = f"large (above {_LARGE_UPDATE:g})"
    else:
        size = f"neither small (below {_SMALL_UPDATE:g}) nor large (above {_LARGE_UPDATE:g})"
    return f"A step changes the weights by {ratio:.2g} of their norm: {size}."


def _about_params(params: dict[str, Statistics]) -> list[str]:
    """Return which parameters are unlike the others."""
    lines = []
    turning = [name for name, statistics in params.items() if statistics["cosine"] < 0.0]
    if turning:
        lines.append(
            f"The gradient points away from the estimate (cosine below 0), as where it "
            f"oscillates, in {_listed(turning)}."
        )
    unlike = {name: fact for name, fact in _unlike(params).items() if name not in turning}
    if unlike:
        lines.append(
            f"Unlike the rest: {_listed(f'{name} ({fact})' for name, fact in unlike.items())}."
        )
    elif len(params) >= _FEWEST and not turning:
        lines.append("No parameter is unlike the rest.")
    return lines


def _unlike(params: dict[str, Statistics]) -> dict[str, str]:
    """Return the parameters that are unlike the others, with what is: the farthest one first."""
    found: dict[str, tuple[float, str]] = {}
    for statistic, least in _LEAST_DISTANCES.items():
        values = {name: statistics.get(statistic, math.nan) for name, statistics in params.items()}
        is_ratio = statistic == "update_ratio"
        places = {
            name: math.log10(value) if is_ratio else value
            for name, value in values.items()
            if math.isfinite(value) and (value > 0.0 or not is_ratio)
        }
        if len(places) < _FEWEST:
            continue
        middle = median(places.values())
        spread = median(abs(place - middle) for place in places.values())
        for name, place in places.items():
            distance = abs(place - middle) / max(least, 5.0 * spread)
            if distance > 1.0 and distance > found.get(name, (0.0, ""))[0]:
                usual = 10.0**middle if is_ratio else middle
                title = _TITLES[statistic]
                found[name] = distance, f"{title} {values[name]:.2g}, median {usual:.2g}"
    ordered = sorted(found, key=lambda name: -found[name][0])
    return {name: found[name][1] for name in ordered}


def _broken(params: dict[str, Statistics]) -> list[str]:
    """Return the parameters where something is not finite; a mere ratio to 0 is left out."""
    return [name for name, found in params.items() if not math.isfinite(found["residual_rms"])]


def _listed(items: Iterable[str]) -> str:
    """Return the first items, and how many there are besides."""
    first, more = (every := list(items))[:_SHOWN], len(every) - _SHOWN
    return ", ".join(first) + (f" and {more} more" if more > 0 else "")


def _odds(share: float) -> float:
    return share / (1.0 - share) if share < 1.0 else math.inf
