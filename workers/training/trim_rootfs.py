"""Remove from a root file system what the training worker never loads. Runs inside it, as root, before it is packed.

Debian's PyTorch is linked with a wide family of media and map libraries. What their drivers and plug-ins bring along is
never loaded; what the linker needs stays. The list of kept libraries is the closure of everything that remains
executable, so nothing that is kept loses a library.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

LIBRARIES = Path("/usr/lib/x86_64-linux-gnu") if os.uname().machine == "x86_64" else Path("/usr/lib/aarch64-linux-gnu")
PYTHON_PACKAGES = Path("/usr/lib/python3/dist-packages")

UNUSED = (
    "/usr/lib/gcc",
    "/usr/lib/libtorch-test",
    "/usr/include",
    "/usr/games",
    "/usr/share/perl",
    "/usr/share/perl5",
    "/usr/share/bash-completion",
    "/usr/share/fonts",
    "/usr/share/gdal",
    "/usr/share/gdcm-3.0",
    "/usr/share/info",
    "/usr/share/lintian",
    "/usr/share/locale",
    "/usr/share/man",
    "/usr/share/mime",
    "/usr/share/proj",
    "/usr/share/X11",
    "/usr/share/xml",
    "/usr/share/iso-codes",
    "/usr/share/icons",
    "/usr/share/poppler",
    "/var/lib/apt/lists",
    "/var/lib/dpkg/info",
    "/var/cache",
    "/var/log",
)
UNUSED_IN_LIBRARIES = ("dri", "gconv", "gdk-pixbuf-2.0", "gio", "mfx", "perl", "qt5", "vdpau", "gstreamer-1.0", "gdcm")
UNUSED_IN_TORCH = ("include", "share", "test")
UNUSED_PYTHON_PACKAGES = ("hypothesis", "pythran")  # property tests, a compiler: no training
# What S3 needs of the descriptions of Amazon's services: its own, and that of the service that gives temporary credentials.
USED_SERVICES = ("s3", "sts")
UNUSED_PLUGINS = ("ucx/*_rocm*",)  # for GPUs of AMD, with a whole compiler
# Open MPI and what is below it load everything in these directories.
LOADING_PLUGINS = ("openmpi", "pmix2", "ucx", "libibverbs")
# Loaded by name at run time, so that no linker entry names them.
LOADED_BY_NAME = ("libnss_", "libresolv", "libgcc_s", "ld-linux")


def main() -> None:
    """Trim the root file system of this process. Refuses to run outside a chroot made for it."""
    if len(sys.argv) != 2 or sys.argv[1] != "--in-chroot":
        sys.exit("usage: trim_rootfs.py --in-chroot   (it deletes files of the system it runs in)")
    for name in UNUSED:
        _remove(Path(name))
    for name in UNUSED_IN_LIBRARIES:
        _remove(LIBRARIES / name)
    for pattern in UNUSED_PLUGINS:
        for plugin in LIBRARIES.glob(pattern):
            _remove(plugin)
    for name in UNUSED_IN_TORCH:
        _remove(PYTHON_PACKAGES / "torch" / name)
    for name in UNUSED_PYTHON_PACKAGES:
        _remove(PYTHON_PACKAGES / name)
    for program in (PYTHON_PACKAGES / "torch" / "bin").glob("*[tT]est*"):
        _remove(program)
    _remove(PYTHON_PACKAGES / "torch" / "bin" / "tutorial_tensorexpr")
    for name in ("botocore", "boto3"):
        for service in (PYTHON_PACKAGES / name / "data").glob("*"):
            if service.is_dir() and service.name not in USED_SERVICES:
                _remove(service)
    for tests in PYTHON_PACKAGES.glob("**/tests"):
        if not {"torch", "numpy"}.intersection(tests.parts):  # which load some of theirs
            _remove(tests)
    for program in Path("/usr/bin").glob("*-linux-gnu-*"):  # SciPy brings compilers
        _remove(program)
    for static in (*LIBRARIES.rglob("*.a"), *Path("/usr/lib/python3.13").rglob("*.a")):
        _remove(static)
    _remove_unreferenced_libraries()
    for directory in ("/var/log", "/var/cache", "/var/lib/dpkg/info"):
        Path(directory).mkdir(parents=True, exist_ok=True)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _remove_unreferenced_libraries() -> None:
    """Delete shared libraries in the library directory that no remaining program or Python module needs."""
    needed = _closure(_roots())
    for library in LIBRARIES.iterdir():
        if ".so" not in library.name or library.is_dir() or library.name.startswith(LOADED_BY_NAME):
            continue
        if not library.exists() or library.resolve() not in needed:
            library.unlink()


def _roots() -> Iterator[Path]:
    for directory in (Path("/usr/bin"), Path("/usr/sbin"), Path("/usr/lib/python3.13")):
        yield from (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
    yield from PYTHON_PACKAGES.rglob("*.so*")
    yield from LIBRARIES.glob("security/*.so")
    yield from LIBRARIES.glob("libxgboost.so*")
    for plugins in LOADING_PLUGINS:
        yield from (LIBRARIES / plugins).rglob("*.so*")


def _closure(roots: Iterator[Path]) -> set[Path]:
    """``roots`` themselves, where they lead to as links, and every library that ldd finds for them."""
    binaries = [str(path) for path in roots if _is_elf(path)]
    found = {Path(binary).resolve() for binary in binaries}
    for start in range(0, len(binaries), 100):
        listing = subprocess.run(["ldd", *binaries[start : start + 100]], capture_output=True, text=True, check=False)
        for line in listing.stdout.splitlines():
            words = line.split("=>")[-1].split()
            if words and words[0].startswith("/") and not words[0].endswith(":"):
                found.add(Path(words[0]).resolve())
    return found


def _is_elf(path: Path) -> bool:
    try:
        with open(path, "rb") as stream:
            return stream.read(4) == b"\x7fELF"
    except OSError:
        return False


if __name__ == "__main__":
    main()
