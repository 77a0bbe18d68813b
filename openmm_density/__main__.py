"""Let ``python -m openmm_density`` do what ``openmm-density`` does."""

import sys

from .cli import main

sys.exit(main())
