"""The settings as pydantic-settings takes them, and how each is checked beside what its declaration says.

Imported while settings are being read, never by a running node (`sidecar.settings`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, create_model, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from sidecar.network.admission import parse_overrides
from sidecar.security.acls import parse_super_users
from sidecar.security.credentials import MECHANISMS
from sidecar.security.principal_mapping import PrincipalMapping
from sidecar.settings.access import Admin, Rules, TowardsKafka
from sidecar.settings.basics import Basics
from sidecar.settings.checks import HOST_PORT, Address, Needs, as_it_is
from sidecar.settings.limits import Limits
from sidecar.settings.listeners import OWN_SETTINGS, PREFIX, Listener, NamedAddress, NamedProtocol, protocol_of
from sidecar.settings.loaded import SECRETS, full_name, text_of
from sidecar.settings.values import ENV_PREFIX


def _check_mechanisms(value: str) -> None:
    wrong = [name for name in value.split(",") if name.strip() not in MECHANISMS]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is no mechanism that is served")


_CHECKS: Final[dict[str, Callable[[str], object]]] = {
    "max_connections_per_ip_overrides": parse_overrides,
    "sasl_mechanisms": _check_mechanisms,
    "ssl_principal_mapping_rules": PrincipalMapping,
    "super_users": parse_super_users,
}
"""Settings that other rooms read, which commands need not load for their sake."""


class _Checked(BaseSettings):
    """Settings are checked here and found by `sources`, which has to know where each value comes from."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        enable_decoding=False,  # lists are written with commas, not as JSON
        env_ignore_empty=True,  # `${X:-}` in a compose file means "not set"
        extra="forbid",
        validate_default=True,
        title="sidecar.toml",
    )

    @classmethod
    def settings_customise_sources(
        cls, *_: Any, init_settings: Any, **_sources: Any
    ) -> tuple[PydanticBaseSettingsSource]:
        """The values that a caller gives, and no others."""
        return (init_settings,)

    @field_validator("advertise", check_fields=False)
    @classmethod
    def _advertise(cls, value: Address | None, info: ValidationInfo) -> Address | None:
        listen: Address | None = info.data.get("listen")
        if value is None:
            if listen is not None and listen.wildcard:
                raise ValueError(
                    f"is required, as SIDECAR_LISTEN is {listen}: say at which address clients reach this node"
                )
            return listen
        if value.wildcard:
            raise ValueError("no client can connect to a wildcard address")
        if value.port == 0 and (listen is None or listen.port != 0):
            raise ValueError("no client can connect to port 0")
        return value

    @field_validator("advertised_listeners", check_fields=False)
    @classmethod
    def _advertised_listeners(cls, value: tuple[NamedAddress, ...], info: ValidationInfo) -> tuple[NamedAddress, ...]:
        bound = {each.name: each.address for each in info.data.get("listeners", ())}
        if not bound:
            return value  # `sidecar.settings.listener` says what is wrong with it
        for name, address in value:
            if name not in bound:
                raise ValueError(f"names {name}, which SIDECAR_LISTENERS does not: that has {', '.join(bound)}")
            if address.wildcard:
                raise ValueError(f"gives {name} a wildcard address, to which no client can connect")
            if address.port == 0 and bound[name].port != 0:
                raise ValueError(f"gives {name} port 0, to which no client can connect")
        advertised = {each.name for each in value}
        if missing := [name for name, address in bound.items() if address.wildcard and name not in advertised]:
            raise ValueError(
                f"is required for {', '.join(missing)}, which SIDECAR_LISTENERS has at a wildcard address: say at which"
                " address clients reach this node"
            )
        return value

    @field_validator("listener_security_protocol_map", check_fields=False)
    @classmethod
    def _protocol_map(cls, value: tuple[NamedProtocol, ...], info: ValidationInfo) -> tuple[NamedProtocol, ...]:
        names = [each.name for each in info.data.get("listeners", ())]
        if missing := [name for name in names if protocol_of(name, value) is None]:
            raise ValueError(f"is required for {', '.join(missing)}: it says with which protocol a listener begins")
        return value

    @field_validator("admin_listen", check_fields=False)
    @classmethod
    def _admin_listen(cls, value: Address, info: ValidationInfo) -> Address:
        named: tuple[NamedAddress, ...] = info.data.get("listeners", ())
        listen: Address | None = info.data.get("listen")
        taken = [each.address for each in named] or ([] if listen is None else [listen])
        if any(value.port == one.port != 0 and (value.host == one.host or one.wildcard) for one in taken):
            name = "SIDECAR_LISTENERS" if named else "SIDECAR_LISTEN"
            raise ValueError(f"is the address of {name}: each needs a port of its own")
        return value

    @field_validator("admin_advertise", check_fields=False)
    @classmethod
    def _admin_advertise(cls, value: Address | None, info: ValidationInfo) -> Address | None:
        listen: Address | None = info.data.get("admin_listen")
        advertise: Address | None = info.data.get("advertise")
        named = info.data.get("advertised_listeners") or info.data.get("listeners") or ()
        if value is None:
            if named:  # by the first of them
                advertise = named[0].address
            return listen._replace(host=advertise.host) if listen and listen.wildcard and advertise else listen
        if value.wildcard or value.port == 0:
            raise ValueError("no node can connect to a wildcard address or to port 0")
        return value


def _fields_of(group: type[Any]) -> dict[str, Any]:
    """A group's settings by name, each as pydantic has it: its type, and its default with what is said of it."""
    found: dict[str, Any] = {}
    hints = get_type_hints(group, include_extras=True)
    for each in fields(group):
        kind = _with_checks(hints[each.name], each.default is None)
        if each.name in _CHECKS:
            kind = Annotated[kind, AfterValidator(as_it_is(_CHECKS[each.name]))]
        said = {key: value for key, value in each.metadata.items() if key != "secret"}
        found[each.name] = kind, Field(each.default, **said)
    return found


def _with_checks(kind: Any, is_optional: bool = False) -> Any:
    """A type with the checks of its `Needs` as pydantic's."""
    if get_origin(kind) is tuple:
        return tuple[_with_checks(get_args(kind)[0]), ...]
    if get_origin(kind) is not Annotated:
        return kind
    inner, needs = get_args(kind)
    may_be_none = type(None) in get_args(inner)
    found = _with_checks(inner)
    if needs.words:
        word: Any = Literal[needs.words]
        found = word | None if may_be_none else word
    if needs.read is not None:
        written = PydanticUndefined if needs.written is None else needs.written
        found = Annotated[found, BeforeValidator(needs.read, json_schema_input_type=written)]
    if needs.check is not None:
        found = Annotated[found, AfterValidator(needs.check)]
    return Annotated[found | None if is_optional and not may_be_none else found, needs]


Schema: Final = create_model(
    "Schema",
    __base__=_Checked,
    __doc__="Settings of a sidecar node and of the tools that talk to it.",
    **_fields_of(Basics),
    **_fields_of(Admin),
    **_fields_of(Listener),
    **_fields_of(Rules),
    **_fields_of(Limits),
    **_fields_of(TowardsKafka),
)
OwnSettings: Final = create_model(
    "OwnSettings", __config__=SettingsConfigDict(enable_decoding=False, extra="forbid"), **_fields_of(Listener)
)
"""Settings that one listener has of its own (`listeners.OWN_SETTINGS`)."""


def needs(field: FieldInfo) -> str:
    """What a setting takes, in words."""
    words = next((each.text for each in field.metadata if isinstance(each, Needs)), "another value")
    bounds = [str(getattr(each, end)) for each in field.metadata for end in ("ge", "le") if hasattr(each, end)]
    return f"{words} from {' to '.join(bounds)}" if bounds else words


def is_secret(name: str) -> bool:
    """True where the value is never shown."""
    return name in SECRETS


def shown_default(name: str) -> str:
    """The default as people write it, "" where there is none."""
    return text_of(name, Schema.model_fields[name].default)


def json_schema() -> dict[str, Any]:
    """JSON schema of sidecar.toml, for editors. It refuses nothing that is right; it cannot check what fits
    together.
    """
    schema = Schema.model_json_schema(mode="validation")
    for name, found in schema["properties"].items():
        field = Schema.model_fields[name]
        kinds: list[dict[str, Any]] = [each for each in found.pop("anyOf", [found]) if each.get("type") != "null"]
        pattern = next((each.pattern for each in field.metadata if isinstance(each, Needs)), "")
        for kind in kinds:
            if kind.get("type") == "array":
                kind |= {"minItems": 1, "items": {"type": "string", "pattern": HOST_PORT.pattern}}
            elif pattern:
                kind["pattern"] = pattern
        found.update(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})
        found.update(title=full_name(name), description=f"{field.description} Takes {needs(field)}.")
        if field.default is None or field.default == ():
            found.pop("default", None)  # TOML has no null
        elif not isinstance(field.default, str | int):
            found["default"] = text_of(name, field.default)
    own = {name: schema["properties"][name] for name in OWN_SETTINGS}
    schema["patternProperties"] = {
        f"^{PREFIX}[a-z0-9_]+_{name}$": {
            **{key: value for key, value in found.items() if key != "default"},
            "title": f"{full_name(PREFIX)}<NAME>_{name.upper()}",
            "description": f"`{name}` of one listener. {found['description']}",
        }
        for name, found in own.items()
    }
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
