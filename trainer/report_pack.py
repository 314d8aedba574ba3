"""report_pack.py SOURCES OUTPUT VERSION -- rubato-report as one file that Python runs."""

import pathlib
import shutil
import sys
import tempfile
import zipapp

sources, output, version = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    packed = pathlib.Path(folder) / "report"
    shutil.copytree(sources, packed, ignore=shutil.ignore_patterns("__pycache__"))
    (packed / "version.py").write_text(f'VERSION = "{version}"\n')
    zipapp.create_archive(packed, output, "/usr/bin/env python3")
