"""A node's settings: `Settings`, and how they are found (`loaded`: how they travel to it).

What may be said and what is checked is in `schema`, which is imported only while settings are being read: pydantic's
memory has no place in a process whose size is a promise.
"""

from sidecar.settings.basics import DEFAULT_ADMIN_URL
from sidecar.settings.checks import check_token
from sidecar.settings.finding import AdminAccess, admin_access, load, resolve
from sidecar.settings.values import (
    CONFIG_FILES,
    DEDUPLICATES_ALL,
    ENV_PREFIX,
    Address,
    Problem,
    Settings,
    SettingsError,
    find_config,
    local_url,
    read_toml,
)

__all__ = [
    "CONFIG_FILES",
    "DEDUPLICATES_ALL",
    "DEFAULT_ADMIN_URL",
    "ENV_PREFIX",
    "Address",
    "AdminAccess",
    "Problem",
    "Settings",
    "SettingsError",
    "admin_access",
    "check_token",
    "find_config",
    "load",
    "local_url",
    "read_toml",
    "resolve",
]
