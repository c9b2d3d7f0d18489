"""The identity of a run: the digest of its whole table. Equal tables are one run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def digest(content: bytes) -> str:
    """Return the short SHA-256 digest by which files and runs are recognised."""
    return hashlib.sha256(content).hexdigest()[:16]


def run_key(table: Mapping[str, Any]) -> str:
    """Return the name of a run: the digest of its table."""
    return digest(json.dumps(table, sort_keys=True).encode())
