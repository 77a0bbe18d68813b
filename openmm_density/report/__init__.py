"""``report.html``: a fit, or a model alone, in one page that shows the model in its map, and needs no network."""

from typing import TYPE_CHECKING

from ..base.lazy_names import lazy_names

if TYPE_CHECKING:
    from .page import write_page
    from .shown_model import ShownModel

__all__ = ["ShownModel", "write_page"]

__getattr__, __dir__ = lazy_names(__name__)
