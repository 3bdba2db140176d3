"""Which interface of this machine has an address, and whether a named one is here."""

from __future__ import annotations

import os
import socket
import sys

LOOPBACK = {"linux": "lo", "darwin": "lo0"}.get(sys.platform, "")
VARIABLE = "GLOO_SOCKET_IFNAME"


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
