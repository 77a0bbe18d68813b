"""``openmm-density report``: write the page of an earlier fit."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.plugins import defer_torch
from .arguments import check_files
from .startup import loading

if TYPE_CHECKING:
    from .arguments import Commands


def add_parser(commands: Commands) -> None:
    """Add what ``report`` takes."""
    parser = commands.add_parser(
        "report",
        help="write the page of an earlier fit",
        description="Write report.html, a page that shows the fit whose results are in DIR: the models in their map, plots, "
        "doubts, and how to repeat it. It needs no network. Every fit writes one by itself. Without --output also fitted.cxc and "
        "fitted_coot.py, which open the fit in ChimeraX and Coot.",
    )
    parser.add_argument("folder", metavar="DIR", help="the folder that fit wrote")
    parser.add_argument("--output", metavar="FILE", help="the page (DIR/report.html)")
    parser.add_argument("--model", metavar="MODEL", help="where the model that was fitted is now")
    parser.add_argument("--map", metavar="MAP", help="where the map is now")
    parser.add_argument("--reference", metavar="TARGET", help="where the reference is now")


def run(options: argparse.Namespace) -> int:
    """Write the page; return the exit status."""
    check_files((options.model, options.reference), (options.map,))
    defer_torch()
    with loading():
        from ..report.fit_page import fit_page, read_contents
        from ..report.page import write_page
        from ..report.results import REPORT
        from ..report.viewers import write_viewer_scripts

    folder = Path(options.folder)
    contents = read_contents(folder, options.model, options.map, options.reference)
    path = Path(options.output) if options.output else folder / REPORT
    write_page(path, fit_page(contents))
    if not options.output:
        write_viewer_scripts(folder, contents.summary)
    for sentence in contents.missing:
        print(sentence)
    if contents.missing:
        print("--model, --map and --reference say where files are now")
    print(f"{path}: open it in a browser")
    return 0
