"""The old name of `openmm_density.kernels.compilation`."""

import sys
import warnings

from . import compilation

warnings.warn(
    "openmm_density.kernels.build is now openmm_density.kernels.compilation: import that",
    DeprecationWarning,
    stacklevel=2,
)
sys.modules[__name__] = compilation
