"""Options of object stores: region, endpoint, credentials, as ``storage_options=`` gives them.

A call's options hold for all addresses that are opened within it, see `use_storage_options`. A
storage keeps those that it was opened with, and takes them along to workers. Their values may be
secrets, so neither a repr nor a message shows one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from orograph.tiles.arguments import closest
from orograph.tiles.errors import InputError

if TYPE_CHECKING:
    from obstore.store import RetryConfig

P = ParamSpec("P")
T = TypeVar("T")

S3 = {
    "access_key_id": str, "checksum_algorithm": str, "container_authorization_token_file": str,
    "container_credentials_full_uri": str, "container_credentials_relative_uri": str,
    "default_region": str, "disable_bulk_delete": bool, "disable_tagging": bool, "endpoint": str,
    "imdsv1_fallback": bool, "metadata_endpoint": str, "region": str, "request_payer": bool,
    "role_arn": str, "role_session_name": str, "s3_express": bool, "secret_access_key": str,
    "server_side_encryption": str, "session_token": str, "skip_signature": bool,
    "sse_bucket_key_enabled": bool, "sse_customer_key_base64": str, "sse_kms_key_id": str,
    "sts_endpoint": str, "unsigned_payload": bool, "virtual_hosted_style_request": bool,
    "web_identity_token_file": str,
}  # fmt: skip
GOOGLE = {
    "application_credentials": str, "base_url": str, "bearer_token": str, "service_account": str,
    "service_account_key": str, "skip_signature": bool,
}  # fmt: skip
AZURE = {
    "account_key": str, "account_name": str, "authority_host": str, "client_id": str,
    "client_secret": str, "credential_type": str, "disable_tagging": bool, "encryption_key": str,
    "endpoint": str, "fabric_cluster_identifier": str, "fabric_session_token": str,
    "fabric_token_service_url": str, "fabric_workload_host": str, "federated_token_file": str,
    "msi_endpoint": str, "msi_resource_id": str, "object_id": str, "sas_key": str,
    "skip_signature": bool, "tenant_id": str, "token": str, "use_azure_cli": bool,
    "use_emulator": bool, "use_fabric_endpoint": bool,
}  # fmt: skip
CLIENT = {
    "allow_http": bool, "allow_invalid_certificates": bool, "connect_timeout": str,
    "http1_only": bool, "http2_keep_alive_interval": str, "http2_keep_alive_timeout": str,
    "http2_keep_alive_while_idle": str, "http2_only": bool,
    "pool_idle_timeout": str, "pool_max_idle_per_host": str, "proxy_ca_certificate": str,
    "proxy_excludes": str, "proxy_url": str, "randomize_addresses": bool, "read_timeout": str,
    "root_certificate": str, "timeout": str, "user_agent": str,
}  # fmt: skip
BY_SCHEME: dict[str, dict[str, type]] = {"s3": S3, "gs": GOOGLE, "az": AZURE, "memory": {}}
"""Options of obstore's stores and their types.

Left out are those by which an address would name another bucket, or conditions be ignored.
"""
RETRIES: dict[str, type] = {"retry_timeout": timedelta}
"""Options of repeated requests and their types."""
_DURATION = re.compile("([0-9]+(?:[.][0-9]+)?) ?(s|m|min|h)")
_UNITS = {"s": "seconds", "m": "minutes", "min": "minutes", "h": "hours"}
_KNOWN = {
    name: kind
    for options in (*BY_SCHEME.values(), CLIENT, RETRIES)
    for name, kind in options.items()
}
_TRUTH = {"true": True, "false": False, "1": True, "0": False}
_SECRET = re.compile("key|secret|token|password|credential|proxy")
"""Part of the names of options whose values no message repeats."""
MOST_RETRIES = 10_000
"""More repetitions of a request than there is time for: the time alone is the limit."""
_SHORTEST_SECRET = 4
"""Least number of letters of a secret that is hidden; a shorter one would hide other words."""


@dataclass(frozen=True, repr=False)
class StorageOptions:
    """Checked options, sorted by name."""

    items: tuple[tuple[str, str | bool], ...] = ()

    def __repr__(self) -> str:
        return f"StorageOptions({', '.join(name for name, _ in self.items)})"

    def of_store(self, scheme: str) -> dict[str, Any]:
        """Return the options that obstore takes for stores of a scheme."""
        return {name: value for name, value in self.items if name in BY_SCHEME[scheme]}

    def of_client(self) -> dict[str, Any]:
        """Return the options that obstore takes for connections."""
        return {name: value for name, value in self.items if name in CLIENT}

    def of_retries(self) -> RetryConfig:
        """Return the time for which obstore repeats requests; {}: the usual one."""
        for name, value in self.items:
            if name in RETRIES:
                return {"max_retries": MOST_RETRIES, "retry_timeout": _duration(str(value))}
        return {}

    def without_secrets(self, message: str) -> str:
        """Replace the values of secret options in a message."""
        for name, value in self.items:
            if isinstance(value, str) and len(value) >= _SHORTEST_SECRET and is_secret(name):
                message = message.replace(value, "***")
        return message


def is_secret(name: str) -> bool:
    """Return whether no message may repeat the value of an option."""
    return _SECRET.search(name.lower()) is not None


NONE = StorageOptions()
_given: ContextVar[StorageOptions] = ContextVar("storage_options", default=NONE)


def given_storage_options() -> StorageOptions:
    """Return the options of the call within which this one is made."""
    return _given.get()


@contextmanager
def use_storage_options(options: Mapping[str, str | bool] | None) -> Iterator[None]:
    """Let addresses of object stores that are opened within this context have options.

    None leaves those of a surrounding context.

    Raises
    ------
    InputError
        If an option is unknown, or its value is of another type.
    """
    if options is None:
        yield
        return
    token = _given.set(check_storage_options(options))
    try:
        yield
    finally:
        _given.reset(token)


def takes_storage_options(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function so that its argument ``storage_options`` holds while it runs."""

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        options: Any = kwargs.get("storage_options")
        with use_storage_options(options):
            return function(*args, **kwargs)

    return wrapped


def check_storage_options(options: object) -> StorageOptions:
    """Return options in one form; raise InputError if one is unknown or of another type.

    Messages name an option but never its value, which may be a secret.
    """
    if not isinstance(options, Mapping):
        raise InputError(
            f"storage_options: expected a dict, got {type(options).__name__}; give options of "
            "obstore by name, such as {'region': 'eu-central-1'}"
        )
    checked: dict[str, str | bool] = {}
    for name, value in options.items():
        if not isinstance(name, str):
            raise InputError(
                f"storage_options: names are text, but one is of type {type(name).__name__}; write "
                "{'region': 'eu-central-1'}"
            )
        # obstore knows an option with and without its provider's prefix; here each has one name.
        # boto3 calls the endpoint `endpoint_url`.
        plain = re.sub("^(aws|google|azure_storage|azure)_", "", name.lower())
        plain = {"endpoint_url": "endpoint"}.get(plain, plain)
        if plain not in _KNOWN:
            near = closest(plain, _KNOWN)
            hint = f"did you mean {near!r}?" if near else "obstore's documentation lists them"
            raise InputError(f"storage_options: {name!r} is not an option of a store; {hint}")
        checked[plain] = _value(name, value, _KNOWN[plain])
    return StorageOptions(tuple(sorted(checked.items())))


def _duration(text: str) -> timedelta:
    """Return the duration that a text such as ``"90s"`` or ``"5min"`` states."""
    number, unit = _DURATION.fullmatch(text).groups()  # type: ignore[union-attr]
    return timedelta(**{_UNITS[unit]: float(number)})


def _value(name: str, value: object, kind: type) -> str | bool:
    if kind is timedelta:
        if isinstance(value, str) and _DURATION.fullmatch(value):
            return value
        raise InputError(f"storage_options: {name!r} is a duration; write '90s', '5min' or '1h'")
    if kind is bool:
        if isinstance(value, str):
            value = _TRUTH.get(value.lower())
        if isinstance(value, bool):
            return value
        raise InputError(f"storage_options: {name!r} is on or off; give True or False")
    if isinstance(value, str) and value:
        return value
    raise InputError(
        f"storage_options: {name!r} is of type {type(value).__name__}, or empty; give text"
    )
