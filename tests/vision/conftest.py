"""torchvision for all tests of this folder, whose files can import it and what imports it."""

import importlib.util
import warnings

from sgdf import torchvision_fallback

if importlib.util.find_spec("torchvision"):  # tests/conftest.py skips the folder otherwise
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torchvision's compiled operators do not load")
        torchvision_fallback.install()
