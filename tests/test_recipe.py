"""The conda recipe says what pyproject.toml says, and what it tries of a package works here."""

import re
import runpy
import sys

import pytest

from .conftest import PROJECT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RECIPE = (PROJECT / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
"""What a package is called in conda, where that is another name."""
IN_NO_CHANNEL = {"pyrama"}


def listed(key: str) -> set[str]:
    """Return the items of the recipe's list of this name, those of its first occurrence."""
    block = re.search(rf"^( +){key}:\n((?:\1  - .*\n)+)", RECIPE, re.MULTILINE)
    return {line.strip().removeprefix("- ") for line in block[2].splitlines()}


def in_conda(requirement: str) -> str:
    """Return a requirement as conda writes it: the tables of TOML for old Pythons are wanted for all."""
    name, bound = re.fullmatch(r"([\w-]+)(>=[\d.]+)(?:; python_version < '3.11')?", requirement).groups()
    return f"{NAMES.get(name, name)} {bound}"


def test_it_has_the_versions_and_dependencies_of_the_project():
    project = PYPROJECT["project"]
    assert f'  version: "{project["version"]}"\n' in RECIPE and f"  name: {project['name']}\n" in RECIPE
    python = f"python {project['requires-python']}"
    wanted = {
        in_conda(each) for each in project["dependencies"] if each.partition(">")[0] not in IN_NO_CHANNEL
    }
    assert listed("run") == wanted | {python, "__linux"}
    assert listed("host") == {python, "pip", *map(in_conda, PYPROJECT["build-system"]["requires"])}
    assert {in_conda(each) for each in project["optional-dependencies"]["gpu"]} <= listed("run_constraints")
    assert all(f"pip install --no-deps {name}" in " ".join(RECIPE.split()) for name in IN_NO_CHANNEL)
    for program, function in project["scripts"].items():
        assert f"- {program} = {function}\n" in RECIPE
    assert f"  summary: {project['description']}\n  license: {project['license']}\n" in RECIPE
    licences = {
        "LICENSE",
        *(str(path.relative_to(PROJECT)) for path in PROJECT.glob("openmm_density/**/*LICENSE*")),
    }
    assert listed("license_file") == licences


def test_what_it_tries_works_here(capsys):
    try:
        runpy.run_path(str(PROJECT / "recipe" / "density_force.py"))
    except AssertionError as error:
        pytest.fail(str(error))
    assert capsys.readouterr().out.startswith("similarity 0.")
