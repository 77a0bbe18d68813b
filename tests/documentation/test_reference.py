"""The reference has every public name and every option, pages say what they are for, and guides are short."""

import importlib
import re

import pytest

from ..conftest import PROJECT
from .pages import DOCS, blocks, pages, prose
from .parsers import commands, options

LISTED = {
    line.strip()
    for block in blocks(DOCS / "reference" / "api.md")
    if ".. autosummary::" in block.text
    for line in block.text.splitlines()
    if re.fullmatch(r" +openmm_density[\w.]+", line)
}
# Packages whose names users import; of others the reference has the names that a user meets.
WHOLE = (
    "openmm_density",
    "openmm_density.analysis",
    "openmm_density.energies.atomic_parameters",
    "openmm_density.extensions.batch",
    "openmm_density.extensions.series",
    "openmm_density.extensions.crystal_fit",
    "openmm_density.extensions.crystals",
    "openmm_density.extensions.deposition",
    "openmm_density.extensions.distillation",
    "openmm_density.energies",
    "openmm_density.maps",
    "openmm_density.validation",
    "openmm_density.validation.map_checks",
    "openmm_density.models.chemistry.planes",
    "openmm_density.extensions.doctor",
    "openmm_density.fitting",
    "openmm_density.models.merging",
    "openmm_density.models",
    "openmm_density.energies.native_force",
    "openmm_density.extensions.replica_exchange",
    "openmm_density.restraints",
)
# What is measured stands on pages of evidence, and how it is done in detail in how_it_works.
SHORT = sorted(page.stem for page in (DOCS / "guide").glob("*.md"))


def test_names_of_the_reference_are_there():
    assert len(LISTED) > 80
    for name in LISTED:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name


@pytest.mark.parametrize("module", WHOLE)
def test_public_names_are_in_the_reference(module):
    listed = {name.rpartition(".")[2] for name in LISTED}
    public = importlib.import_module(module).__all__
    missing = [name for name in public if name not in listed and not name.isupper()]
    assert not missing, f"add them to docs/reference/api.md: {missing}"


def test_names_that_pages_import_are_in_the_reference():
    code = "\n".join(
        each.text for page in pages() for each in blocks(page) if re.search("py|code-cell", each.language)
    )
    imported = re.findall(r"^from openmm_density\S* import (.+)$", code, re.MULTILINE)
    names = {name for line in imported for name in re.findall(r"\w+", line) if not name.isupper()}
    # What the page of a fit is made of is explained where extensions are; a notebook calls the command.
    assert names - {name.rpartition(".")[2] for name in LISTED} <= {"Section", "Table", "main"}


def test_every_command_is_in_the_reference():
    page = (DOCS / "reference" / "command_line.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\.\. command-reference:: ([\w-]+)$", page, re.MULTILINE)
    assert sorted(listed) == sorted(commands())


def test_some_page_says_what_each_option_of_a_fit_is_for():
    told = "".join(page.read_text(encoding="utf-8") for page in pages())
    missing = [each for each in options(commands()["fit"]) if not re.search(rf"{each}(?![\w-])", told)]
    assert not missing


@pytest.mark.parametrize("name", SHORT)
def test_a_guide_is_read_in_five_minutes(name):
    text = re.sub(r"\]\([^)]*\)", "]", prose(DOCS / "guide" / f"{name}.md"))
    lines = [re.findall(r"\S*\w\S*", line) for line in text.splitlines()]
    numbers = [sum(bool(re.search(r"\d", word)) for word in words) for words in lines]
    of_measurements = sum(len(words) for words, count in zip(lines, numbers) if count >= 5)
    length = sum(map(len, lines))
    assert length <= 900 and max(sum(numbers), of_measurements) <= 0.08 * length


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_pages_are_in_plain_english(page):
    assert not re.findall(
        r"by the clock|in the mean\b|\bas ever\b|(?<![\w.…/])\.\d", re.sub(r"`[^`]+`", "", prose(page))
    )


def test_sources_are_in_plain_english():
    sources = [path for folder in ("openmm_density", "kernels") for path in (PROJECT / folder).rglob("*.py")]
    idioms = re.compile(
        r"by the clock|\bin the mean fit|\bas ever\b|another hand|the wrong hand\b|bears it\b"
    )
    assert [path for path in sources if idioms.search(path.read_text(encoding="utf-8"))] == []
