"""Arrays as text inside the page, small: base64 of their bytes, which JavaScript reads without parsing numbers."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np


def packed(array: np.ndarray, kind: str) -> str:
    """Return an array's values, row after row, in base64."""
    return base64.b64encode(np.ascontiguousarray(array, dtype=kind).tobytes()).decode("ascii")


def embedded_json(value: Any) -> str:
    """Return a value as JSON that can stand inside a ``<script>``, whatever its texts say."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
