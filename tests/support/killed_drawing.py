"""A DiT that is killed while it draws images, named in specs by this module."""

import os
import signal
from typing import ClassVar

from sgdf.bench.tasks.diffusion.task import DiT


class KilledDiT(DiT):
    """Is killed when it is asked for a certain batch of images, if the environment names one."""

    drawn: ClassVar = []
    """The first number and the size of every batch that this process was asked for."""

    def draw(self, count, first, noise, *progress):
        """Draw, or die before it."""
        self.drawn.append((first, count))
        if str(len(self.drawn)) == os.environ.get("SGDF_TEST_KILL_AT"):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().draw(count, first, noise, *progress)
