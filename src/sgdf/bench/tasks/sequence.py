"""What tasks on long sequences share: windows over parallel streams, and a carried state."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator

from torch import Tensor

Hidden = tuple[Tensor, Tensor]
"""What an LSTM carries from one window to the next."""


class Windows:
    """Successive stretches of parallel streams of codes, each with the codes that come next."""

    def __init__(self, codes: Tensor, streams: int, length: int) -> None:
        self.columns = codes[: len(codes) // streams * streams].view(streams, -1).t().contiguous()
        self.length, self.first = length, 0

    def __len__(self) -> int:
        return math.ceil((len(self.columns) - 1 - self.first) / self.length)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(self.first, len(self.columns) - 1, self.length):
            stop = min(start + self.length, len(self.columns) - 1)
            yield self.columns[start:stop], self.columns[start + 1 : stop + 1]

    def skip(self, count: int) -> Windows:
        """Return them without the first ``count``."""
        rest = copy.copy(self)
        rest.first = self.first + count * self.length
        return rest


def detach(hidden: Hidden) -> Hidden:
    """Return a hidden state through which no gradient flows back."""
    return hidden[0].detach(), hidden[1].detach()
