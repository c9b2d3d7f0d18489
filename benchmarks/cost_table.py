"""Make the README's cost table, and say whether the native step keeps its bounds.

Prints Markdown with the machine, versions and date. Run it when nothing else runs.
"""

import argparse

from sgdf.analysis.cost import LIMIT, MEMORY_ALONE, environment, make_problem, measure

PROBLEMS = {"resnet18": "ResNet-18", "densenet121": "DenseNet-121", "flat": "one tensor of 40M"}
ROWS = {
    "SGDF, native (default)": ("SGDF", "fused"),
    "SGDF, foreach": ("SGDF", "foreach"),
    "SGDF, loop": ("SGDF", "loop"),
    "Adam, fused": ("Adam", "fused"),
    "Adam, loop (torch's default)": ("Adam", "loop"),
    "SGD with momentum, fused": ("SGD", "fused"),
    "limit: the same step without arithmetic": LIMIT,
    "limit: its native call alone": MEMORY_ALONE,
}
BOUNDS = {"resnet18": 0.95, "densenet121": 0.8, "flat": 1.05}


def markdown(results):
    """Return the table: ratios to fused Adam, medians and quartiles."""
    tensors = [f"{PROBLEMS[r.problem]} ({r.tensors})" for r in results]
    lines = [f"| | {' | '.join(tensors)} |", "|---" * (len(results) + 1) + "|"]
    for title, name in ROWS.items():
        cells = []
        for result in results:
            ratio = result.cost(*name).to_adam
            cells.append(f"{ratio.median:.2f} ({ratio.lower:.2f}–{ratio.upper:.2f})")
        lines.append(f"| {title} | {' | '.join(cells)} |")
    times = [f"{1e3 * r.cost('Adam', 'fused').seconds.median:.1f} ms" for r in results]
    return "\n".join([*lines, f"| *time of fused Adam* | {' | '.join(times)} |"])


def bounds(result):
    """Yield each bound of the native step with the figure found."""
    native = result.cost("SGDF", "fused")
    yield "of fused Adam", native.to_adam.median, "<=", BOUNDS[result.problem]
    yield "of the limit, same step", native.to_limit.median, "<=", 1.10
    alone = result.cost(*MEMORY_ALONE).to_limit.median
    yield "of the limit, native call alone", native.to_limit.median / alone, "", None
    for eager in ("foreach", "loop"):
        ratio = result.cost("SGDF", eager).seconds.median / native.seconds.median
        yield f"times as fast as {eager}", ratio, ">=", 4.0


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="turns of each implementation")
    rounds = parser.parse_args().rounds
    results = [measure(make_problem(name, batch=4, resolution=32), rounds) for name in PROBLEMS]
    print(markdown(results))
    print("\n" + ", ".join(f"{key} {value}" for key, value in environment().items()))
    print(f"{rounds} rounds\n")
    for result in results:
        for what, found, relation, bound in bounds(result):
            verdict = ""
            if bound is not None:
                holds = found <= bound if relation == "<=" else found >= bound
                verdict = f"{relation} {bound}: {'holds' if holds else 'FAILS'}"
            print(f"{result.problem:12} {found:6.2f} {what:34} {verdict}")


if __name__ == "__main__":
    main()
