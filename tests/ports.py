"""Ports of 127.0.0.1 for servers that tests start."""

from __future__ import annotations

import socket


def reserved_port() -> socket.socket:
    """Return a socket that keeps a port: until it is closed, the kernel gives the port to no other process.

    The server that is to have the port can listen there meanwhile, because it sets SO_REUSEADDR, as servers in Java do.
    A port that was only free a moment ago may belong to the server of another worker when this server starts.
    """
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind(("127.0.0.1", 0))
    return keeper


def number_of(keeper: socket.socket) -> int:
    """Return the number of the port that a socket keeps."""
    return int(keeper.getsockname()[1])
