"""Settings of clients' connections, TLS and login, and what is wrong with them together
(docs/reference/settings.md).

Imported while settings are being read, never by a running node (`sidecar.settings`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal

from pydantic import AfterValidator
from pydantic_settings import SettingsConfigDict

from sidecar.security.credentials import MECHANISMS
from sidecar.security.principal_mapping import PrincipalMapping
from sidecar.settings.checks import (
    TEXT,
    File,
    Needs,
    SettingsGroup,
    Text,
    as_it_is,
    check_http_url,
    optional,
    setting,
)
from sidecar.settings.listeners import PREFIX, ListenerSettings, key_of, own_of, own_setting
from sidecar.settings.loaded import full_name
from sidecar.settings.towards_kafka import HTTP_URL, Protocol
from sidecar.settings.values import Misfit, Settings

Authentication = Annotated[Literal["relay", "file", "jwks"], Needs("relay, file or jwks")]
ClientAuth = Annotated[Literal["none", "requested", "required"], Needs("none, requested or required")]


def _mechanisms(value: str | None) -> str | None:
    wrong = [name for name in (value or "").split(",") if value is not None and name.strip() not in MECHANISMS]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is no mechanism that is served")
    return value


class Listener(SettingsGroup):
    """How connections of clients begin."""

    security_protocol: Protocol = setting("PLAINTEXT", "How connections of clients begin: TLS or not, login or not.")
    ssl_certificate: File = optional(
        "PEM file of the certificate that clients are shown, its chain after it.", "/etc/sidecar/tls.pem"
    )
    ssl_key: File = optional(
        "PEM file of that certificate's key, where it is not in the same file.", "/etc/sidecar/tls.key"
    )
    ssl_key_password: Text = optional("Password of that key, where it is encrypted.", "change-me")
    ssl_ca: File = optional(
        "PEM file of the certificates that clients' are checked against.", "/etc/sidecar/clients-ca.pem"
    )
    ssl_client_auth: ClientAuth = setting("none", "Whether clients show a certificate: Kafka's `ssl.client.auth`.")
    ssl_principal_mapping_rules: Annotated[
        str,
        as_it_is(PrincipalMapping),
        Needs("DEFAULT, or RULE:pattern/replacement/[LU], separated by commas", "DEFAULT|RULE:"),
    ] = setting("DEFAULT", "What the holder of a certificate is called: Kafka's `ssl.principal.mapping.rules`.")
    sasl_mechanisms: Annotated[
        str | None,
        AfterValidator(_mechanisms),
        Needs("PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, separated by commas", "^[A-Z0-9, -]+$"),
    ] = optional("How clients may log in; by default with whatever brokers, or the file, take.", "SCRAM-SHA-512")
    sasl_authentication: Authentication = setting(
        "relay", "Who checks logins: a broker (relay), or this node with a file of users or a set of keys (jwks)."
    )
    sasl_users_file: File = optional("file: the TOML file of users.", "/etc/sidecar/users.toml")
    sasl_jwks_url: Annotated[str | None, as_it_is(check_http_url), HTTP_URL] = optional(
        "jwks: where the keys are that sign tokens of OAUTHBEARER.", "https://login.example/keys"
    )
    sasl_audience: Text = optional("jwks: the audience that tokens have to name.", "kafka")
    sasl_issuer: Text = optional("jwks: the issuer that tokens have to name.", "https://login.example")
    sasl_principal_claim: Annotated[str, TEXT] = setting(
        "sub", "The claim of a token that names the principal; with relay, that which brokers take."
    )


class OwnSettings(Listener):
    """Settings that one listener has of its own (`listeners.OWN_SETTINGS`)."""

    model_config = SettingsConfigDict(enable_decoding=False, extra="forbid")


_TLS: Final = ("ssl_certificate", "ssl_key", "ssl_key_password", "ssl_ca")
_OF: Final = {"file": ("sasl_users_file",), "jwks": ("sasl_jwks_url", "sasl_audience", "sasl_issuer")}
_SHORT: Final = ("listen", "advertise", "security_protocol")
_LONG: Final = ("advertised_listeners", "listener_security_protocol_map")


def short_form_misfits(settings: Settings, origins: Mapping[str, str]) -> Iterator[Misfit]:
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


def misfits(settings: Settings) -> Iterator[Misfit]:
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
        for useless in _useless(each, beginning, of_it):
            if useless.setting in own:
                found[useless._replace(setting=of_it[useless.setting])] = None
            else:
                everywhere.setdefault(useless.setting, []).append(useless)
    yield from found
    for useless in everywhere.values():
        if len(useless) == len(all_listeners) and useless[0] not in found:
            yield useless[0]


def _useless(listener: ListenerSettings, beginning: str, of_it: Mapping[str, str]) -> Iterator[Misfit]:
    """Settings without an effect here."""
    yield from _useless_tls(listener, beginning, of_it)
    yield from _useless_login(listener, beginning, of_it)


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
