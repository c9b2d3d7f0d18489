"""The guide as people follow it."""

import re
import shlex

from commands import sgdf

from locations import ROOT


def test_the_guide_can_be_followed(tmp_path, monkeypatch):
    guide = next((ROOT / "docs").rglob("compare.md")).read_text()
    for name, content in re.findall(r"^`([\w.]+)`:\n\n```\w+\n(.*?)^```", guide, re.M | re.S):
        (tmp_path / name).write_text(content)
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"moons.py", "moons.toml", "waves.py", "duel.py"}
    commands = [
        line
        for block in re.findall(r"^```sh\n(.*?)^```", guide, re.M | re.S)
        for line in block.splitlines()
    ]
    commands = [line for line in commands if not line.startswith("pip install")]
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
    accuracy = r" +0\.9\d* ± \S+"
    assert re.search(rf"moons:Moons, sgdf lr=1\.0 +3 +3{accuracy}{accuracy}", status)
    for said in (report, target):
        assert re.search(r"^sgdf lr=\S+ +\S+ +9\d\.\d+ ± \d\.\d+ +9\d\.\d+ ± \d\.\d+ ", said, re.M)
    page = (tmp_path / "results/moons/report/index.html").read_text()
    assert "Time to accuracy 93 %" in page
