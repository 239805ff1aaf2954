"""The server under test and the files it opens."""

import os
import pathlib
import shutil

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def binary():
    path = pathlib.Path(os.environ.get("WINDBG_MCP_BINARY", ROOT / "target/release/windbg-mcp"))
    assert path.is_file(), f"{path} is missing: cargo build --release --bin windbg-mcp"
    return str(path)


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def user_dump(tmp_path):
    """The bundled user dump with its image and PDB, under a name with a space and Unicode in it."""
    folder = tmp_path / "dumps \u00e4\u65e5"
    folder.mkdir()
    for name in ("crash.dmp", "crash.exe", "crash.pdb"):
        shutil.copy(ROOT / "fixtures" / name, folder / name)
    return str(folder / "crash.dmp")


@pytest.fixture
def kernel_dump():
    return str(ROOT / "fixtures/kernel.dmp")
