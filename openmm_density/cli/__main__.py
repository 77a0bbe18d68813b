"""Let ``python -m openmm_density.cli`` do what ``openmm-density`` does."""

from . import program

program()
