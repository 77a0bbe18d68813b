"""Put the examples into the folder that a notebook of the documentation runs in, which is empty."""

import os
import pathlib

if not pathlib.Path("examples").exists():
    pathlib.Path("examples").symlink_to(pathlib.Path(os.environ["OPENMM_DENSITY_PROJECT"], "examples"))
