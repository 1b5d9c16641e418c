#!/usr/bin/env python3
"""Look into a madplane plane, and change it, from Python: a wrapper of libmadctl.so over ctypes.

    import madctl
    with madctl.Plane("default") as plane:
        for route in plane.routes():
            print(hex(route.slid), "->", hex(route.dlid), route.ports)
        plane.call("links.down", port="leaf-01:1")

As a program it shows a plane, and pins a route if it is given one:

    madctl.py PLANE
    madctl.py PLANE --pin 0x11 0x22 1,2,3

Looking works while both daemons are dead. The library is found by its name, or by MADCTL_LIBRARY.
"""

import argparse
import ctypes
import ctypes.util
import json
import os
import sys
from ctypes import c_char, c_char_p, c_double, c_int, c_int32, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64

ABI = 1
ALL = -1
NEVER = 2**64 - 1
STATES = ["starting", "ready", "stopping", "stopped in order", "died", "replaced", "unknown"]


class Record(ctypes.Structure):
    """A struct of madctl.h whose texts read as str."""

    def string(self, field):
        return getattr(self, field).decode("utf-8", "replace")

    def __repr__(self):
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name, *_ in self._fields_)})"


class PlaneInfo(Record):
    _fields_ = [
        *((name, c_uint32) for name in ("state", "running", "pid", "control_pid", "workers", "default_port", "session_slots",
                                        "huge_pages")),
        *((name, c_uint64) for name in ("heartbeat_age_ns", "started_unix_ns", "uptime_ns", "startup_ns", "nodes", "switches",
                                        "links", "sessions", "default_node_guid")),
        ("name", c_char * 64),
        ("version", c_char * 72),
        ("fabric", c_char * 264),
    ]


class Worker(Record):
    _fields_ = [
        *((name, c_uint32) for name in ("worker", "cpu", "thread", "silent")),
        *((name, c_uint64) for name in ("heartbeat_age_ns", "polls_full", "polls_empty", "longest_cycle_ns", "stalls",
                                        "sessions", "nodes", "applied_generation")),
        ("busy_share", c_double),
    ]


class Session(Record):
    _fields_ = [
        *((name, c_uint32) for name in ("session", "pid", "uid", "port", "worker", "agents", "tenant", "service_class")),
        *((name, c_uint64) for name in ("node_guid", "since_unix_ns", "received", "sent", "dropped")),
        ("path_len", c_uint32),
        ("path_on_broken", c_uint32),
        ("path", c_uint8 * 64),
        ("tenant_name", c_char * 40),
        ("program", c_char * 40),
        ("node", c_char * 72),
    ]


class Counter(Record):
    _fields_ = [
        ("value", c_uint64),
        ("is_drop", c_uint32),
        ("reserved", c_uint32),
        ("stage", c_char * 16),
        ("name", c_char * 64),
    ]


class ErrorEntry(Record):
    _fields_ = [
        *((name, c_uint64) for name in ("count", "first_unix_ns", "last_unix_ns")),
        ("source", c_uint32),
        ("reserved", c_uint32),
        ("text", c_char * 232),
    ]


class Percentiles(Record):
    _fields_ = [(name, c_uint64) for name in ("count", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns")]


class Table(Record):
    _fields_ = [
        *((name, c_uint64) for name in ("generation", "dr_cache_hit", "dr_cache_miss", "retry_count", "refused")),
        *((name, c_uint32) for name in ("capacity", "routes", "damaged", "writer_pid")),
    ]


class Route(Record):
    _fields_ = [
        *((name, c_uint16) for name in ("slid", "dlid", "p_key", "tenant")),
        *((name, c_uint8) for name in ("priority", "on_broken", "path_len", "reserved")),
        ("place", c_uint32),
        *((name, c_uint64) for name in ("id", "packets", "bytes", "last_use_age_ns")),
        ("path", c_uint8 * 64),
        ("tenant_name", c_char * 32),
    ]

    @property
    def ports(self):
        return list(self.path[: self.path_len])


class Tenant(Record):
    _fields_ = [
        ("id", c_uint64),
        ("classes", c_uint64 * 4),
        ("nodes", c_uint64 * 8),
        ("uids", c_uint32 * 8),
        ("gids", c_uint32 * 8),
        ("p_keys", c_uint16 * 32),
        ("prefixes", (c_uint8 * 16) * 4),
        *((name, c_uint32) for name in ("number", "rate", "burst", "routes", "sessions")),
        *((name, c_uint8) for name in ("rights", "service_class", "p_key_count", "uid_count", "gid_count", "node_count",
                                       "prefix_count")),
        ("reserved", c_uint8 * 5),
        ("name", c_char * 32),
    ]


class Error(OSError):
    """A call failed; errno is as madctl.h says, strerror one line by the library."""


def load(path=None):
    """Loads libmadctl.so and declares its functions."""
    path = path or os.environ.get("MADCTL_LIBRARY") or ctypes.util.find_library("madctl") or "libmadctl.so"
    library = ctypes.CDLL(path)
    handle = ctypes.c_void_p
    for name, arguments, result in [
        ("abi", [], c_uint32),
        ("last_error", [], c_char_p),
        ("open", [c_char_p, ctypes.POINTER(handle)], c_int),
        ("close", [handle], None),
        ("plane", [handle, ctypes.POINTER(PlaneInfo)], c_int),
        ("worker_at", [handle, c_uint32, ctypes.POINTER(Worker)], c_int),
        ("session_at", [handle, c_uint32, ctypes.POINTER(Session)], c_int),
        ("counter_at", [handle, c_int32, c_uint32, ctypes.POINTER(Counter)], c_int),
        ("error_at", [handle, c_uint32, ctypes.POINTER(ErrorEntry)], c_int),
        ("latency", [handle, c_int32, ctypes.POINTER(Percentiles)], c_int),
        ("table", [handle, ctypes.POINTER(Table)], c_int),
        ("route_at", [handle, c_uint32, ctypes.POINTER(Route)], c_int),
        ("tenant_at", [handle, c_uint32, ctypes.POINTER(Tenant)], c_int),
        ("show", [handle, c_char_p, c_char_p, c_size_t], c_int),
        ("call", [handle, c_char_p, c_char_p, c_char_p, c_size_t], c_int),
        ("text", [handle, c_char_p, c_size_t], c_int),
    ]:
        function = getattr(library, "madctl_" + name)
        function.argtypes, function.restype = arguments, result
    if library.madctl_abi() != ABI:
        raise ImportError(f"{path} has version {library.madctl_abi()} of its structs, this wrapper {ABI}")
    return library


class Plane:
    """A plane; "" stands for MADPLANE_NAME, else for "default". Use it in a with statement, or close it."""

    def __init__(self, name="", library=None):
        self._library = library or load()
        self._handle = ctypes.c_void_p()
        self._check(self._library.madctl_open(name.encode(), ctypes.byref(self._handle)))

    def close(self):
        handle, self._handle = self._handle, ctypes.c_void_p()
        self._library.madctl_close(handle)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _check(self, result):
        if result < 0:
            raise Error(-result, self._library.madctl_last_error().decode())
        return result

    def _one(self, function, kind, *arguments):
        found = kind()
        self._check(getattr(self._library, function)(self._handle, *arguments, ctypes.byref(found)))
        return found

    def _all(self, function, kind, *arguments):
        """A list of one look: index 0 takes it, the others belong to it."""
        found = []
        while True:
            entry = kind()
            at = getattr(self._library, function)
            if not self._check(at(self._handle, *arguments, len(found), ctypes.byref(entry))):
                return found
            found.append(entry)

    def info(self):
        return self._one("madctl_plane", PlaneInfo)

    def table(self):
        return self._one("madctl_table", Table)

    def latency(self, worker=ALL):
        """hw_sync_latency, or duty cycles of a worker."""
        return self._one("madctl_latency", Percentiles, worker)

    def workers(self):
        return self._all("madctl_worker_at", Worker)

    def sessions(self):
        return self._all("madctl_session_at", Session)

    def counters(self, worker=ALL):
        return self._all("madctl_counter_at", Counter, worker)

    def errors(self):
        return self._all("madctl_error_at", ErrorEntry)

    def routes(self):
        return self._all("madctl_route_at", Route)

    def tenants(self):
        return self._all("madctl_tenant_at", Tenant)

    def _json(self, length):
        text = ctypes.create_string_buffer(self._check(length) + 1)
        self._check(self._library.madctl_text(self._handle, text, len(text)))
        return json.loads(text.value)

    def show(self, noun):
        """What a noun of madctl shows, as it prints it with --format json."""
        return self._json(self._library.madctl_show(self._handle, noun.encode(), None, 0))

    def call(self, command, **arguments):
        """Asks madctld for a change; the result is a dict."""
        text = json.dumps(arguments).encode() if arguments else None
        return self._json(self._library.madctl_call(self._handle, command.encode(), text, None, 0))


def main():
    parser = argparse.ArgumentParser(description="Shows a plane, or pins a route.")
    parser.add_argument("plane", nargs="?", default="")
    parser.add_argument("--pin", nargs=3, metavar=("SLID", "DLID", "PORTS"))
    arguments = parser.parse_args()
    try:
        with Plane(arguments.plane) as plane:
            if arguments.pin:
                slid, dlid, ports = arguments.pin
                path = [int(port, 0) for port in ports.split(",")]
                route = {"slid": int(slid, 0), "dlid": int(dlid, 0), "path": path}
                done = plane.call("routes.add", route=route, replace=True, sync=True)
                print(f"pinned: {done['routes']} of {done['capacity']}, generation {done['generation']}")
                return
            info = plane.info()
            print(f"plane {info.string('name')}: madplaned {info.string('version')}, pid {info.pid}, {STATES[info.state]}")
            print(f"fabric {info.string('fabric')}: {info.nodes} nodes, {info.links} links, {info.workers} workers")
            table = plane.table()
            print(f"table: {table.routes} routes of {table.capacity}, generation {table.generation}")
            if table.damaged:
                print(f"damaged and not shown: {table.damaged}")
            for route in plane.routes():
                ports = ",".join(map(str, route.ports))
                print(f"{route.slid:#06x} -> {route.dlid:#06x}: ports {ports}, {route.packets} packets")
            for counter in plane.counters():
                if counter.value:
                    print(f"{counter.string('name')} = {counter.value} ({counter.string('stage') or 'no stage'})")
            print(f"hw_sync_latency: {plane.latency().count} measured")
            for error in plane.errors():
                print(f"error: {error.count} times: {error.string('text')}")
    except Error as error:
        sys.exit(f"madctl.py: {error.strerror}")


if __name__ == "__main__":
    main()
