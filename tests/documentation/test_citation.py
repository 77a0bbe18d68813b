"""The citation and the changelog are of the package's version; ``make docs`` validates CITATION.cff against its schema."""

import re

from openmm_density import __version__

from ..conftest import PROJECT

CITATION = (PROJECT / "CITATION.cff").read_text(encoding="utf-8")


def cited(key):
    """Return the value of a key on the outermost level, in one line."""
    return re.search(rf"^{key}: (.+)$", CITATION, re.MULTILINE)[1].strip('"')


def test_it_names_this_version_and_what_a_citation_needs():
    assert cited("cff-version") == "1.2.0" and cited("type") == "software"
    assert cited("version") == __version__
    assert cited("license") == "MIT"
    assert "openmm-density" in cited("title") and cited("message")
    assert re.search(r"^authors:\n  - name: \w+", CITATION, re.MULTILINE)


def test_the_changelog_begins_with_this_version():
    changelog = (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## (\S+?)(,|$)", changelog, re.MULTILINE)[1] == __version__
