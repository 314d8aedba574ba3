"""ports.py -- a port for ranks to meet at, that nothing else takes before they listen there."""

import socket


def hold():
    """A socket with a port of its own, at all addresses; the port is held until it is closed. It
    does not listen: a rank may, beside it, which sets SO_REUSEADDR as servers do. The kernel gives
    a port that is bound to nobody who asks for any, and to no connection."""
    try:
        held = socket.socket(socket.AF_INET6)
        held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        held.bind(("::", 0))
    except OSError: # A machine without IPv6.
        held = socket.socket()
        held.bind(("", 0))
    # Not before: with it a port may be shared with another one who holds it.
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return held


def number(held):
    return held.getsockname()[1]
