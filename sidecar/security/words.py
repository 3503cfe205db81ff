"""Why a TLS connection failed, in words that name the fault and its side."""

import re
import ssl
from typing import Final

_HOST: Final = frozenset({62, 64})
"""X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH."""
_WANTS_CERTIFICATE: Final = re.compile(r"ALERT_(\w*CERTIFICATE\w*|UNKNOWN_CA)$")


def in_words(error: Exception) -> str:
    """An error of TLS, or of a connection that ended during its handshake; others as they are."""
    if isinstance(error, ssl.SSLCertVerificationError):
        whose = "for another host" if error.verify_code in _HOST else "not trusted"
        return f"its certificate is {whose}: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        if _WANTS_CERTIFICATE.search(reason):
            return f"it does not accept the certificate shown to it, or wants one: {reason}"
        if reason in ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING"):
            return _NO_TLS
        return f"TLS does not come about: {reason}"
    if isinstance(error, ConnectionResetError):
        return _NO_TLS
    return str(error)


_NO_TLS: Final = "it does not answer in TLS: is this a port without TLS?"
