"""Compiles the backend against the torch that is installed, and against Rubato: the package
`rubato`, if it is installed, or else what pkg-config finds."""

import pathlib
import re
import subprocess

import torch
from setuptools import setup
from setuptools.command.build_py import build_py
from torch.utils.cpp_extension import BuildExtension, CppExtension

BACKEND = pathlib.Path(__file__).parent / "backend"


def pkg_config(word):
    return subprocess.run(["pkg-config", word, "rubato"], stdout=subprocess.PIPE, check=True,
                          text=True).stdout.strip()


def library():
    """Folder of the header, and what to link with."""
    try:
        import rubato
        return rubato.get_include(), [rubato.get_library()]
    except ImportError:
        folder = pkg_config("--variable=libdir")
        return (pkg_config("--variable=includedir"),
                [f"-L{folder}", f"-Wl,-rpath,{folder}", "-lrubato"])


include, link = library()
header = pathlib.Path(include, "rubato.h").read_text()
version = ".".join(re.search(rf"RUBATO_VERSION_{part} (\d+)", header)[1]
                   for part in ("MAJOR", "MINOR", "PATCH"))


class Build(build_py):
    """Says which torch it was built for: another one's interface is not the same."""

    def run(self):
        super().run()
        if not self.editable_mode:
            built = pathlib.Path(self.build_lib, "rubato_torch/_built.py")
            built.write_text(f'TORCH = "{torch.__version__.split("+")[0]}"\n')


setup(
    version=version,
    packages=["rubato_torch"],
    ext_modules=[CppExtension(
        "rubato_torch._backend",
        ["backend/all.cpp"],
        depends=sorted(f"backend/{path.name}" for path in BACKEND.glob("*.?pp")),
        include_dirs=[include],
        extra_compile_args=["-O2", "-g0", "-Wall", "-Wextra", "-Wno-unused-parameter",
                            "-fvisibility=hidden"],
        extra_link_args=link,
    )],
    cmdclass={"build_ext": BuildExtension, "build_py": Build},
)
