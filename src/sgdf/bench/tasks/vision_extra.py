"""The library of the extra ``vision``, imported only by what needs it."""

from __future__ import annotations

import importlib
from typing import Any

from ... import torchvision_fallback
from ..errors import SpecError, first_line


def torchvision() -> Any:
    """Return torchvision, whether its compiled operators load or not.

    Raises:
        SpecError: if it cannot be imported; the message says what to install.
    """
    try:
        torchvision_fallback.install()
        return importlib.import_module("torchvision")
    except (ImportError, RuntimeError) as error:  # the latter if something that it needs is amiss
        raise SpecError(
            f"this needs torchvision: pip install 'sgdf[vision]' ({first_line(error)})"
        ) from error
