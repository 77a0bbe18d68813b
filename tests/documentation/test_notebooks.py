"""Cells of the notebooks, which run where the documentation is built, compile here, and what they import and read is there."""

import ast
import importlib

import pytest

from ..conftest import PROJECT
from .pages import blocks, pages

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
