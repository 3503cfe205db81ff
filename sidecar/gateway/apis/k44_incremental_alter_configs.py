"""IncrementalAlterConfigs (0-1): to the controller, without what is refused here (KIP-339, `configs`)."""

from sidecar.gateway.access.asked import Asked, Operation
from sidecar.gateway.access.topics import configs
from sidecar.gateway.apis.audited import Audited, codes, settings
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route
from sidecar.gateway.configs import AlteringApi

SPEC = ApiSpec(
    ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), Route.BROKER_CONFIG,
    Asked(configs(Operation.ALTER_CONFIGS, "responses", twice_refused=True)),
    audit=Audited(settings, codes("responses")), for_super_users=True,
    cold=lambda row, of: AlteringApi(of.upstream, of.resolver, row.message, row.shadow).handle,
)  # fmt: skip
