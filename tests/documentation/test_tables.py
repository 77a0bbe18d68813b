"""Tables of the documentation are those of the stored figures, which say when they were measured, on which kind of machine."""

import importlib.util
import json

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


@pytest.mark.parametrize("figures", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_figures_name_no_machine(figures):
    text = figures.read_text(encoding="utf-8")
    assert json.loads(text)["measured"].keys() == {"date", "commit", "machine"}
    assert "/" not in text.replace("kJ/mol", ""), "a path"


def test_a_processor_is_named_by_its_kind(tables):
    assert tables.device("Intel(R) Xeon(R) Processor, 32 cores") == "Intel Xeon, 32 cores"
    assert tables.device("NVIDIA H200") == "H200"
