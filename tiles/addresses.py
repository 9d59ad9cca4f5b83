"""Secrets in addresses: names and passwords, and the queries that sign URLs.

Messages, reports and metadata are read by more people than an address is meant for.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

_SCHEME = "(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]+)"
# up to an @ before the path; or after a colon that no port follows, as secrets may have slashes
_USER = r"""[^/?#\s\\"'@]*@|[^/?#\s\\"'@:\[]+:(?!:|\d*(?:[/?#"'}\s]|$))[^\s\\"'@]*@"""
_USER_OF_URL = re.compile(f"{_SCHEME}(://?)({_USER})")
_QUERY = re.compile(rf"""({_SCHEME}://?[^\s\\"'?}}]*|/vsi\w+)\?[^\s\\"'}}]*[^\s\\"'}}:;,.)]""")
_BEFORE_AT = {"abfs", "abfss", "wasb", "wasbs"}
"""Schemes whose addresses have a container before the @."""


def has_user(address: str) -> bool:
    """Return whether an address has a name, a password or a key before its host or bucket.

    Examples
    --------
    >>> has_user("https://name:word@host/dem.tif"), has_user("https://host/map@2x.tif")
    (True, False)
    """
    return any(
        scheme.lower() not in _BEFORE_AT or ":" in user
        for scheme, _, user in _USER_OF_URL.findall(unquote(address))
    )


def without_secrets(text: str) -> str:
    """Replace user information and queries of all addresses in a text.

    Examples
    --------
    >>> without_secrets("https://host/dem.tif?sig=aGk%3D: the server is away")
    'https://host/dem.tif?***: the server is away'
    >>> without_secrets("https://name:word@host/dem.tif")
    'https://***@host/dem.tif'
    """
    if ":/" not in text and "/vsi" not in text:
        return text
    return _QUERY.sub(r"\1?***", _USER_OF_URL.sub(_hide, text))


def _hide(found: re.Match[str]) -> str:
    scheme, separator, user = found.groups()
    kept = scheme.lower() in _BEFORE_AT and ":" not in user
    return found[0] if kept else f"{scheme}{separator}***@"
