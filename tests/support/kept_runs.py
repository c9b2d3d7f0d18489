"""Do a run in a store, as a process of the bench does, and stop it where a test wants."""

import threading

from sgdf.bench.jobs.run_one import train_run
from sgdf.bench.training.ranks import Ranks


def do(run, store, stop_after=None, every=1e9, probes=()):
    """Do a run in a store, and return where it is and how it ended."""
    folder, stop, events = store.folder(run.key), threading.Event(), []
    folder.prepare(run.as_table())

    def tell(event):
        events.append(event)
        if stop_after is not None and event.get("step", -1) >= stop_after:
            stop.set()

    with folder.claim() as ours:
        assert ours
        state, line = train_run(
            run, folder, Ranks(), checkpoint_every=every, stop=stop, tell=tell, probes=probes
        )
    return folder, state, line
