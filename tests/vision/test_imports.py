"""What imports torchvision, in processes of their own that call the fallback first."""

import subprocess
import sys

import pytest

from sgdf.torchvision_fallback import install

FIRST = "from sgdf import torchvision_fallback; torchvision_fallback.install()\n"
IMPORTS = [
    "import torchvision",
    "import timm",
    "import lightning",
    "import torchmetrics",
    "from transformers import Trainer",
    "from transformers import GPT2LMHeadModel",
    "import peft",
    "import accelerate",
    "import sgdf",
    "from sgdf.bench import compare",
]


def run(source):
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)


@pytest.mark.parametrize("line", IMPORTS)
def test_after_the_fallback_it_can_be_imported(line):
    pytest.importorskip(line.split()[1].partition(".")[0], exc_type=ModuleNotFoundError)
    ended = run(FIRST + line)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.skipif(not install(), reason="torchvision's compiled operators load beside this torch")
def test_without_the_fallback_it_cannot():
    assert "operator torchvision::nms does not exist" in run("import timm").stderr
