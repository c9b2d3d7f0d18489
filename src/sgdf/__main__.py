"""``python -m sgdf``: the same as the ``sgdf`` command, for torchrun and the like."""

from .cli import app

app(prog_name="sgdf")
