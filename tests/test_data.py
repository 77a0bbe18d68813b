"""The small real maps and models that the project ships."""

from __future__ import annotations

import gzip
import importlib.util
import sys
from pathlib import Path

import pytest

from .conftest import PROJECT

LIMIT = 8e6  # bytes, of tests and examples together


def shipped(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def content(path: Path) -> bytes:
    """Return what a file holds; how well it is packed depends on the version of zlib."""
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def test_what_is_shipped_is_small_and_its_entries_are_named(small_data: Path) -> None:
    files = shipped(small_data) + shipped(PROJECT / "examples" / "data")
    assert 0 < sum(path.stat().st_size for path in files) < LIMIT
    listing = (small_data / "README.md").read_text()
    folders = [path.name for path in small_data.iterdir() if path.is_dir() and path.name != "__pycache__"]
    assert folders and all(f"| `{folder}` |" in listing for folder in folders)


def test_the_script_makes_what_is_shipped(small_data: Path, data_dir: Path, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("make_data", small_data / "make_data.py")
    script = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.dont_write_bytecode", True)
        patch.setitem(sys.modules, spec.name, script)
        spec.loader.exec_module(script)
    script.main(data_dir, tmp_path)
    made = {path.relative_to(tmp_path): path for path in shipped(tmp_path)}
    ours = {path.relative_to(small_data): path for path in shipped(small_data) if path.parent != small_data}
    assert made.keys() == ours.keys()
    assert [name for name in made if content(made[name]) != content(ours[name])] == []
