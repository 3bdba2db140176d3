"""Which interface of this machine has an address, and whether a named one is here."""

from __future__ import annotations

import os
import socket
import sys

LOOPBACK = {"linux": "lo", "darwin": "lo0"}.get(sys.platform, "")
VARIABLE, NCCL_VARIABLE = "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"


def chosen_interface(flag: str | None = None) -> str | None:
    """The one that was asked for, or that the environment names; None where neither does.

    >>> chosen_interface("eth99")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: --interface 'eth99' is not here; accepted: ...
    """
    names = flag or os.environ.get(VARIABLE) or None
    if names is None:
        return None
    here = sorted(name for _, name in socket.if_nameindex())
    for name in names.split(","):
        if name not in here:
            what = "--interface" if flag else VARIABLE
            raise ValueError(f"{what} {name!r} is not here; accepted: {', '.join(here)}")
    return names


def interface_of(address: str) -> str | None:
    """The interface that has the address; None where none has.

    >>> interface_of("127.0.0.1") in ("lo", "lo0", None)
    True
    """
    import psutil

    for name, addresses in psutil.net_if_addrs().items():
        if any(a.address.partition("%")[0] == address for a in addresses):
            return str(name)
    return None


def interface_for_nccl() -> str:
    """Between ranks of this machine: what the user has said of NCCL, else of Gloo, else loopback.

    >>> os.environ["NCCL_SOCKET_IFNAME"] = "eth0"
    >>> interface_for_nccl()
    'eth0'
    >>> del os.environ["NCCL_SOCKET_IFNAME"]
    """
    return os.environ.get(NCCL_VARIABLE) or chosen_interface() or LOOPBACK


def network_name() -> str:
    """Two processes of one system with the same answer share all interfaces."""
    try:
        return os.readlink("/proc/self/ns/net")
    except OSError:
        return ""
