"""Put examples, small real maps and stored figures into the folder that a notebook of the documentation runs in."""

import os
import pathlib

for name in ("docs", "examples", "tests"):
    if not pathlib.Path(name).exists():
        pathlib.Path(name).symlink_to(pathlib.Path(os.environ["OPENMM_DENSITY_PROJECT"], name))
