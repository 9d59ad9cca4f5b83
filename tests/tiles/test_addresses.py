"""Secrets in addresses: none is taken, and none is repeated or stored."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import orograph as og
from orograph.tiles.addresses import has_user, without_secrets
from orograph.tiles.arguments import check_path, shown

WITH_USER = [
    "s3://AKID:WORD@bucket/dem.zarr",
    "s3://AKID:WO/RD@bucket/dem.zarr",
    "memory://AKID:WORD@m/dem.zarr",
    "https://name:WORD@host/dem.tif",
    "https://WORD@host/dem.tif",
    "HTTPS://name:WORD@host:80/dem.tif?query",
    "/vsicurl/https://name:WORD@host/dem.tif",
    "/vsizip//vsicurl/https://name:WORD@host/dem.zip/dem.tif",
    "/vsicurl?max_retry=3&url=https%3A%2F%2Fname%3AWORD%40host%2Fdem.tif",
    'NETCDF:"https://name:WORD@host/dem.nc":z',
    "simplecache::https://name:WORD@host/dem.nc",
    Path("s3://AKID:WORD@bucket/dem.zarr"),
]
WITHOUT = [
    "s3://bucket/me@home/dem.zarr",
    "https://host:8080/map@2x.tif",
    "https://[::1]:80/dem.tif",
    "zip://dem.tif::https://host/a@b.zip",
    "abfs://container@account.dfs.core.windows.net/dem.zarr",
    "file:///home/me@host/dem.zarr",
    "/home/me@host/a:b@c/dem.tif",
    "NETCDF:/home/me@host/dem.nc:z",
    "tcp://127.0.0.1:8786",
    "C:/me@host/dem.tif",
]
SIGNED = [
    "https://host/dem.tif?sig=WORD%3D&se=2026",
    "/vsicurl/https://host/dem.tif?X-Amz-Signature=WORD",
    "/vsicurl?header.Authorization=WORD&url=https%3A%2F%2Fhost%2Fdem.tif",
    "https://host/a.zip?token=WORD/dem.tif",
]


@pytest.mark.parametrize("address", WITH_USER, ids=str)
def test_an_address_with_user_information_is_refused(address: Any) -> None:
    with pytest.raises(
        og.InputError, match=r"^out: an address with a name.*storage_options"
    ) as told:
        check_path("out", address)
    assert "WORD" not in str(told.value)
    if "%" not in str(address):
        assert "WO" not in without_secrets(f"{address}: away")


@pytest.mark.parametrize("address", WITHOUT)
def test_other_addresses_are_taken(address: str) -> None:
    assert not has_user(address)
    assert without_secrets(f"{address!r}: is it right?") == f"{address!r}: is it right?"


@pytest.mark.parametrize("address", SIGNED)
def test_the_query_of_a_signed_url_is_never_shown(address: str) -> None:
    assert check_path("raster", address) == address
    for message in (address, f"{address}: away", f'opened "{address}"', f"{address!r}, {address}"):
        for error in (og.InputError(message), og.StorageFullError(28, "no room", message)):
            assert "WORD" not in str(error)
            assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert "away" in str(og.InputError(f"{address}: away"))
    assert "WORD" not in shown(address.replace("WORD", "WORD" * 50))


@pytest.mark.parametrize("address", SIGNED)
def test_no_report_and_no_message_has_a_query(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GDAL_HTTP_MAX_RETRY", "0")
    address = address.replace("host", "127.0.0.1:9")
    for call in (og.fill_depressions, og.open, og.read_graph, og.verify):
        with pytest.raises(og.OrographError) as told:
            call(address)
        assert "WORD" not in str(told.value)
    from orograph.tiles.raster import raster as opening

    raster = opening.open_raster(np.eye(4))
    monkeypatch.setattr(type(raster), "__repr__", lambda self: f"FileRaster({address!r}, band=1)")
    run = og.fill_depressions.submit(np.eye(4), out=tmp_path / "f.zarr")
    run.result()
    assert "FileRaster" in str(run.report()["inputs"])
    assert "WORD" not in str(run.report()) + (tmp_path / "f.zarr/report.json").read_text()
