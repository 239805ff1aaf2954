"""Packs NAME=PATH arguments into a zip or tar.gz whose bytes depend on nothing but their content
and the time given: usage pack.py zip|tar SECONDS ARCHIVE NAME=PATH..."""

import gzip
import io
import sys
import tarfile
import time
import zipfile


def mode(name):
    return 0o755 if name.endswith(("windbg-mcp", ".exe", ".dll")) else 0o644


def pack_zip(archive, seconds, entries):
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
        for name, path in entries:
            info = zipfile.ZipInfo(name, time.gmtime(seconds)[:6])
            info.external_attr = (0o100000 | mode(name)) << 16
            info.create_system = 3
            info.compress_type = zipfile.ZIP_DEFLATED
            with open(path, "rb") as file:
                out.writestr(info, file.read())


def pack_tar(archive, seconds, entries):
    with open(archive, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=seconds) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as out:
            for name, path in entries:
                with open(path, "rb") as file:
                    content = file.read()
                info = tarfile.TarInfo(name)
                info.size, info.mtime, info.mode = len(content), seconds, mode(name)
                out.addfile(info, io.BytesIO(content))


def main():
    kind, seconds, archive, *pairs = sys.argv[1:]
    entries = [pair.split("=", 1) for pair in pairs]
    {"zip": pack_zip, "tar": pack_tar}[kind](archive, int(seconds), entries)


main()
