"""Click models: simulate users, and fit models to a click log."""

from tacit.clicks.base import ClickModel as ClickModel
from tacit.clicks.base import Fit as Fit
from tacit.clicks.base import Sessions as Sessions
from tacit.clicks.base import perplexity as perplexity
from tacit.clicks.base import read_sessions as read_sessions
from tacit.clicks.models import Cascade as Cascade
from tacit.clicks.models import DependentClick as DependentClick
from tacit.clicks.models import DynamicBayesian as DynamicBayesian
from tacit.clicks.models import PositionBased as PositionBased
from tacit.clicks.models import informational as informational
from tacit.clicks.models import navigational as navigational
from tacit.clicks.models import perfect as perfect
from tacit.core.dispatch import public_names as _public

# Set where no tool reads it: type checkers and the reference go by the imports above.
globals()["__all__"] = _public(globals())
