"""What fits of large models take: seconds by part, and memory of the fit and of the processes beside it.

A block of adenylate kinases, open, is fitted into the simulated map of the same block, closed. Memory is what the system
counts as each process's own, with its share of what several have (PSS), looked at twice a second.

    python examples/benchmarks/large_models.py --copies 2 3 2 --steps 1000
    python examples/benchmarks/large_models.py --copies 5 5 2 --steps 5000 --platform CUDA --json large.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from itertools import product
from pathlib import Path

import gemmi

from openmm_density.base.atomic_files import write_text

MODELS = Path(__file__).resolve().parents[1] / "data"
SPACING = 75.0
"""Å from one copy to the next."""
RESOLUTION = 4.0


def main() -> None:
    """Make the block, fit it, and print what that took."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for conformation in ("open", "closed"):
            write_block(conformation, arguments.copies, folder / f"{conformation}.cif")
        command = [sys.executable, "-m", "openmm_density"]
        resolution = ["--resolution", f"{RESOLUTION:g}"]
        target = [str(folder / "closed.cif"), "--voxel-size", "1.2", "--output", str(folder / "map.mrc")]
        subprocess.run([*command, "simulate", *target, *resolution], check=True)
        given = [
            str(folder / "open.cif"),
            str(folder / "map.mrc"),
            *resolution,
            "--output",
            str(folder / "fit"),
        ]
        how = ["--protocol", "quick", "--search", "off", "--steps", str(arguments.steps)]
        how += ["--platform", arguments.platform]
        begun = time.monotonic()
        fit = subprocess.Popen([*command, "fit", *given, *how])
        memory = watched(fit)
        if fit.returncode:
            raise SystemExit(f"the fit ended with status {fit.returncode}")
        summary = json.loads((folder / "fit" / "summary.json").read_text(encoding="utf-8"))
    told = {
        "atoms": summary["n_atoms"],
        "seconds": time.monotonic() - begun,
        "parts": summary["seconds_by_part"],
        "megabytes": memory,
        "cc": [summary["cc_initial"], summary["cc_final"]],
    }
    print(json.dumps(told, indent=2))
    if arguments.json:
        write_text(arguments.json, json.dumps(told, indent=2) + "\n")


def write_block(conformation: str, copies: list[int], path: Path) -> None:
    """Write a block of copies of adenylate kinase, each a chain of its own."""
    given = gemmi.read_structure(str(MODELS / f"adk_{conformation}.pdb"))
    block, model = gemmi.Structure(), gemmi.Model(1)
    for number, place in enumerate(product(*map(range, copies)), start=1):
        for chain in given[0]:
            copy = chain.clone()
            copy.name = f"{chain.name}{number}"
            for residue in copy:
                for atom in residue:
                    atom.pos += gemmi.Position(*(SPACING * step for step in place))
            model.add_chain(copy)
    block.add_model(model)
    block.setup_entities()
    block.assign_label_seq_id()
    block.make_mmcif_document().write_file(str(path))


def watched(process: subprocess.Popen[bytes]) -> dict[str, float]:
    """Wait for a process; return the most memory in MB that it had, and that all had that it started, it among them."""
    most = {"main": 0.0, "all": 0.0}
    while process.poll() is None:
        sizes = [_megabytes(number) for number in _below(process.pid)]
        most["main"], most["all"] = max(most["main"], sizes[0]), max(most["all"], sum(sizes))
        time.sleep(0.5)
    return most


def _below(number: int) -> list[int]:
    found = [number]
    with suppress(OSError):  # it has ended
        for thread in Path(f"/proc/{number}/task").iterdir():
            for child in (thread / "children").read_text().split():
                found += _below(int(child))
    return found


def _megabytes(number: int) -> float:
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{number}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1000
    return 0.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--copies", type=int, nargs=3, default=[2, 3, 2], metavar="N", help="along x, y and z"
    )
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--platform", default="CPU")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
