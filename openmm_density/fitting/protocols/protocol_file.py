"""Protocols in TOML files."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...base.atomic_files import read_file
from ...base.errors import InputError, as_argument
from ...base.wording import one_line
from ..installed_extensions import answered
from .protocol import Protocol
from .stage import Stage, check_stage_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_protocol(path: str | os.PathLike[str]) -> Protocol:
    """Read a protocol from a TOML file: the fields of `Protocol`, and a table ``[[stage]]`` with those of `Stage` for each stage.

    Raises
    ------
    InputError
        If it cannot be read, or holds what is not known or not possible; the message names the file.
    """
    try:
        fields = tomllib.loads(read_file(path).decode("utf-8"))
    except OSError as error:
        raise InputError(
            f"{error.strerror or error}", source=path, remedy="give a protocol file (TOML)"
        ) from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # not only TOMLDecodeError: also numbers too long to be one, and deep nesting
        raise InputError(
            f"it is not a TOML file ({one_line(error)})",
            source=path,
            remedy="correct it, or give a protocol file",
        ) from None
    try:
        return _protocol({"name": Path(path).stem, **fields})
    except InputError as error:
        raise error.within(path) from None


def _protocol(fields: dict[str, Any]) -> Protocol:
    tables = fields.pop("stage", [])
    _check_known(fields, Protocol, "the protocol")
    if isinstance(tables, dict):
        raise InputError(
            "it has [stage], a single table",
            remedy="write [[stage]] with two brackets, once for each stage",
        )
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise InputError(
            "must be one or more tables [[stage]]",
            argument="stage",
            found=repr(tables),
            remedy="write [[stage]] before each",
        )
    if not tables:
        raise InputError("it has no stage", remedy="add one or more tables [[stage]]")
    stages = tuple(_stage(table, number) for number, table in enumerate(tables, start=1))
    return Protocol(**fields, stages=stages)


def _stage(table: Mapping[str, Any], number: int) -> Stage:
    _check_known(table, Stage, f"stage {number}")
    fields = {"name": f"stage {number}", **table}
    check_stage_name(fields["name"])
    if "steps" not in fields:
        raise InputError(
            f'stage "{fields["name"]}" has no {as_argument("steps")}',
            remedy="give the number of steps of dynamics",
        )
    return Stage(**fields)


def _check_known(table: Mapping[str, Any], kind: type, what: str) -> None:
    known = {field.name: field for field in dataclasses.fields(kind) if field.name != "stages"}
    for name, value in table.items():
        if name not in known:
            names = ("[[stage]]", *known) if kind is Protocol else known
            raise InputError(f'{what} has "{name}", which is not known', remedy=f"use {', '.join(names)}")
        if known[name].metadata and value != known[name].default and name not in answered():
            raise InputError(
                f'{what} asks for "{name}", which an extension does that is not installed',
                remedy="install the package again, or leave it out",
            )
