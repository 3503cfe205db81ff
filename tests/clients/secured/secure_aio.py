"""aiokafka's settings for SASL_SSL."""

import os
import ssl
from typing import Any

from aiokafka.abc import AbstractTokenProvider


class _Provider(AbstractTokenProvider):
    async def token(self) -> str:
        return os.environ["SECURED_TOKEN"]


def secure() -> dict[str, Any]:
    mechanism = os.environ["SECURED_MECHANISM"]
    found: dict[str, Any] = {
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=os.environ["SECURED_CA"]),
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return {**found, "sasl_oauth_token_provider": _Provider()}
    return {
        **found,
        "sasl_plain_username": os.environ["SECURED_USER"],
        "sasl_plain_password": os.environ["SECURED_PASSWORD"],
    }
