#!/usr/bin/env python3
"""test_ports.py -- a port that is held is nobody else's: shown in a network namespace whose kernel
has only four to give."""

import errno
import os
import pathlib
import socket
import subprocess
import sys
import unittest

from ports import hold, number
from programs import main

FIRST, COUNT = 40000, 4
RANGE = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range")
INSIDE = "inside"


def given():
    """All ports that the kernel still gives to who asks for any."""
    ports = set()
    sockets = []
    try:
        while True:
            sockets.append(socket.socket())
            sockets[-1].bind(("127.0.0.1", 0))
            ports.add(number(sockets[-1]))
    except OSError as error:
        assert error.errno == errno.EADDRINUSE, error
    for one in sockets:
        one.close()
    return ports


def connected(server):
    """All ports that connections still get."""
    ports, sockets = set(), []
    try:
        while True:
            sockets.append(socket.create_connection(server))
            ports.add(number(sockets[-1]))
    except OSError as error:
        assert error.errno == errno.EADDRNOTAVAIL, error
    for one in sockets: # Without a wait for the last segments.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes([1, 0, 0, 0, 0, 0, 0, 0]))
        one.close()
    return ports


class Ports(unittest.TestCase):
    def setUp(self):
        self.all = set(range(FIRST, FIRST + COUNT))
        self.server = socket.create_server(("127.0.0.1", FIRST - 1))
        self.addCleanup(self.server.close)

    def test_nobody_gets_it(self):
        with hold() as held:
            port = number(held)
            self.assertIn(port, self.all)
            self.assertEqual(given(), self.all - {port})
            self.assertEqual(connected(self.server.getsockname()), self.all - {port})
            for address in ("127.0.0.1", "127.0.0.2", ""):
                with socket.socket() as other:
                    with self.assertRaises(OSError) as caught:
                        other.bind((address, port))
                    self.assertEqual(caught.exception.errno, errno.EADDRINUSE)
            with hold() as other:
                self.assertNotEqual(number(other), port)
        self.assertEqual(given(), self.all) # So the above is the holding's doing.
        self.assertEqual(connected(self.server.getsockname()), self.all)

    def test_ranks_listen_at_it(self):
        with hold() as held:
            for _ in range(2):
                for address in ("127.0.0.1", ""):
                    with socket.create_server((address, number(held))) as rank: # SO_REUSEADDR.
                        rank.listen()
                        with socket.create_connection(("127.0.0.1", number(held)), 10):
                            rank.accept()[0].close()


if __name__ == "__main__":
    if sys.argv[1:] != [INSIDE]:
        words = ["unshare", "--user", "--map-root-user", "--net"]
        if subprocess.run([*words, "true"], stdin=subprocess.DEVNULL).returncode:
            print("skipped: no network namespace can be made")
            sys.exit(77)
        sys.exit(subprocess.call([*words, sys.executable, "-B", __file__, INSIDE]))
    del sys.argv[1:]
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    RANGE.write_text(f"{FIRST} {FIRST + COUNT - 1}\n")
    main()
