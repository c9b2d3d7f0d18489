"""A replayed run is the run of the bench, to the last bit, watched or not."""

import torch

from sgdf.analysis.replay import replay
from sgdf.bench.spec.machine import resolve_machine
from sgdf.bench.spec.read import read
from sgdf.bench.training.randomness import isolated
from sgdf.bench.training.ranks import Ranks
from sgdf.bench.training.trainer import Trainer

DOCUMENT = {
    "task": {"name": "digits-cnn"},
    "optimizer": {"name": "sgdf", "lr": 0.5},
    "train": {"steps": 30, "batch_size": 64, "threads": 1, "device": "cpu"},
}


def the_run(**changes):
    document = {**DOCUMENT, "train": {**DOCUMENT["train"], **changes}}
    (run,) = resolve_machine(read(document), threads=1).runs
    return run


def weights_of(trainer):
    return [param.detach().clone() for param in trainer.model.parameters()]


def test_a_watched_replay_ends_with_the_weights_of_the_bench():
    run, seen = the_run(), []

    def before(moment):
        torch.randn(3)  # a watcher may use random numbers
        moment.task.loss(moment.batch)
        seen.append((moment.step, len(moment.gradients())))

    watched = weights_of(replay(run, before=before))
    with isolated(run.seed, 1):
        trainer = Trainer(run, Ranks(alone=True))
        trainer.fit(lambda _: None)
    assert all(map(torch.equal, watched, weights_of(trainer)))
    assert [step for step, _ in seen] == list(range(1, 31))
    assert {count for _, count in seen} == {len(watched)}


def test_a_replay_can_end_early_and_shows_every_step():
    steps = []
    trainer = replay(the_run(), after=lambda trainer: steps.append(trainer.step), steps=7)
    assert steps == list(range(1, 8))
    assert trainer.step == 7


def test_the_evaluation_after_the_last_step_is_left_out(monkeypatch):
    evaluated = []
    monkeypatch.setattr(Trainer, "evaluate", lambda self, costly=False: evaluated.append(1) or {})
    trainer = replay(the_run(steps=46))
    assert trainer.epochs > 1
    assert len(evaluated) == trainer.epochs - 1


def test_the_batch_of_a_moment_is_that_of_its_gradients():
    def before(moment):
        with torch.enable_grad():
            loss = moment.task.loss(moment.batch)
        params = dict(moment.task.model.named_parameters())
        again = torch.autograd.grad(loss, list(params.values()))
        for name, gradient in zip(params, again, strict=True):
            torch.testing.assert_close(moment.gradients()[name], gradient)

    replay(the_run(), before=before, steps=3)


def test_random_numbers_of_the_caller_are_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    replay(the_run(), steps=2)
    assert torch.equal(torch.rand(2), expected)
