"""The one table of all that the service answers."""

from __future__ import annotations

from operator import attrgetter

from tacit.service.api import control, decisions, lift, lists, local, site
from tacit.service.http.problems import REFUSALS
from tacit.service.http.route import Api, Found
from tacit.service.ofrep.routes import OFREP
from tacit.service.personalizer.routes import PERSONALIZER
from tacit.service.ubi import routes as ubi

PLACEMENTS = Api(
    "/v1/placements/{name}/",
    "/v1/placements/(?P<name>[^/]+)/",
    (*decisions.ROUTES, *lists.ROUTES, *lift.ROUTES, *control.ROUTES, *local.ROUTES, *ubi.ROUTES),
    REFUSALS,
    attrgetter("engine"),
)
SITE = Api("", "", site.ROUTES, REFUSALS, lambda site: site)
APIS = PLACEMENTS, SITE, PERSONALIZER, OFREP


def find(address: str) -> Found:
    """Return what an address names, known or not.

    Examples
    --------
    >>> found = find("/v1/placements/home/decide")
    >>> found.path.template, found.name
    ('/v1/placements/{name}/decide', 'home')
    >>> find("/personalizer/v1.0/events/a/b/reward").id
    'a/b'
    >>> find("/favicon.ico").path.label
    'other'
    """
    for api in APIS:
        found = api.find(address)
        if found is not None:
            return found
    return Found(SITE.unknown)
