"""Versions of inputs: local files, archives, and what lies on servers."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest
import rasterio.shutil

import orograph as og
from orograph.tiles.grid.window import Window
from orograph.tiles.raster import version
from orograph.tiles.raster.raster import open_raster
from orograph.tiles.raster.version import absolute, file_versions

CELLS = np.arange(30.0, dtype=np.float32).reshape(5, 6)

# in a process of its own: GDAL does not let go of the interpreter while it waits for an answer
SERVER = """
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_HEAD(self):
        self.do_GET(body=False)
    def do_GET(self, body=True):
        path = sys.argv[1] + self.path.removeprefix("/plain")
        found = os.path.isfile(path)
        content = open(path, "rb").read() if found else b""
        part, wanted = content, self.headers.get("Range")
        if found and wanted:
            first, last = wanted.split("=")[1].split("-")
            first, last = int(first), min(int(last or len(content)), len(content) - 1)
            part = content[first : last + 1]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        else:
            self.send_response(200 if found else 404)
        if found and not self.path.startswith("/plain"):
            self.send_header("ETag", f'"{hash(content)}"')
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if body:
            self.wfile.write(part)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The URL at which a file ``a.tif`` of the test's folder is served."""
    og.to_geotiff(CELLS, tmp_path / "a.tif")
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.communicate()


def test_a_remote_file_is_told_by_its_etag_and_not_by_where_one_stands(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (f"{server}/a.tif", f"/vsicurl/{server}/a.tif"):
        og.to_geotiff(CELLS, tmp_path / "a.tif", overwrite=True)
        raster = open_raster(path)
        np.testing.assert_array_equal(raster.read(Window(0, 0, 5, 6)), CELLS)
        first = raster.fingerprint()
        assert first.startswith("file-")
        monkeypatch.chdir("/")
        assert open_raster(path).fingerprint() == first
        og.to_geotiff(CELLS + 1, tmp_path / "a.tif", overwrite=True)
        assert raster.fingerprint() != first


def test_a_remote_file_without_an_etag_is_not_resumed(server: str, tmp_path: Path) -> None:
    out = tmp_path / "forest.zarr"
    with pytest.raises(og.InputError, match=r"resume: neither an ETag nor a time .*plain/a\.tif"):
        og.minimum_spanning_forest(f"{server}/plain/a.tif", out=out, resume=True)
    result = og.minimum_spanning_forest(f"{server}/plain/a.tif", out=out)
    assert result.attrs["edge_count"] == 29
    again = og.minimum_spanning_forest(
        f"{server}/a.tif", out=out, tile=4, overwrite=True, resume=True
    )
    assert again.attrs == result.attrs


def test_a_cog_of_a_server_is_an_input(server: str, tmp_path: Path) -> None:
    """Its bits are those of the array, by its URL and by GDAL's name for it."""
    cells = np.random.default_rng(1).random((300, 280), np.float32)
    og.to_geotiff(cells, tmp_path / "plain.tif")
    rasterio.shutil.copy(tmp_path / "plain.tif", tmp_path / "cog.tif", driver="COG", blocksize=128)
    expected = og.minimum_spanning_forest(cells)["edges"]
    for number, address in enumerate((f"{server}/cog.tif", f"/vsicurl/{server}/cog.tif")):
        out = tmp_path / f"forest-{number}.zarr"
        found = og.minimum_spanning_forest(address, out=out, tile=64, shard=128)
        np.testing.assert_array_equal(found["edges"], expected)


def test_a_remote_folder_is_told_by_its_objects() -> None:
    system = fsspec.filesystem("memory")
    try:
        system.pipe({"/bucket/a.zarr/zarr.json": b"{}", "/bucket/a.zarr/z/c/0/0": b"cells"})
        first = file_versions("memory://bucket/a.zarr")
        assert first is not None
        assert len(first) == 2
        assert file_versions("memory://bucket/a.zarr") == first
        system.pipe("/bucket/a.zarr/z/c/0/0", b"other")
        assert file_versions("memory://bucket/a.zarr") != first
    finally:
        system.rm("/bucket", recursive=True)


def test_an_archive_is_told_by_its_file(tmp_path: Path) -> None:
    file = og.to_geotiff(CELLS, tmp_path / "a.tif")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.write(file, "in/a.tif")
    path = f"/vsizip/{tmp_path}/a.zip/in/a.tif"
    raster = open_raster(path)
    first = raster.fingerprint()
    assert first.startswith("file-")
    np.testing.assert_array_equal(raster.read(Window(0, 0, 5, 6)), CELLS)
    os.utime(tmp_path / "a.zip", ns=(1, 1))
    assert raster.fingerprint() != first


@pytest.mark.parametrize(
    ("path", "address"),
    [
        ("/vsis3/bucket/a.tif", "s3://bucket/a.tif"),
        ("/vsigs/bucket/a.tif", "gs://bucket/a.tif"),
        ("/vsizip//vsis3/bucket/a.zip/in/a.tif", "s3://bucket/a.zip"),
        ("/vsizip//vsicurl/https://host/a.zip/in.tif", "https://host/a.zip"),
        ("/vsizip/{/vsicurl/https://host/a.zip}/in.tif", "https://host/a.zip"),
        ("/vsicurl?max_retry=2&url=https://host/a.tif", "https://host/a.tif"),
        ("s3://bucket/a.zarr", "s3://bucket/a.zarr"),
        ('NETCDF:"https://host/a.nc":z', "https://host/a.nc"),
        ("/vsimem/a.tif", None),
        ("a.tif", None),
    ],
)
def test_addresses_that_gdal_knows(path: str, address: str | None) -> None:
    assert version._remote_address(path) == address
    if path != "a.tif":
        assert absolute(path) == path


def test_a_connection_string_means_the_same_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.nc").touch()
    assert absolute("NETCDF:a.nc:z") == f'NETCDF:"{tmp_path}/a.nc":z'
    assert absolute("NETCDF:none.nc:z") == "NETCDF:none.nc:z"
    assert absolute("a.nc") == str(tmp_path / "a.nc")


def test_what_nobody_knows_a_version_of(monkeypatch: pytest.MonkeyPatch) -> None:
    assert file_versions("/vsimem/a.tif") is None
    assert file_versions("nowhere://bucket/a.tif") is None

    class Bare:
        def invalidate_cache(self) -> None: ...

        def info(self, path: str) -> dict[str, object]:
            return {"name": path, "size": 3, "type": "file"}

    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url: (Bare(), "bucket/a.tif"))
    assert file_versions("/vsis3/bucket/a.tif") is None
