"""Install the package beside many versions of torch and OpenMM, each in a fresh environment, and print what works as a table.

``python -m tests.versions --folder DIR`` takes the versions below; ``--python 3.12 --torch 2.9 --openmm 8.4`` one combination,
and ``--with acellera-openmmtorch-cpu==1.10`` something more in each. It needs uv, downloads about 3 GB for each version of torch,
which it forgets again before the next one, and takes three minutes for each combination on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ..conftest import PROJECT
from ..fragments import write_fragment

TRIAL = Path(__file__).with_name("trial.py")
PYTHON, TORCH, OPENMM = ("3.11", "3.12"), ("2.8", "2.9", "2.11", "2.15"), ("8.2", "8.4", "8.5", "8.6")
COLUMNS = ("Python", "torch", "openmm", "import", "force on CPU", "error", "S", "CC of a fit", "doctor")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.add_argument(
        "--folder", type=Path, required=True, help="for environments, results and the cache of kernels"
    )
    for name, default in (("python", PYTHON), ("torch", TORCH), ("openmm", OPENMM)):
        parser.add_argument(f"--{name}", nargs="+", default=default, metavar="VERSION", help="(%(default)s)")
    parser.add_argument("--with", dest="extra", nargs="*", default=[], metavar="REQUIREMENT")
    parser.add_argument("--keep", action="store_true", help="keep what was downloaded")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    wheel = built_wheel(options.folder.absolute())
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}", flush=True)
    found = []
    for torch in options.torch:
        for python in options.python:
            for openmm in options.openmm:
                found.append(tried(options.folder.absolute(), wheel, python, torch, openmm, options.extra))
                print(row(found[-1]), flush=True)
                (options.folder / "results.json").write_text(json.dumps(found, indent=1))
        if not options.keep:
            uv("cache", "clean", "torch", "triton")
    good = sum(works(each) for each in found)
    print(f"\n{good} of {len(found)} combinations work")
    return int(good < len(found) or not agree(found))


def agree(found: list[dict]) -> bool:
    """Print how far apart results are, and return whether that is no more than rounding makes of them.

    S of one model is the same to rounding. A fit is chaotic: a difference in the last digit may end in another rotamer.
    """
    same = True
    for name, part, key, tolerance in (("S", "force", "similarity", 1e-6), ("CC of fits", "fit", "cc", 5e-3)):
        values = [each[part][key] for each in found if key in each.get(part, {})]
        if values:
            print(f"{name}: {min(values):.6f} to {max(values):.6f}")
            same &= max(values) - min(values) <= tolerance
    return same


def tried(folder: Path, wheel: Path, python: str, torch: str, openmm: str, extra: list[str]) -> dict:
    """Make an environment, install the package with these versions, and try it; return what was found."""
    environment, work = folder / "environment", folder / "work"
    for each in (environment, work):
        shutil.rmtree(each, ignore_errors=True)
    work.mkdir()
    write_fragment(work / "model.pdb", residues=60)
    wanted = {"python": python, "torch": torch, "openmm": openmm, "extra": extra}
    try:
        uv("venv", "--python", python, str(environment))
        program = str(environment / "bin" / "python")
        pins = [f"torch=={torch}.*" if torch.count(".") < 2 else f"torch=={torch}", f"openmm=={openmm}.*"]
        uv("pip", "install", "--python", program, *pins, *extra, str(wheel))
    except subprocess.CalledProcessError as error:
        return wanted | {"install": {"problem": error.stderr.strip().splitlines()[-1]}}
    log = folder / f"python{python}-torch{torch}-openmm{openmm}.log"
    variables = {
        "OPENMM_DENSITY_CACHE": str(folder / "kernels"),
        "OMP_NUM_THREADS": "1",
        "OPENMM_CPU_THREADS": "1",
    }
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with log.open("w") as errors:
        done = subprocess.run(
            [program, str(TRIAL), str(work)],
            env=clean | variables, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=1800,
        )  # fmt: skip
    if done.returncode:
        return wanted | {"import": {"problem": f"the process ended with status {done.returncode}: see {log}"}}
    return wanted | json.loads(done.stdout.splitlines()[-1])


def works(found: dict) -> bool:
    """Return whether an installation can be imported, adds a force and fits, and the doctor says so."""
    return (
        "cc" in found.get("fit", {})
        and "backend" in found.get("force", {})
        and found["doctor"].get("ok", False)
    )


def row(found: dict) -> str:
    """Return a row of the table."""
    if "install" in found:
        said = [found["install"]["problem"], *[""] * 5]
    else:
        force, fit, doctor = (found.get(name, {}) for name in ("force", "fit", "doctor"))
        verdict = (
            ("works" if doctor.get("ok") else "no force") if "problem" not in doctor else doctor["problem"]
        )
        said = [
            found["import"].get("problem", "yes"),
            force.get("backend") or force.get("problem", "–"),
            f"{force['error']:.0e}" if "error" in force else "–",
            f"{force['similarity']:.6f}" if "similarity" in force else "–",
            f"{fit['cc']:.4f}" if "cc" in fit else fit.get("problem", "–")[-200:],
            verdict,
        ]
    versions = found.get("import", {})
    named = (found["python"], versions.get("torch", found["torch"]), versions.get("openmm", found["openmm"]))
    return f"| {' | '.join([*named, *said])} |"


def built_wheel(folder: Path) -> Path:
    """Build the package of this clone; return its wheel."""
    shutil.rmtree(folder / "wheel", ignore_errors=True)
    uv("build", "--wheel", "--out-dir", str(folder / "wheel"), str(PROJECT))
    shutil.rmtree(PROJECT / "build", ignore_errors=True)
    return next((folder / "wheel").glob("*.whl"))


def uv(*words: str) -> None:
    """Run uv, which keeps what it downloads and links it into environments."""
    program = shutil.which("uv")
    if program is None:
        sys.exit("uv is not installed: pip install uv")
    subprocess.run([program, *words], check=True, capture_output=True, text=True)


if __name__ == "__main__":
    sys.exit(main())
