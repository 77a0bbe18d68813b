"""Let ``python -m openmm_density.cli`` do what ``openmm-density`` does."""

import sys

from . import main

sys.exit(main())
