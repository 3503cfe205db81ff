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


def _of_admin_port(settings: Settings) -> Iterator[Misfit]:
    """What does not fit together: each names the setting that is missing, or of no use."""
    for name in ("admin_ssl_key", "admin_ssl_ca"):
        if getattr(settings, name) is not None and settings.admin_ssl_certificate is None:
            yield Misfit(name, "is of no use without SIDECAR_ADMIN_SSL_CERTIFICATE: the admin port has no TLS")
    if settings.admin_client_ssl_key is not None and settings.admin_client_ssl_certificate is None:
        yield Misfit("admin_client_ssl_certificate", "is missing: SIDECAR_ADMIN_CLIENT_SSL_KEY is the key of one")
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
        for name, advice in _missing(each, beginning, at, settings.kafka_security_protocol, of_it):
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
        for name in _TLS:
            if getattr(listener, name) is not None:
                yield Misfit(name, f"is of no use: {beginning}, without TLS")
        if listener.ssl_client_auth != "none":
            yield Misfit("ssl_client_auth", f"takes TLS: {beginning}")
    elif listener.ssl_client_auth == "none" and listener.ssl_ca is not None:
        name = full_name(of_it.get("ssl_client_auth", "ssl_client_auth"))
        yield Misfit("ssl_ca", f"is of no use: {name} is none, so clients are asked for no certificate")


def _useless_login(listener: ListenerSettings, beginning: str, of_it: Mapping[str, str]) -> Iterator[Misfit]:
    how = listener.sasl_authentication
    if not listener.security_protocol.startswith("SASL_"):
        if how != "relay":
            yield Misfit("sasl_authentication", f"takes a login: {beginning}")
        for name in ("sasl_mechanisms", *_OF["file"], *_OF["jwks"]):
            if getattr(listener, name) is not None:
                yield Misfit(name, f"is of no use: {beginning}, without a login")
        return
    for other, names in _OF.items():
        for name in names:
            if other != how and getattr(listener, name) is not None:
                by = full_name(of_it.get("sasl_authentication", "sasl_authentication"))
                yield Misfit(name, f"is of no use: {by} is {how}")


def _missing(
    listener: ListenerSettings, beginning: str, at: str, towards_kafka: str, of_it: Mapping[str, str]
) -> Iterator[Misfit]:
    """Settings that this listener needs and that nobody made."""
    if listener.security_protocol.endswith("SSL"):
        if listener.ssl_certificate is None:
            yield Misfit("ssl_certificate", f"is missing: {beginning}")
        if listener.ssl_client_auth != "none" and listener.ssl_ca is None:
            yield Misfit("ssl_ca", f"is missing: clients' certificates{at} are checked against it")
    how = listener.sasl_authentication
    if not listener.security_protocol.startswith("SASL_"):
        return
    if how == "relay" and not towards_kafka.startswith("SASL_"):
        advice = "needs brokers that take logins: SIDECAR_KAFKA_SECURITY_PROTOCOL is "
        yield Misfit("sasl_authentication", f"relay{at} {advice}{towards_kafka}. Else take file or jwks")
    for name in _OF.get(how, ())[:1]:
        if getattr(listener, name) is None:
            by = full_name(of_it.get("sasl_authentication", "sasl_authentication"))
            yield Misfit(name, f"is missing: {by} is {how}")


def _of_brokers(settings: Settings) -> Iterator[Misfit]:
    """What does not fit together: each names the setting that is missing, or of no use."""
    protocol = settings.kafka_security_protocol

    def is_set(name: str) -> bool:
        return getattr(settings, name) is not None

    if protocol.startswith("SASL_"):
        yield from _of_login(settings)
    else:
        for name in filter(is_set, (*_PASSWORD, *_TOKEN, "kafka_sasl_mechanism", "kafka_delegation_tokens")):
            yield Misfit(name, f"is of no use: SIDECAR_KAFKA_SECURITY_PROTOCOL is {protocol}. SASL_SSL has a login")
    if not protocol.endswith("SSL"):
        for name in filter(is_set, _KAFKA_TLS):
            advice = f"is of no use: SIDECAR_KAFKA_SECURITY_PROTOCOL is {protocol}. SSL and SASL_SSL have TLS"
            yield Misfit(name, advice)
    if is_set("kafka_delegation_tokens") and not settings.enforces_acls:
        yield Misfit(
            "kafka_delegation_tokens",
            "needs clients that authenticate, and SIDECAR_AUTHORIZER kafka: some of their requests stay this node's",
        )
    if is_set("kafka_ssl_key") and not is_set("kafka_ssl_certificate"):
        yield Misfit("kafka_ssl_certificate", "is missing: SIDECAR_KAFKA_SSL_KEY is the key of one")


_KAFKA_TLS: Final = ("kafka_ssl_ca", "kafka_ssl_certificate", "kafka_ssl_key", "kafka_ssl_key_password")
_PASSWORD: Final = ("kafka_sasl_username", "kafka_sasl_password", "kafka_sasl_password_file")
_TOKEN: Final = (
    "kafka_sasl_token_url",
    "kafka_sasl_client_id",
    "kafka_sasl_client_secret",
    "kafka_sasl_scope",
    "kafka_sasl_token_provider",
)


def _of_login(settings: Settings) -> Iterator[Misfit]:
    mechanism = settings.kafka_sasl_mechanism
    if mechanism is None:
        yield Misfit("kafka_sasl_mechanism", "is missing: it says how this node logs in at brokers")
    elif mechanism != "OAUTHBEARER":
        if settings.kafka_sasl_username is None:
            yield Misfit("kafka_sasl_username", f"is missing: {mechanism} takes a name and a password")
        if settings.kafka_sasl_password is None and settings.kafka_sasl_password_file is None:
            yield Misfit(
                "kafka_sasl_password", f"is missing: {mechanism} takes it, or SIDECAR_KAFKA_SASL_PASSWORD_FILE"
            )
        if settings.kafka_sasl_password is not None and settings.kafka_sasl_password_file is not None:
            yield Misfit(
                "kafka_sasl_password_file", "is the second password: take this or SIDECAR_KAFKA_SASL_PASSWORD out"
            )
    elif settings.kafka_sasl_token_provider is None:
        for name in ("kafka_sasl_token_url", "kafka_sasl_client_id", "kafka_sasl_client_secret"):
            if getattr(settings, name) is None:
                yield Misfit(
                    name, "is missing: OAUTHBEARER asks a token endpoint, or SIDECAR_KAFKA_SASL_TOKEN_PROVIDER"
                )
