"""What a fit leaves behind: models, log, summary with notes and doubts, pictures; and pages that show models in their maps."""

from typing import TYPE_CHECKING

from ..base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .folder import OutputFolder
    from .page import write_page
    from .results import AFTER_FILES, FILES, FITTED_REFERENCE, UNFINISHED
    from .shown_model import ShownModel

__all__ = [
    "AFTER_FILES",
    "FILES",
    "FITTED_REFERENCE",
    "UNFINISHED",
    "OutputFolder",
    "ShownModel",
    "write_page",
]

__getattr__, __dir__ = lazy_names(__name__)
