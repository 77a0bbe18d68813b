"""The tables of the performance page are those of the figures beside it, which name no machine but its kind."""

import importlib.util
import json

import pytest

from .pages import DOCS

FOLDER = DOCS / "performance"


@pytest.fixture(scope="module")
def tables():
    spec = importlib.util.spec_from_file_location("tables", FOLDER / "tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_tables_of_its_figures(tables):
    page = tables.PAGE.read_text(encoding="utf-8")
    assert {name for _, name, _ in tables.MARKED.findall(page)} == {
        each.name for each in FOLDER.glob("*.json")
    }
    assert tables.filled(page) == page, "run python docs/performance/tables.py"


@pytest.mark.parametrize("figures", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_figures_name_no_machine(figures):
    text = figures.read_text(encoding="utf-8")
    assert json.loads(text) and "/" not in text.replace("kJ/mol", ""), "a path"


def test_a_processor_is_named_by_its_kind(tables):
    assert tables.device("Intel(R) Xeon(R) Processor, 32 cores") == "Intel Xeon, 32 cores"
    assert tables.device("NVIDIA H200") == "H200"
