"""Make the README's cost table, and check the bounds of the native step.

Prints Markdown with the machine, versions and date. Run it when nothing else runs.
"""

import argparse

from sgdf.analysis.cost.measure import LIMIT, MEMORY_ALONE, make_problem, measure
from sgdf.environment import environment

PROBLEMS = {"resnet18": "ResNet-18", "densenet121": "DenseNet-121", "flat": "one tensor of 40M"}
NATIVE_ROWS = {
    "SGDF, native (default)": ("SGDF", "fused"),
    "Adam, fused": ("Adam", "fused"),
    "AdamW, fused": ("AdamW", "fused"),
    "SGD with momentum, fused": ("SGD", "fused"),
    "limit: SGDF's step without arithmetic": LIMIT,
    "limit: its native call alone": MEMORY_ALONE,
}
KERNEL_ROWS = {
    "SGDF, foreach": ("SGDF", "foreach"),
    "SGDF, loop": ("SGDF", "loop"),
    "Adam, foreach": ("Adam", "foreach"),
    "Adam, loop (torch's default)": ("Adam", "loop"),
}
BOUNDS = {"resnet18": 0.95, "densenet121": 0.8, "flat": 1.05}


def markdown(native, everything):
    """Return the table: ratios to fused Adam, medians and quartiles."""
    tensors = [f"{PROBLEMS[r.problem]} ({r.tensors})" for r in native]
    lines = [f"| | {' | '.join(tensors)} |", "|---" * (len(native) + 1) + "|"]
    for rows, results in ((NATIVE_ROWS, native), (KERNEL_ROWS, everything)):
        for title, name in rows.items():
            ratios = [result.cost(*name).to_adam for result in results]
            cells = (f"{r.median:.2f} ({r.lower:.2f}–{r.upper:.2f})" for r in ratios)
            lines.append(f"| {title} | {' | '.join(cells)} |")
    times = [f"{1e3 * r.cost('Adam', 'fused').seconds.median:.1f} ms" for r in native]
    return "\n".join([*lines, f"| *time of fused Adam* | {' | '.join(times)} |"])


def bounds(native, everything):
    """Yield each bound of the native step with the measured value."""
    own = native.cost("SGDF", "fused")
    yield "of fused Adam", own.to_adam.median, "<=", BOUNDS[native.problem]
    yield "of the limit, same step", own.to_limit.median, "<=", 1.10
    alone = native.cost(*MEMORY_ALONE).to_limit.median
    yield "of the limit, native call alone", own.to_limit.median / alone, "", None
    for eager in ("foreach", "loop"):
        slow, fast = (everything.cost("SGDF", name).seconds for name in (eager, "fused"))
        yield f"times as fast as {eager}", slow.median / fast.median, ">=", 4.0


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60, help="turns of the native steps")
    rounds = parser.parse_args().rounds
    few = max(2, rounds // 10)
    native, everything = [], []
    for name in PROBLEMS:
        problem = make_problem(name, batch=16, resolution=32)
        native.append(measure(problem, rounds, native_only=True))
        everything.append(measure(problem, few))
    print(markdown(native, everything))
    print("\n" + ", ".join(f"{key} {value}" for key, value in environment().items()))
    print(f"{rounds} rounds of the native steps, {few} of the others\n")
    for result, slower in zip(native, everything, strict=True):
        for what, found, relation, bound in bounds(result, slower):
            verdict = ""
            if bound is not None:
                holds = found <= bound if relation == "<=" else found >= bound
                verdict = f"{relation} {bound}: {'holds' if holds else 'FAILS'}"
            print(f"{result.problem:12} {found:6.2f} {what:34} {verdict}")


if __name__ == "__main__":
    main()
