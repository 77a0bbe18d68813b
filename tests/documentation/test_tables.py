"""Tables of the documentation are those of the stored figures, which say when they were measured, on which kind of machine."""

import importlib.util

import pytest

from .pages import DOCS

FOLDER = DOCS / "evidence" / "figures"


@pytest.fixture(scope="module")
def tables():
    spec = importlib.util.spec_from_file_location("tables", FOLDER.parent / "tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_have_the_tables_of_all_figures(tables):
    texts = [page.read_text(encoding="utf-8") for page in tables.pages()]
    names = {name for text in texts for _, name, _ in tables.MARKED.findall(text)}
    assert names == {each.name for each in FOLDER.glob("*.json")}
    assert [tables.filled(text) for text in texts] == texts, "run python docs/evidence/tables.py"
