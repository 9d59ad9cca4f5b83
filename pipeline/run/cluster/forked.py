"""Make Dask usable in forked processes, which inherit none of its threads.

A fork copies no thread. Dask would hand its tasks to thread pools of the parent, or send them
through the parent's client, and wait for ever.
"""

from __future__ import annotations

import os
import sys
from threading import Lock
from typing import Any


def forget_threads_of_parent() -> None:
    """Reset Dask's thread pools and clients in a forked child process."""
    threaded: Any = sys.modules.get("dask.threaded")
    if threaded is not None:
        threaded.default_pool = None
        threaded.pools.clear()
        threaded.pools_lock = Lock()  # a thread of the parent may have held it
    client: Any = sys.modules.get("distributed.client")
    if client is not None:
        client._global_clients.clear()
        client._current_client.set(None)
        config = sys.modules["dask"].config.config
        if config.get("scheduler") == "dask.distributed":
            del config["scheduler"]


os.register_at_fork(after_in_child=forget_threads_of_parent)
