"""Make sure that a Chromium is there for the browser tests: the system's, Debian's or Playwright's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome")


def system_browser() -> str | None:
    """Path of an installed Chromium or Chrome, None without one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def main() -> int:
    if system_browser():
        return 0
    if shutil.which("apt-get") and os.geteuid() == 0:
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-qq"], env=quiet, check=False)
        subprocess.run(
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"],
            env=quiet,
            check=False,
            stdout=subprocess.DEVNULL,
        )
        if system_browser():
            return 0
    done = subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=False)
    if done.returncode:
        print("No Chromium could be installed: install it, then run again.", file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
