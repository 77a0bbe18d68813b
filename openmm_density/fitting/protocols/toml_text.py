"""What the standard library only reads: the text of a TOML file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def toml_text(fields: Mapping[str, Any]) -> str:
    """Return numbers, strings and lists of them as a line each; then lists of tables, as in ``[[stage]]``."""
    tables = {name: value for name, value in fields.items() if _holds_tables(value)}
    lines = [_line(name, value) for name, value in fields.items() if name not in tables]
    for name, rows in tables.items():
        for row in rows:
            lines += ["", f"[[{name}]]", *(_line(key, value) for key, value in row.items())]
    return "\n".join([*lines, ""])


def _holds_tables(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], Mapping)


def _line(name: str, value: Any) -> str:
    return f"{name} = {_literal(value)}"


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_literal, value))}]"
    return repr(value)
