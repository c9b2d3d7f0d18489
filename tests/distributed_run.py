"""What each process of test_train.py's test with torchrun does."""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

from sgdf.bench.processes import Processes
from sgdf.bench.spec import read, settled
from sgdf.bench.train import Trainer

document = {
    "task": {"name": "bench_tasks:Plain"},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "train": {"epochs": 3, "batch_size": 16, "accumulate": 2},
}
with Processes() as processes:
    (run,) = settled(read(document), 1, processes.count).runs
    trainer = Trainer(run, processes)
    trainer.fit(lambda trainer: None, lambda row: None)
    state = trainer.state()
    again = Trainer(run, processes)
    again.load(state)
    assert len(state["processes"]) == 2
    content = {
        "model": again.model.state_dict(),
        "steps": trainer.step,
        "loss": trainer.rows[-1]["train"]["loss"],
    }
    torch.save(content, Path(sys.argv[1]) / f"{processes.rank}.pt")
