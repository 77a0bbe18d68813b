"""``openmm-density doctor``: examine the installation."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from ...base.progress import console_for_results, shown_line

if TYPE_CHECKING:
    from ...cli.arguments import Commands


def add_parser(commands: Commands) -> None:
    """Add what ``doctor`` takes."""
    parser = commands.add_parser(
        "doctor",
        help="examine this installation",
        description="Print versions, which backends and platforms run, the compiler and the kernels, each with a remedy.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Print the diagnosis; return the exit status: 1 where something does not work."""
    with shown_line("loading torch and OpenMM") as told:
        from .. import doctor

        diagnosis = doctor.examine(progress=lambda doing: told(doing or "almost done"))
    if options.json:
        print(json.dumps(diagnosis.as_dict(), indent=2))
    else:
        console_for_results().print(doctor.diagnosis_text(diagnosis))
    return 0 if diagnosis.ok else 1
