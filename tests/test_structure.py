"""The shape of the package: imports lead down, and modules, functions and constructors stay small."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from .conftest import PROJECT

FOLDERS = {"openmm_density": PROJECT / "openmm_density", "openmm_density.kernels": PROJECT / "kernels"}

# The lowest first; what stands on one line does not import one another.
FLOORS = (
    "base",
    "kernels maps models",
    "energies",
    "restraints validation",
    "fitting analysis reporters",
    "report",
    "cli",
    "extensions __main__",
)
FLOOR = {name: number for number, names in enumerate(FLOORS) for name in names.split()}

LONGEST_MODULE, LONGEST_FUNCTION, MOST_ARGUMENTS = 500, 60, 12
# Everything that a user of a script sets in one place, passed on in parts.
FACADES = {"DensityFit", "FlexibleFit"}
# What a file, a fit or a report holds: filled in by one function of ours, by name, and read by everybody.
RECORDS = {
    "BFactors",
    "Diagnosis",
    "FitResult",
    "GeometryReport",
    "Model",
    "Prepared",
    "Protocol",
    "RunState",
    "Stage",
}


@cache
def modules() -> dict[str, tuple[Path, ast.Module]]:
    """Return the path and the syntax tree of every module, by its full name."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join((package, *parts)).removesuffix(".__init__")
            found[name] = path, ast.parse(path.read_text(encoding="utf-8"))
    return found


def imports_of(name: str) -> Iterator[str]:
    """Yield the modules of ours that a module imports anywhere, for types as well."""
    path, tree = modules()[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.split(".")[0] == "openmm_density")
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*parts, *([node.module] if node.module else [])])
            if source.split(".")[0] == "openmm_density":
                full_names = (f"{source}.{each.name}" for each in node.names)
                yield from (full_name if full_name in modules() else source for full_name in full_names)


def room(name: str) -> str:
    """Return the folder or module right below the package in which a module is; empty for the package itself."""
    return name.split(".")[1] if "." in name else ""


def test_every_module_stands_on_a_floor():
    assert {room(name) for name in modules()} - {""} == FLOOR.keys()


def test_imports_lead_down():
    wrong = []
    for name in modules():
        for imported in set(imports_of(name)):
            own, other = room(name), room(imported)
            if own != other and own and other and FLOOR[other] >= FLOOR[own]:
                wrong.append(f"{name} imports {imported}")
    assert wrong == []


def test_the_core_imports_no_extension_and_an_extension_of_others_what_they_show():
    wrong = []
    for name in modules():
        own = extension_of(name)
        for imported in set(imports_of(name)):
            other = extension_of(imported)
            if other and other != own and not (own and imported == f"openmm_density.extensions.{other}"):
                wrong.append(f"{name} imports {imported}")
    assert wrong == []


def test_the_core_names_no_extension_that_it_loads():
    """It finds them by their entry points, and their commands by folders."""
    rooms = {extension_of(name) for name in modules()} - {None}
    assert [
        f"{name}: {node.value}"
        for name, (_, tree) in modules().items()
        if not extension_of(name)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if (found := re.fullmatch(r"[\w.]*extensions\.(\w+)[\w.:]*", node.value)) and found[1] in rooms
    ] == []


def test_a_name_has_one_meaning():
    """Of the package's public classes and functions; what commands and processes begin with has the same name in each."""
    names = Counter(
        node.name
        for name, (_, tree) in modules().items()
        if room(name) != "kernels"
        for node in tree.body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and not node.name.startswith("_")
    )
    assert {name for name, count in names.items() if count > 1} == {"add_parser", "main", "run"}


def extension_of(name: str) -> str | None:
    """Return the extension of which a module is; None of the core."""
    parts = name.split(".")
    return parts[2] if parts[1:2] == ["extensions"] and len(parts) > 2 else None


def test_nothing_imports_in_a_circle():
    left = {name: {each for each in imports_of(name) if each in modules()} - {name} for name in modules()}
    # What a package shows is in its modules, which may name the package.
    left = {name: {each for each in found if not name.startswith(f"{each}.")} for name, found in left.items()}
    while left:
        lowest = {name for name, found in left.items() if not found & left.keys()}
        assert lowest, f"a circle among {sorted(left)}"
        left = {name: found for name, found in left.items() if name not in lowest}


def test_no_module_has_the_name_of_what_its_package_shows():
    """What is imported at its first use would be the module wherever that was imported before."""
    assert [
        f"{name}.{each.name}"
        for name, (path, tree) in modules().items()
        if path.name == "__init__.py"
        for block in tree.body
        if isinstance(block, ast.If)  # TYPE_CHECKING
        for statement in block.body
        for each in statement.names
        if f"{name}.{each.name}" in modules()
    ] == []


def test_modules_are_short():
    assert [
        f"{path.relative_to(PROJECT)}: {lines}"
        for path, _ in modules().values()
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > LONGEST_MODULE
    ] == []


def test_functions_fit_one_screen():
    """Kernels are left out: what is compiled as one has to be written as one."""
    assert [
        f"{name}.{node.name}: {lines}"
        for name, (_, tree) in modules().items()
        if room(name) != "kernels"
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and (lines := node.end_lineno - node.lineno + 1) > LONGEST_FUNCTION
    ] == []


def test_constructors_take_few_arguments():
    crowded = {
        node.name: count
        for _, tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and (count := n_arguments(node)) > MOST_ARGUMENTS
    }
    assert crowded.keys() - FACADES - RECORDS == set(), crowded


def n_arguments(node: ast.ClassDef) -> int:
    """Return how many arguments the constructor of a class takes: those of its `__init__`, or a dataclass's fields."""
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            return len([*each.args.posonlyargs, *each.args.args, *each.args.kwonlyargs]) - 1
    if not any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
        return 0
    fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    return len([each for each in fields if "init=False" not in ast.unparse(each)])
