"""Every Triton kernel says how it is launched, and names shape and dtype of each argument."""

import ast
import re
from pathlib import Path

import pytest

from openmm_density import kernels

FILES = sorted(Path(kernels.__file__).parent.rglob("gpu*.py"))


def launched(folder: Path) -> set[str]:
    """Return the names of the kernels that the files of a folder launch: what is called with a grid in brackets."""
    names = set()
    for file in folder.glob("gpu*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
                names.add(getattr(node.func.value, "attr", getattr(node.func.value, "id", "")))
    return names


def table_of(docstring: str) -> dict[str, tuple[str, str]]:
    """Return shape and dtype of each argument in the table of a docstring."""
    lines = docstring.splitlines()
    rules = [i for i, line in enumerate(lines) if re.fullmatch(r"=+(  =+)+", line)]
    columns = [match.span() for match in re.finditer("=+", lines[rules[0]])]
    rows = {}
    for line in lines[rules[1] + 1 : rules[2]]:
        names, shape, dtype = (line[begin:end].strip() for begin, end in columns[:3])
        rows |= {name.strip(): (shape, dtype) for name in names.split(",") if names}
    return rows


@pytest.mark.parametrize("file", FILES, ids=["/".join(file.parts[-2:]) for file in FILES])
def test_kernels_name_their_launch_grid_and_arguments(file):
    names = launched(file.parent)
    for function in ast.parse(file.read_text()).body:
        if not isinstance(function, ast.FunctionDef) or function.name not in names:
            continue
        docstring = ast.get_docstring(function) or ""
        assert "Launch grid: ``(" in docstring, function.name
        arguments = [argument.arg for argument in function.args.args]
        table = table_of(docstring)
        assert sorted(table) == sorted(arguments), function.name
        for name, (shape, dtype) in table.items():
            assert shape, f"{function.name}: {name}"
            assert (shape == "constant") == (name.isupper()), f"{function.name}: {name}"
            assert dtype or name.isupper(), f"{function.name}: {name}"


def test_there_are_kernels_to_look_at():
    folders = {file.parent for file in FILES}
    assert len(folders) == 10 and sum(len(launched(folder)) for folder in folders) >= 28
