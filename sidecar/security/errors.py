"""Errors of logins. No message has a secret."""

from sidecar.protocol.errors import ErrorCode, KafkaError


class SaslError(Exception):
    """An exchange that cannot go on: a malformed message, an invalid proof, or a server that does not know the
    password.
    """


class LoginError(KafkaError):
    """A broker or a node refuses a login: 58, 33 or 34. `reason` is for logs, and may have more details than the
    client gets.
    """

    def __init__(
        self, message: str, code: int = ErrorCode.SASL_AUTHENTICATION_FAILED, reason: str | None = None
    ) -> None:
        super().__init__(code, message)
        self.reason = reason or message


class TokenError(Exception):
    """There is no token to log in with. `message` names the token server, and no secret."""
