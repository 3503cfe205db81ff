"""kafka-python's settings for SASL_SSL."""

import os
from typing import Any

from kafka.net.sasl.oauth import AbstractTokenProvider


class _Provider(AbstractTokenProvider):
    def token(self) -> str:
        return os.environ["SECURED_TOKEN"]


def secure() -> dict[str, Any]:
    mechanism = os.environ["SECURED_MECHANISM"]
    found: dict[str, Any] = {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": os.environ["SECURED_CA"],
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return {**found, "sasl_oauth_token_provider": _Provider()}
    return {
        **found,
        "sasl_plain_username": os.environ["SECURED_USER"],
        "sasl_plain_password": os.environ["SECURED_PASSWORD"],
    }
