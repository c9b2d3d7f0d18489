"""Tasks whose evaluation is long, and pairs of networks, named in specs by this module."""

import os
import signal

import torch
from torch import nn

from bench_tasks import Pair, Points

DRAWS = 20
"""The parts of an evaluation of ``Drawing``."""


class Drawing(Points):
    """Evaluates what its model makes of noise that is drawn part by part, and shows a picture."""

    drawn = 0
    """By this process, in all."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = []

    def begin_evaluation(self, costly):
        """Draw the seed of all noise, and show a picture of it."""
        self.begun.append(costly)
        self.seed = int(torch.randint(2**40, ()))
        noise = torch.rand(6, 8, 3, generator=torch.Generator().manual_seed(self.seed))
        self.evaluation.show("noise", (256 * noise).byte())

    def evaluate_costly(self, split):
        """Return the sum over all parts; die in the middle if the environment says so."""
        found = self.evaluation.kept(f"drawing, {split}") or {"done": 0, "sum": torch.zeros(())}
        total = found["sum"]
        for number in range(found["done"], DRAWS):
            noise = torch.Generator().manual_seed(self.seed + number)
            total += self.model(torch.randn(5, 2, generator=noise)).sum()
            Drawing.drawn += 1
            if str(Drawing.drawn) == os.environ.get("SGDF_TEST_KILL_AT"):
                os.kill(os.getpid(), signal.SIGKILL)
            state = {"done": number + 1, "sum": total}
            self.evaluation.advance(f"drawing, {split}", number + 1, DRAWS, lambda s=state: s)
        return {"drawn": total.item()}


class Centred(nn.Module):
    """Subtracts the running mean of what it has seen, which differs between processes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))

    def forward(self, inputs):
        """Take the mean of the batch into account, and subtract."""
        if self.training:
            self.mean = self.mean.lerp(inputs.detach().mean(0), 0.1)
        return inputs - self.mean


class NormedPair(Pair):
    """Has BatchNorm, and a critic whose gradients depend on a buffer."""

    averaged = "generator"

    def __init__(self, every: int = 2) -> None:
        super().__init__(every)
        self.model["generator"] = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
        self.model["critic"] = nn.Sequential(Centred(), nn.Linear(2, 1), nn.Tanh())


class QuietPair(Pair):
    """Draws no noise: the generator moves half of the points, and a gradient is penalised."""

    def step(self, batch, update):
        """Let the critic step with a double backward pass, and the generator every few times."""
        critic, generator = self.model["critic"], self.model["generator"]
        fake = generator(batch.flip(1))
        between = (0.5 * (fake.detach() + batch)).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).pow(2).sum(), between, create_graph=True)
        penalty = (slope.norm(dim=1) - 1.0).square().mean()
        critic_loss = critic(fake.detach()).mean() - critic(batch).mean() + penalty
        update(critic_loss, "critic")
        self.count += 1
        if self.count % self.every == 0:
            update(-critic(generator(batch.flip(1))).mean(), "generator")
        return {"critic": critic_loss.detach()}

    def state(self):
        """Return the weights of this process, too, so that a test can compare them."""
        weights = [param.detach().clone() for param in self.model.parameters()]
        return {**super().state(), "weights": weights}

    def evaluate(self, split):
        """Return how far the means are apart."""
        fake = self.model["generator"](self.real.flip(1))
        return {"loss": (fake.mean(0) - self.real.mean(0)).norm().item()}
