"""Every path that CONTRIBUTING.md names is there."""

import re

from .conftest import PROJECT

TEXT = (PROJECT / "CONTRIBUTING.md").read_text(encoding="utf-8")
# In backticks, with a slash or the ending of a file; `reference.py` alone is that of any operator.
QUOTED = re.findall(r"`([^`\s]+)`", re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL))
PATHS = [each for each in QUOTED if "/" in each or re.search(r"\.(py|cpp|h|md)$", each)]


def exists(name):
    """Return whether a path is in the project, or, without a folder, in that of an operator."""
    return (PROJECT / name).exists() or (
        "/" not in name and (PROJECT / "kernels" / "density" / name).exists()
    )


def test_every_path_that_it_names_is_there():
    assert len(PATHS) > 30
    missing = [name for name in PATHS if not exists(name)]
    assert not missing, missing


def test_it_is_one_page():
    assert len(TEXT.splitlines()) <= 90
