"""Scripts that open a fit in the programs that models are looked at with: ``fitted.cxc`` and ``fitted_coot.py``."""

from typing import TYPE_CHECKING

from ...base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .scene import Scene, read_scene
    from .scripts import write_viewer_scripts
    from .shown_files import write_shown_files

__all__ = ["Scene", "read_scene", "write_shown_files", "write_viewer_scripts"]

__getattr__, __dir__ = lazy_names(__name__)
