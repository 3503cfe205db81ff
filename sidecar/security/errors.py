"""What goes wrong with logins. No message holds a secret."""

from sidecar.protocol.errors import ErrorCode, KafkaError


class SaslError(Exception):
    """An exchange that cannot go on: a malformed message, a proof that is none, a server that does not know the
    password.
    """


class LoginError(KafkaError):
    """A broker, or a node, does not let somebody in: 58, 33 or 34. `reason` is for a log, and may say more than what
    a client gets.
    """

    def __init__(
        self, message: str, code: int = ErrorCode.SASL_AUTHENTICATION_FAILED, reason: str | None = None
    ) -> None:
        super().__init__(code, message)
        self.reason = reason or message


class TokenError(Exception):
    """There is no token to log in with. `message` names the server that was asked, and no secret."""
