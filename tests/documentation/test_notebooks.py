"""Cells of the notebooks, which run where the documentation is built, compile here, and what they import and read is there."""

import ast
import importlib
import re
import sys

import pytest

from ..conftest import PROJECT
from .pages import DOCS, blocks, pages

SHOWN = ("{code-cell}", "{code-block} python")
CELLS = [
    pytest.param(block.text, id=f"{block.page}-{number}")
    for page in pages()
    for number, block in enumerate(blocks(page))
    if block.language.startswith(SHOWN)
]


def code(cell):
    """Return a cell without its options, commands of the shell and magics."""
    return "".join(
        line for line in cell.splitlines(keepends=True) if not line.lstrip().startswith((":tags:", "!", "%"))
    )


def test_there_are_notebooks():
    assert len(CELLS) >= 5
    for page in pages():
        text = page.read_text(encoding="utf-8")
        assert ("{code-cell}" in text) == text.startswith("---\nfile_format: mystnb\n"), page.relative_to(
            PROJECT
        )


@pytest.mark.parametrize("cell", CELLS)
def test_cells_compile_and_import_what_is_there(cell):
    for node in ast.walk(ast.parse(code(cell))):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("openmm"):
            module = importlib.import_module(node.module)
            for name in node.names:
                assert hasattr(module, name.name), f"{node.module}.{name.name}"


def test_downloads_have_what_their_cells_read(monkeypatch):
    pytest.importorskip("myst_nb")
    monkeypatch.syspath_prepend(str(DOCS / "_extensions"))
    notebooks = importlib.import_module("notebooks")
    monkeypatch.delitem(sys.modules, "notebooks")
    made = [
        notebooks.notebook(page.read_text(encoding="utf-8"))
        for page in pages()
        if notebooks.is_notebook(page)
    ]
    assert len(made) >= 5
    for each in made:
        assert each.cells[0].cell_type == "markdown" and each.cells[1].source == notebooks.SET_UP
        for cell in each.cells[2:]:
            for path in re.findall(
                r'"((?:docs|examples|tests)/[^"{]+)"', cell.source if cell.cell_type == "code" else ""
            ):
                assert (PROJECT / path).is_file()
                assert any(path.startswith(f"{needed}/") for needed in notebooks.NEEDED), path
