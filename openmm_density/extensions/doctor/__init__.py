"""What works on this machine and what does not, with a remedy: ``openmm-density doctor``."""

from typing import TYPE_CHECKING

from ...base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .diagnosis import Diagnosis, GpuKernel, Kernel, Probe
    from .display import diagnosis_text
    from .examination import examine

__all__ = ["Diagnosis", "GpuKernel", "Kernel", "Probe", "diagnosis_text", "examine"]

__getattr__, __dir__ = lazy_names(__name__)
