"""What people meet first: the first block of code, the installation, and what examples need."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
import torch

import sgdf
from locations import ROOT

README = (ROOT / "README.md").read_text()
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
TEXTS = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), ROOT / "src/sgdf/optim/sgdf.py"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_first_block_has_the_rate_that_sgdf_itself_advises():
    block = re.search(r"^```python\n(.*?)^```", README, re.M | re.S).group(1)
    lr, momentum = re.search(r"SGD\(.*, lr=([\d.]+), momentum=([\d.]+)\)", block).groups()
    ours = re.search(r"sgdf\.SGDF\(.*, lr=([\d.]+)\)", block).group(1)
    with pytest.raises(TypeError, match=rf"write lr={re.escape(ours)}$"):
        sgdf.SGDF([torch.ones(1)], lr=float(lr), momentum=float(momentum))


def test_there_is_one_rule_for_the_rate():
    rule = re.compile(r"(?<!\* )sgd_lr(?: \* \(1 - dampening\))? / \(1 - momentum\)")
    counts = {path: path.read_text().count("sgd_lr") for path in TEXTS}
    assert sum(counts.values()) > 4
    # The advice is put together from two pieces of text there.
    counts[ROOT / "src/sgdf/optim/sgdf.py"] -= 1
    assert {path: len(rule.findall(path.read_text())) for path in TEXTS} == counts


def test_make_quickstart_says_that_it_installs(tmp_path):
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    command = ["make", "--dry-run", "quickstart"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    said, *does = re.findall(
        r'echo "(Installing .*)"|(pip install )|(sgdf quickstart)', done.stdout
    )
    assert re.match(r"Installing torch, .* into \.venv: ", said[0])
    assert ["".join(one) for one in does] == ["pip install ", "sgdf quickstart"]


def test_an_installation_leaves_the_torch_of_the_user_alone():
    assert re.search(r"^pip install \. ", README, re.M)
    instructions = [
        line for path in TEXTS for line in re.findall(r"pip install [^`\n#]*", path.read_text())
    ]
    assert len(instructions) > 3
    assert not [line for line in instructions if re.search(r"constraint|torch|-c\b|-U|==", line)]
    # A torch that is new enough is not replaced: nothing asks for a version of its own.
    needed = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["bench"]]
    assert {re.search(r"[<>=!~]+", requirement).group() for requirement in needed} == {">="}


def imported(path):
    """Return the modules that a file imports, with those of examples that it imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module.partition(".")[0])
    others = [other for other in EXAMPLES if other.stem in names]
    return names.union(*map(imported, others)) - {other.stem for other in others}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_says_what_it_needs(path):
    about = ast.get_docstring(ast.parse(path.read_text()))
    more = imported(path) - set(sys.stdlib_module_names) - {"torch", "numpy", "sgdf"}
    assert not more or re.search(r"``pip install '\.\[bench(,\w+)*\]'``", about), more
    if re.search("^from sklearn", path.read_text(), re.M):
        assert "needs scikit-learn" in about
        assert f"(examples/{path.name}) (needs scikit-learn)" in README
