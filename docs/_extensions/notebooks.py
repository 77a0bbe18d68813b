"""Tutorials to download: each page of cells as a notebook, and beside them an archive of what they need.

Outside a clone the first cell unpacks the archive and installs the package from it, with all that is missing; pip keeps a torch
that is there, as on Colab, and with a GPU OpenMM's CUDA platform for it is installed as well.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from myst_nb.core.read import read_myst_markdown_notebook
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.osutil import relative_uri

ARCHIVE = "openmm-density.zip"
# What the package is built from, and the models, maps and figures that tutorials read.
NEEDED = (
    "LICENSE",
    "README.md",
    "pyproject.toml",
    "setup.py",
    "kernels",
    "openmm_density",
    "docs/evidence/figures",
    "examples/data",
    "tests/data/emd6187_kinesin",
    "tests/data/qr_6i5a",
)
SET_UP = f"""\
# In a clone this cell does nothing. Elsewhere, as on Colab, upload {ARCHIVE} first: its link is beside the one of this notebook.
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile

if not os.path.exists("examples/data"):
    zipfile.ZipFile("{ARCHIVE}").extractall("openmm-density")
    os.chdir("openmm-density")
if importlib.util.find_spec("openmm_density") is None:
    wanted = ["."]
    if shutil.which("nvidia-smi") and importlib.util.find_spec("torch"):
        import torch

        if torch.version.cuda:
            wanted = [".[gpu]", f"openmm[cuda{{torch.version.cuda.partition('.')[0]}}]"]
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *wanted], check=True)"""


def is_notebook(page: Path) -> bool:
    """Return whether a page has cells that run."""
    return page.suffix == ".md" and page.read_text(encoding="utf-8").startswith("---\nfile_format: mystnb\n")


def spread(app: Sphinx, env: BuildEnvironment, names: list[str]) -> None:
    """Spread notebooks evenly among all pages: each process reads consecutive pages, and runs the notebooks among them."""
    names.sort(key=lambda name: not is_notebook(Path(env.doc2path(name))))
    distance = sum(is_notebook(Path(env.doc2path(name))) for name in names) or 1
    names[:] = [name for first in range(distance) for name in names[first::distance]]


def notebook(text: str) -> nbformat.NotebookNode:
    """Return a page of cells as a notebook that begins with what installs the package where it is not."""
    made = read_myst_markdown_notebook(text)
    made.cells.insert(1, nbformat.v4.new_code_cell(SET_UP, id="set-up"))
    return made


def write(app: Sphinx, exception: Exception | None) -> None:
    """Write notebooks and archive into the finished site."""
    if exception is not None or app.builder.name != "html":
        return
    for name in app.env.found_docs:
        page = Path(app.env.doc2path(name))
        if is_notebook(page):
            nbformat.write(notebook(page.read_text(encoding="utf-8")), Path(app.outdir, f"{name}.ipynb"))
    project = Path(app.srcdir).parent
    with zipfile.ZipFile(Path(app.outdir, ARCHIVE), "w", zipfile.ZIP_DEFLATED) as archive:
        for root in (project / name for name in NEEDED):
            for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
                if path.is_file() and "__pycache__" not in path.parts:
                    archive.write(path, path.relative_to(project))


def link(
    app: Sphinx, name: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Put the links below the title of a page of cells."""
    if doctree is None or not is_notebook(Path(app.env.doc2path(name))):
        return
    archive = relative_uri(app.builder.get_target_uri(name), ARCHIVE)
    links = (
        f'<p class="downloads"><a download href="{Path(name).name}.ipynb">Download as a notebook</a>; '
        f'outside a clone, as on Colab, with <a download href="{archive}">{ARCHIVE}</a></p>'
    )
    context["body"] = context["body"].replace("</h1>", f"</h1>\n{links}", 1)


def setup(app: Sphinx) -> dict[str, bool]:
    """Take part in making pages, and act when the site is there."""
    app.connect("env-before-read-docs", spread)
    app.connect("html-page-context", link)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
