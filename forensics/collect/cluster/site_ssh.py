"""How hosts are reached by ssh: as the site's clush.conf has it where ClusterShell is installed, else by `ssh` of the PATH.

Source: clush.conf(5), and `ClusterShell/Worker/Ssh.py` of ClusterShell 1.9 to 1.10, whose `clush` starts the same command. Its
engine is not used: it reads lines of text, and a node answers with words and a bundle of bytes, for which it is asked again.
"""

from __future__ import annotations

import configparser
import os
import shlex
from dataclasses import dataclass

from forensics.errors import ExitCode, ForensicsError

# Never a terminal, never a question: nobody answers it.
_OURS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4")
_SECTION = "Main"


@dataclass(frozen=True, slots=True)
class SiteSsh:
    """The words of the command up to the host, and how many hosts the site asks at a time (None: it does not say)."""

    argv: tuple[str, ...] = ("ssh", *_OURS)
    width: int | None = None


def site_ssh() -> SiteSsh:
    """What clush.conf says; ForensicsError naming the file and its line or key where it is no such file."""
    try:
        from ClusterShell.Defaults import config_paths
    except ImportError:
        return SiteSsh()
    parser = configparser.ConfigParser(interpolation=None)
    try:
        read = parser.read(config_paths("clush.conf"), encoding="utf-8")
        return _of(parser) if read and parser.has_section(_SECTION) else SiteSsh()
    except (configparser.Error, ValueError) as error:
        words = " ".join(str(error).split())
        raise ForensicsError(f"clush.conf of ClusterShell: {words}", ExitCode.USAGE) from error


def _of(parser: configparser.ConfigParser) -> SiteSsh:
    """Its options come first: of an option that is given twice ssh takes the first."""
    main = parser[_SECTION]
    path, options = (_words(main.get(key, "")) for key in ("ssh_path", "ssh_options"))
    user = ("-l", main["ssh_user"]) if main.get("ssh_user") else ()
    seconds = main.getfloat("connect_timeout", 0.0)
    timeout = ("-o", f"ConnectTimeout={seconds:.0f}") if seconds >= 1 else ()
    width = main.getint("fanout", 0)
    return SiteSsh((*(path or ("ssh",)), *options, *timeout, *_OURS, *user), width if width > 0 else None)


def _words(text: str) -> tuple[str, ...]:
    return tuple(map(os.path.expanduser, shlex.split(text)))
