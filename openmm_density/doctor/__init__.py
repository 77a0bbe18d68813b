"""What works on this machine and what does not, with a remedy: ``openmm-density doctor``."""

from .diagnosis import Diagnosis, GpuKernel, Kernel, Probe
from .display import report
from .examination import examine

__all__ = ["Diagnosis", "GpuKernel", "Kernel", "Probe", "examine", "report"]
