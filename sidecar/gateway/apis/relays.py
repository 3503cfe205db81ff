"""Relays requests of APIs without a handler of their own to the broker that their route names.

Request and answer pass unchanged where nothing in them has to be looked at: no answer of such an API names a broker.
"""

from functools import partial

from sidecar.gateway import asking
from sidecar.gateway.apis.spec import ApiSpec, Route, Services
from sidecar.gateway.client import ColdApi
from sidecar.gateway.coordinators import Keyed, KeyedApi
from sidecar.gateway.groups import OneKey, OneKeyApi
from sidecar.gateway.merged import Listed
from sidecar.gateway.shadow_rules import ShadowRule
from sidecar.gateway.topics import Change, TopicsApi
from sidecar.protocol.caller import CoordinatorKind

_NOT_LOOKED_AT = frozenset({ShadowRule.OWN, ShadowRule.UNNAMED})


def relayed(row: ApiSpec, services: Services) -> ColdApi:
    """The relay of an API. Raises `TypeError` if there is none for its route, or none that keeps its rule for shadows:
    then the API needs a handler of its own.
    """
    upstream, resolver, coordinators = services.upstream, services.resolver, services.coordinators
    is_transaction = row.route in (Route.TRANSACTION, Route.TRANSACTIONS)
    kind = CoordinatorKind.TRANSACTION if is_transaction else CoordinatorKind.GROUP
    match row.route, row.form:
        case Route.CONTROLLER, Change() as change:
            return TopicsApi(upstream, resolver, row.message, row.shadow, change).handle
        case ((Route.GROUP | Route.TRANSACTION), OneKey(divide=divide) as form) if divide is not None:
            return OneKeyApi(
                upstream, coordinators, services.guards, resolver, row.message, kind, row.shadow, form
            ).handle
        case _ if row.shadow not in _NOT_LOOKED_AT:
            pass
        case Route.ANY, None:
            return partial(asking.pass_to_any, upstream)
        case Route.CONTROLLER, None:
            return partial(asking.pass_to_controller, upstream)
        case ((Route.GROUP | Route.TRANSACTION), OneKey() as form):
            return OneKeyApi(
                upstream, coordinators, services.guards, resolver, row.message, kind, row.shadow, form
            ).handle
        case ((Route.GROUPS | Route.TRANSACTIONS), Keyed() as form):
            return KeyedApi(coordinators, resolver, services.claims, row.message, kind, form).handle
        case Route.ALL_BROKERS, Listed() as form:
            return partial(services.merged.handle_list, row.message, form)
        case _:
            pass
    raise TypeError(f"{row.name}: nothing relays it by {row.route.name} with shadows {row.shadow.name}")
