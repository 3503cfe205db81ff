"""Cases of the calls about logins and rules."""

from __future__ import annotations

from kio.schema.describe_acls.v2 import request as acls_request
from kio.schema.describe_acls.v2 import response as acls_response
from kio.schema.errors import ErrorCode as KioError
from kio.schema.sasl_authenticate.v2 import request as authenticate_request
from kio.schema.sasl_authenticate.v2 import response as authenticate_response
from kio.schema.sasl_handshake.v1 import request as handshake_request
from kio.schema.sasl_handshake.v1 import response as handshake_response

from sidecar.protocol.calls.security import (
    AclBinding,
    Authenticated,
    DescribeAcls,
    DescribedAcls,
    OfferedMechanisms,
    SaslAuthenticate,
    SaslHandshake,
)
from tests.unit.protocol.call_case import NO_THROTTLE, SECOND, Case


def handshake_case() -> Case:
    return Case(
        SaslHandshake("PLAIN"),
        handshake_request.SaslHandshakeRequest(mechanism="PLAIN"),
        handshake_response.SaslHandshakeResponse(
            error_code=KioError.unsupported_sasl_mechanism, mechanisms=("SCRAM-SHA-256", "OAUTHBEARER")
        ),
        OfferedMechanisms(33, ("SCRAM-SHA-256", "OAUTHBEARER")),
    )


def authenticate_case() -> Case:
    return Case(
        SaslAuthenticate(b"\0alice\0secret"),
        authenticate_request.SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"),
        authenticate_response.SaslAuthenticateResponse(
            error_code=KioError.none, error_message=None, auth_bytes=b"v=proof", session_lifetime=90 * SECOND
        ),
        Authenticated(0, None, b"v=proof", 90_000),
    )


def describe_acls_case() -> Case:
    described = acls_response.AclDescription
    return Case(
        DescribeAcls(),
        acls_request.DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        ),
        acls_response.DescribeAclsResponse(
            throttle_time=NO_THROTTLE,
            error_code=KioError.none,
            error_message=None,
            resources=(
                acls_response.DescribeAclsResource(
                    resource_type=2,
                    resource_name="orders",
                    pattern_type=4,
                    acls=(
                        described(principal="User:alice", host="*", operation=3, permission_type=3),
                        described(principal="User:*", host="10.0.0.1", operation=2, permission_type=2),
                    ),
                ),
            ),
        ),
        DescribedAcls(
            0,
            None,
            (
                AclBinding(2, "orders", 4, "User:alice", "*", 3, 3),
                AclBinding(2, "orders", 4, "User:*", "10.0.0.1", 2, 2),
            ),
        ),
    )
