"""What a fit leaves behind: models, log, summary with notes and doubts, and pictures."""

from typing import TYPE_CHECKING

from ...base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .folder import OutputFolder
    from .results import AFTER_FILES, FILES, FITTED_REFERENCE, UNFINISHED

__all__ = ["AFTER_FILES", "FILES", "FITTED_REFERENCE", "UNFINISHED", "OutputFolder"]

__getattr__, __dir__ = lazy_names(__name__)
