"""The guide as people follow it."""

import re
import shlex
import subprocess
import sys

from commands import sgdf

from locations import ROOT


def test_the_guide_can_be_followed(tmp_path, monkeypatch):
    guide = next((ROOT / "docs").rglob("compare.md")).read_text()
    for name, content in re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```", guide, re.M | re.S):
        (tmp_path / name).write_text(content)
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"my_loop.py", "moons.py", "moons.toml", "waves.py", "duel.py"}
    commands = [
        line
        for block in re.findall(r"^```sh\n(.*?)^```", guide, re.M | re.S)
        for line in block.splitlines()
    ]
    commands = [line for line in commands if not line.startswith("pip install")]
    assert commands.pop(0) == "python my_loop.py"
    assert len(commands) == 5
    for task in ("waves:Waves", "duel:Duel"):
        name = task.partition(":")[2].lower() + ".toml"
        text = f'[task]\nname = "{task}"\n[optimizer]\nname = "adam"\nlr = 0.01\n'
        (tmp_path / name).write_text(text)
        commands.append(f"sgdf run {name}")
    assert all(line.startswith("sgdf ") for line in commands)
    monkeypatch.chdir(tmp_path)
    outputs = [sgdf(*shlex.split(line)[1:]) for line in commands]
    dry, run, status, report, target, waves, duel = outputs
    assert "test error 0." in waves
    assert "1 finished" in duel
    assert "0 of 18 runs are done" in dry
    assert "18 finished" in run
    accuracy = r" +9\d\.\d+ ± \d\.\d+"
    assert re.search(rf"^sgdf lr=1\.0 +3 finished{accuracy}{accuracy}", status, re.M)
    for said in (report, target):
        assert re.search(rf"^sgdf lr=\S+( \((leader|tied)\))?{accuracy}{accuracy}", said, re.M)
    page = (tmp_path / "results/moons/report/index.html").read_text()
    assert "Time to accuracy 93 %" in page


def test_the_training_loop_of_the_guide_is_compared(tmp_path):
    guide = next((ROOT / "docs").rglob("compare.md")).read_text()
    (script,) = re.findall(r"^`my_loop.py`:\n\n```python\n(.*?)^```", guide, re.M | re.S)
    (tmp_path / "my_loop.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "my_loop.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "27 of 27 runs finished" in done.stdout
    (shown,) = re.findall(r"^```text\n(.*?)^```", guide, re.M | re.S)
    # The figures are those of one machine; the columns and the first words are the same on all.
    assert shown.splitlines()[:1] + shown.splitlines()[2:4] == [
        line for line in done.stdout.splitlines() if line in shown.splitlines()[:4] and line
    ]
    assert " leads: its mean test accuracy" in shown
    assert " leads: its mean test accuracy" in done.stdout
    assert (tmp_path / "results/my_loop-train/report/index.html").exists()
