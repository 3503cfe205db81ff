"""What is wrong with settings together: each misfit names the setting that is missing, or of no use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from sidecar.settings.listeners import PREFIX, ListenerSettings, key_of, own_of, own_setting
from sidecar.settings.loaded import full_name
from sidecar.settings.values import Settings


class Misfit(NamedTuple):
    """A setting, by its field's name, that does not fit to others, and what to do."""

    setting: str
    advice: str


def misfits(settings: Settings, origins: Mapping[str, str]) -> Iterator[Misfit]:
    """All of them. `origins`: of the settings that were given."""
    yield from _short_form(settings, origins)
    yield from _of_admin_port(settings)
    yield from _of_listeners(settings)
    yield from _of_brokers(settings)


def _useless(where: Settings | ListenerSettings, why: str, *names: str) -> Iterator[Misfit]:
    """Those that are set."""
    for name in names:
        if getattr(where, name) is not None:
            yield Misfit(name, f"is of no use{why}")


def _missing(where: Settings | ListenerSettings, why: str, *names: str) -> Iterator[Misfit]:
    """Those that are not set."""
    for name in names:
        if getattr(where, name) is None:
            yield Misfit(name, f"is missing: {why}")


def _of_admin_port(settings: Settings) -> Iterator[Misfit]:
    if settings.admin_ssl_certificate is None:
        why = " without SIDECAR_ADMIN_SSL_CERTIFICATE: the admin port has no TLS"
        yield from _useless(settings, why, "admin_ssl_key", "admin_ssl_ca")
    if settings.admin_client_ssl_key is not None:
        yield from _missing(settings, "SIDECAR_ADMIN_CLIENT_SSL_KEY is the key of one", "admin_client_ssl_certificate")
    if settings.admin_token is not None and settings.admin_token == settings.admin_read_token:
        yield Misfit(
            "admin_read_token", "is the same as SIDECAR_ADMIN_TOKEN: who may read could then operate. Take another"
        )


_TLS: Final = ("ssl_certificate", "ssl_key", "ssl_key_password", "ssl_ca")
_OF: Final = {"file": ("sasl_users_file",), "jwks": ("sasl_jwks_url", "sasl_audience", "sasl_issuer")}
_SHORT: Final = ("listen", "advertise", "security_protocol")
_LONG: Final = ("advertised_listeners", "listener_security_protocol_map")


def _short_form(settings: Settings, origins: Mapping[str, str]) -> Iterator[Misfit]:
    """Settings of one listener beside those of several, and settings of listeners that there are not."""
    if settings.listeners:
        for name in filter(origins.__contains__, _SHORT):
            yield Misfit(name, "is of no use: SIDECAR_LISTENERS says it for each listener")
    else:
        for name in _LONG:
            if getattr(settings, name):
                yield Misfit(name, "is of no use: SIDECAR_LISTENERS is not set")
    keys = {key_of(each.name) for each in settings.listeners}
    for name in settings.listener_settings:
        listener = (own_setting(name) or ("", ""))[0]
        if listener not in keys:
            known = ", ".join(each.name for each in settings.listeners) or "none"
            yield Misfit(name, f"is of no use: SIDECAR_LISTENERS has no listener {listener.upper()}, but {known}")


def _of_listeners(settings: Settings) -> Iterator[Misfit]:
    """What does not fit together, each once: it names the setting that is missing, or of no use.

    A setting of all listeners is of no use only where it is for each of them.
    """
    found: dict[Misfit, None] = {}
    everywhere: dict[str, list[Misfit]] = {}
    all_listeners = settings.all_listeners
    for each in all_listeners:
        own = own_of(each.name, settings.listener_settings)
        beginning = (
            f"listener {each.name} is {each.security_protocol}"
            if settings.listeners
            else f"SIDECAR_SECURITY_PROTOCOL is {each.security_protocol}"
        )
        of_it = {name: f"{PREFIX}{key_of(each.name)}_{name}" for name in own}
        at = f" at listener {each.name}" if settings.listeners else ""
        for name, advice in _needed(each, beginning, at, settings.kafka_security_protocol, of_it):
            found[Misfit(of_it.get(name, name), advice)] = None
        for useless in (*_useless_tls(each, beginning, of_it), *_useless_login(each, beginning, of_it)):
            if useless.setting in own:
                found[useless._replace(setting=of_it[useless.setting])] = None
            else:
                everywhere.setdefault(useless.setting, []).append(useless)
    yield from found
    for useless in everywhere.values():
        if len(useless) == len(all_listeners) and useless[0] not in found:
            yield useless[0]


def _useless_tls(listener: ListenerSettings, beginning: str, of_it: Mapping[str, str]) -> Iterator[Misfit]:
    if not listener.security_protocol.endswith("SSL"):
        yield from _useless(listener, f": {beginning}, without TLS", *_TLS)
        if listener.ssl_client_auth != "none":
            yield Misfit("ssl_client_auth", f"takes TLS: {beginning}")
    elif listener.ssl_client_auth == "none":
        name = full_name(of_it.get("ssl_client_auth", "ssl_client_auth"))
        yield from _useless(listener, f": {name} is none, so clients are asked for no certificate", "ssl_ca")


def _useless_login(listener: ListenerSettings, beginning: str, of_it: Mapping[str, str]) -> Iterator[Misfit]:
    how = listener.sasl_authentication
    if not listener.security_protocol.startswith("SASL_"):
        if how != "relay":
            yield Misfit("sasl_authentication", f"takes a login: {beginning}")
        yield from _useless(listener, f": {beginning}, without a login", "sasl_mechanisms", *_OF["file"], *_OF["jwks"])
        return
    by = full_name(of_it.get("sasl_authentication", "sasl_authentication"))
    for other, names in _OF.items():
        if other != how:
            yield from _useless(listener, f": {by} is {how}", *names)


def _needed(
    listener: ListenerSettings, beginning: str, at: str, towards_kafka: str, of_it: Mapping[str, str]
) -> Iterator[Misfit]:
    """Settings that this listener needs and that nobody made."""
    if listener.security_protocol.endswith("SSL"):
        yield from _missing(listener, beginning, "ssl_certificate")
        if listener.ssl_client_auth != "none":
            yield from _missing(listener, f"clients' certificates{at} are checked against it", "ssl_ca")
    how = listener.sasl_authentication
    if not listener.security_protocol.startswith("SASL_"):
        return
    if how == "relay" and not towards_kafka.startswith("SASL_"):
        advice = "needs brokers that take logins: SIDECAR_KAFKA_SECURITY_PROTOCOL is "
        yield Misfit("sasl_authentication", f"relay{at} {advice}{towards_kafka}. Else take file or jwks")
    by = full_name(of_it.get("sasl_authentication", "sasl_authentication"))
    yield from _missing(listener, f"{by} is {how}", *_OF.get(how, ())[:1])


def _of_brokers(settings: Settings) -> Iterator[Misfit]:
    protocol = settings.kafka_security_protocol
    why = f": SIDECAR_KAFKA_SECURITY_PROTOCOL is {protocol}. "
    if protocol.startswith("SASL_"):
        yield from _of_login(settings)
    else:
        yield from _useless(settings, f"{why}SASL_SSL has a login", *_KAFKA_LOGIN)
    if not protocol.endswith("SSL"):
        yield from _useless(settings, f"{why}SSL and SASL_SSL have TLS", *_KAFKA_TLS)
    if settings.kafka_delegation_tokens is not None and not settings.enforces_acls:
        yield Misfit(
            "kafka_delegation_tokens",
            "needs clients that authenticate, and SIDECAR_AUTHORIZER kafka: some of their requests stay this node's",
        )
    if settings.kafka_ssl_key is not None:
        yield from _missing(settings, "SIDECAR_KAFKA_SSL_KEY is the key of one", "kafka_ssl_certificate")


_KAFKA_TLS: Final = ("kafka_ssl_ca", "kafka_ssl_certificate", "kafka_ssl_key", "kafka_ssl_key_password")
_KAFKA_LOGIN: Final = (
    *("kafka_sasl_username", "kafka_sasl_password", "kafka_sasl_password_file"),
    *("kafka_sasl_token_url", "kafka_sasl_client_id", "kafka_sasl_client_secret", "kafka_sasl_scope"),
    *("kafka_sasl_token_provider", "kafka_sasl_mechanism", "kafka_delegation_tokens"),
)


def _of_login(settings: Settings) -> Iterator[Misfit]:
    mechanism = settings.kafka_sasl_mechanism
    if mechanism is None:
        yield from _missing(settings, "it says how this node logs in at brokers", "kafka_sasl_mechanism")
    elif mechanism != "OAUTHBEARER":
        yield from _missing(settings, f"{mechanism} takes a name and a password", "kafka_sasl_username")
        if settings.kafka_sasl_password_file is None:
            why = f"{mechanism} takes it, or SIDECAR_KAFKA_SASL_PASSWORD_FILE"
            yield from _missing(settings, why, "kafka_sasl_password")
        elif settings.kafka_sasl_password is not None:
            advice = "is the second password: take this or SIDECAR_KAFKA_SASL_PASSWORD out"
            yield Misfit("kafka_sasl_password_file", advice)
    elif settings.kafka_sasl_token_provider is None:
        asked = ("kafka_sasl_token_url", "kafka_sasl_client_id", "kafka_sasl_client_secret")
        why = "OAUTHBEARER asks a token endpoint, or SIDECAR_KAFKA_SASL_TOKEN_PROVIDER"
        yield from _missing(settings, why, *asked)
