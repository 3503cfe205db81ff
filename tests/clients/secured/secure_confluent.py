"""librdkafka's settings for SASL_SSL."""

import os
import time
from typing import Any


def secure() -> dict[str, Any]:
    mechanism = os.environ["SECURED_MECHANISM"]
    found: dict[str, Any] = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": os.environ["SECURED_CA"],
        "sasl.mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return {**found, "oauth_cb": lambda _: (os.environ["SECURED_TOKEN"], time.time() + 600)}
    return {
        **found,
        "sasl.username": os.environ["SECURED_USER"],
        "sasl.password": os.environ["SECURED_PASSWORD"],
    }
