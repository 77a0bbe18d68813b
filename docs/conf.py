"""How the documentation is made: ``make docs`` builds it into ``docs/_build/html``."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS / "_extensions"))
# Notebooks run in an empty folder that holds the examples, so that their paths are those of the README.
os.environ["IPYTHONDIR"] = str(DOCS / "_ipython")
os.environ["OPENMM_DENSITY_PROJECT"] = str(DOCS.parent)
# As many run at once as there are cores, and so each on one.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENMM_CPU_THREADS": "1"}

project = "openmm-density"
author = "the developers of openmm-density"
project_copyright = "2026, the developers of openmm-density"
release = installed_version("openmm-density")
version = release

extensions = [
    "command_reference",
    "myst_nb",
    "navigation",
    "notebooks",
    "numpydoc",
    "public_names",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx-mathjax-offline",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_ipython"]
suppress_warnings = ["mystnb.unknown_mime_type"]

# Names of other projects are not looked up, as the build needs no network; ours must all be found.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!openmm_density\b).*")]
default_role = "py:obj"
highlight_language = "text"

autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"
numpydoc_show_class_members = False

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

nb_execution_mode = "cache"
nb_execution_cache_path = str(DOCS / "_build" / "notebooks")
nb_execution_in_temp = True
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_merge_streams = True

html_theme = "furo"
html_title = "openmm-density"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_theme_options = {"navigation_with_keys": True}
copybutton_prompt_text = "$ "


def setup(app: Sphinx) -> None:
    """Let pages be read in several processes: the one extension that does not say whether it can be only names a file."""
    app.extensions["sphinx-mathjax-offline"].parallel_read_safe = True
