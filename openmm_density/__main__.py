"""Let ``python -m openmm_density`` do what ``openmm-density`` does."""

from .cli import program

program()
