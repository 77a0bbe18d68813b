"""``python -m openmm_density.extensions.doctor``: try forces or kernels, print each finding as a line of JSON."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from .probes import probe, probe_gpu


def _main() -> None:
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--probe", nargs="+", metavar=("PLATFORM", "BACKEND"))
    which.add_argument("--probe-gpu", action="store_true")
    options = parser.parse_args()
    if options.probe_gpu:
        for kernel in probe_gpu():
            print("\n" + json.dumps(asdict(kernel)), flush=True)
        return
    name, *backends = options.probe
    for backend in backends:
        # A line of its own: drivers print to standard output too.
        print("\n" + json.dumps(probe(backend, name)), flush=True)


_main()
