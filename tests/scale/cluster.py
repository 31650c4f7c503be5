"""Faults of a Redis or Valkey cluster: moved slots, and a lost master."""

import os
import signal
from typing import Any, NamedTuple

import redis

from tests.servers.redis import client
from tests.servers.waiting import until

BATCH = 100
"""Keys of a slot that one command moves."""


class Node(NamedTuple):
    """A line of CLUSTER NODES."""

    name: str
    port: int
    flags: list[str]
    slots: list[int]

    @property
    def is_master(self) -> bool:
        return "master" in self.flags and "fail" not in self.flags


def nodes(port: int) -> list[Node]:
    with client(port) as one:
        lines = one.execute_command("CLUSTER", "NODES").decode().splitlines()
    return [_node(line.split()) for line in lines]


def _node(fields: list[str]) -> Node:
    port = int(fields[1].partition("@")[0].rpartition(":")[2])
    ranges = (each.split("-") for each in fields[8:] if not each.startswith("["))
    slots = [slot for each in ranges for slot in range(int(each[0]), int(each[-1]) + 1)]
    return Node(fields[0], port, fields[2].split(","), slots)


def masters(port: int) -> list[Node]:
    return [node for node in nodes(port) if node.is_master]


def used_slots(node: Node) -> list[int]:
    with client(node.port) as one:
        return [slot for slot in node.slots if one.execute_command("CLUSTER", "COUNTKEYSINSLOT", slot)]


def reshard(port: int) -> int:
    """Move every slot with data of the first master to the second; return how many."""
    first, second, *_ = masters(port)
    slots = used_slots(first)
    with client(first.port) as source, client(second.port) as target:
        for slot in slots:
            _move(slot, source, target, first, second)
    return len(slots)


def _move(slot: int, source: Any, target: Any, first: Node, second: Node) -> None:
    """Move one slot key by key, which every version supports: meanwhile it is on both nodes."""
    target.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", first.name)
    source.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", second.name)
    while keys := source.execute_command("CLUSTER", "GETKEYSINSLOT", slot, BATCH):
        source.execute_command("MIGRATE", "127.0.0.1", second.port, "", 0, 5000, "REPLACE", "KEYS", *keys)
    for node in (target, source):
        node.execute_command("CLUSTER", "SETSLOT", slot, "NODE", second.name)


def lose_master(port: int) -> None:
    """Kill the master with most data, other than that at the port; wait until its replica replaces it."""
    lost = max((node for node in masters(port) if node.port != port), key=lambda node: len(used_slots(node)))
    with client(lost.port) as one:
        os.kill(one.info("server")["process_id"], signal.SIGKILL)
    until(lambda: _is_replaced(port, lost), "no replica took over")


def _is_replaced(port: int, lost: Node) -> bool:
    try:
        with client(port) as one:
            state = one.execute_command("CLUSTER", "INFO")
        return b"cluster_state:ok" in state and lost.port not in {node.port for node in masters(port)}
    except redis.RedisError:
        return False
