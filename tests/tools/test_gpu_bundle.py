#!/usr/bin/env python3
"""test_gpu_bundle.py GPU-BUNDLE -- tools/gpu-bundle: what it packs is small, whole, and starts."""

import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

from programs import main

GPU_BUNDLE = pathlib.Path(sys.argv.pop(1)).resolve()
ROOT = GPU_BUNDLE.parent.parent


class Bundle(unittest.TestCase):
    def test_it_is_small_and_whole_and_starts(self):
        with tempfile.TemporaryDirectory() as folder:
            there = pathlib.Path(folder)
            done = subprocess.run([GPU_BUNDLE, there / "bundle.tar.xz"], capture_output=True,
                                  text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertLess((there / "bundle.tar.xz").stat().st_size, 40 << 20)
            with tarfile.open(there / "bundle.tar.xz") as tar:
                tar.extractall(there)
            for path in there.rglob("*"):
                if path.is_symlink() and "packages/usr/lib" in str(path):
                    self.assertTrue(path.exists(), f"{path} -> {path.readlink()}")
                    self.assertIn(there, path.resolve().parents)
            libraries = there / "packages" / "usr" / "lib"
            for name in ("libucp.so", "libibverbs.so", "libsodium.so", "libcheck_pic.a", "check.pc",
                         "ucx.pc", "libibverbs.pc"):
                self.assertTrue(list(libraries.rglob(name)), name)
            ucx = there / "packages" / "ucx" / "lib" / "ucx" / "libuct_cuda.so.0"
            self.assertNotEqual(ucx.exists(), "without a UCX" in done.stderr, done.stderr)
            commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True,
                                    check=True).stdout
            self.assertEqual((there / "rubato" / "COMMIT").read_bytes(), commit)
            listed = subprocess.run([there / "rubato" / "tools" / "gpu-check", "--list"],
                                    capture_output=True, text=True, check=True).stdout.split()
            self.assertIn("collectives-device", listed)


if __name__ == "__main__":
    if subprocess.run(["git", "-C", ROOT, "rev-parse"], capture_output=True,
                      check=False).returncode != 0:
        print("skipped: no git checkout")
        sys.exit(77)
    main()
