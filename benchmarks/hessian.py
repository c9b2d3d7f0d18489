r"""Measure the Hessian's eigenvalues against power iteration and curvlinops: products and time.

The network is ResNet-20 with published weights, on training images of CIFAR-10:

- cost: a product against a bare double backward over the same images, in turns;
- memory: the peak of a product with 1, 4 and 16 batches, each in a process of its own;
- narrow: power iteration to the same residual, and with PyHessian's stop, for 10 values, against
  Lanczos' method and curvlinops for 50, on a narrow ResNet-8 that is trained here;
- top: the 50 largest eigenvalues of ResNet-20, and power iteration for all 50 on a diagonal
  matrix with these 50 and zeros. Of a matrix, only its spectrum matters to power iteration from
  a random vector, and zeros in place of the other eigenvalues only help it.

Power iteration finds each value among vectors that are orthogonal to those found before. Their
errors add to the residuals of the later ones, so that it has to be stricter than the residual
that is asked for: by :data:`STRICTER`.

The last part takes most of the time. Its products are kept in ``--records``, so that it can be
stopped and called again. For curvlinops, which is left out if it is not there:

    pip install -c constraints.txt --no-deps --target build/curvlinops curvlinops-for-pytorch \
        backpack-for-pytorch einconv einops jaxtyping linear_operator mpmath opt-einsum tqdm \
        unfoldNd wadler-lindig
"""

import argparse
import functools
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import nn

from sgdf.analysis.hessian import Hessian, RecordedProducts, find_eigenvalues, power_iteration
from sgdf.bench.tasks.assets import DATA_VARIABLE
from sgdf.bench.tasks.cifar.data import CIFAR10
from sgdf.bench.tasks.cifar.networks import NETWORKS, PUBLISHED, with_published_weights
from sgdf.bench.tasks.images.normalised import Normalised
from sgdf.environment import environment

ROOT = Path(__file__).parent.parent
PARTS = ("cost", "memory", "narrow", "top")
VALUES, SLOW_VALUES, RESIDUAL = 50, 10, 0.01
STRICTER = 3
FEWER, COST, MEMORY = 10.0, 1.1, 1.1
ROUNDS, MOST_BATCHES = 7, 16


def cross_entropy(model, batch):
    """Return the mean loss of a batch."""
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


@functools.cache
def training_images():
    """Return the training images of CIFAR-10 and their classes."""
    return CIFAR10.read()[0]


def batches(images, size):
    """Return the first training images in batches of a size."""
    pixels, classes = training_images()
    return list(zip(pixels[:images].split(size), classes[:images].split(size), strict=True))


def trained_network(data):
    """Return ResNet-20 with published weights."""
    return with_published_weights("resnet20", data / "weights" / "cifar10_resnet20.npz")


def narrow_network():
    """Return ResNet-8 with a quarter of its channels, trained on 2,000 images for 10 epochs."""
    torch.manual_seed(0)
    model = nn.Sequential(Normalised(**PUBLISHED), NETWORKS["resnet8"](10, 0.25))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    for _ in range(10):
        for batch in batches(2000, 100):
            optimizer.zero_grad()
            cross_entropy(model, batch).backward()
            optimizer.step()
    return model


def verdict(title, value, bound, holds):
    """Print a figure beside its bound."""
    print(f"{title}: {value:.2f}, bound {bound:g}: {'holds' if holds else 'FAILS'}", flush=True)


def cpu_seconds(function):
    """Return the processor time of a call, which other work on the machine changes little."""
    start = time.process_time()
    function()
    return time.process_time() - start


def in_turns(*functions):
    """Return the times of each function in several rounds, after one that does not count."""
    rounds = [[cpu_seconds(function) for function in functions] for _ in range(ROUNDS + 1)]
    return list(zip(*rounds[1:], strict=True))


def curvlinops_operator(model, data):
    """Return curvlinops' Hessian for scipy, or None if it is not installed."""
    sys.path.append(str(ROOT / "build" / "curvlinops"))
    try:
        from curvlinops import HessianLinearOperator
    except ModuleNotFoundError as error:
        print(f"curvlinops is left out: {error}")
        return None
    params = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return HessianLinearOperator(
        model, nn.CrossEntropyLoss(), params, data, check_deterministic=False
    ).to_scipy()


def measure_cost(data):
    """Print the cost of a product relative to a bare double backward."""
    model, pairs = trained_network(data).eval(), batches(100, 50)
    params = list(model.parameters())
    vectors = [torch.randn_like(parameter) for parameter in params]
    flat = torch.cat([vector.reshape(-1) for vector in vectors])
    hessian = Hessian(model, cross_entropy, pairs)

    def bare():
        for batch in pairs:
            gradients = torch.autograd.grad(cross_entropy(model, batch), params, create_graph=True)
            torch.autograd.grad(gradients, params, vectors)

    ours, theirs = in_turns(lambda: hessian @ flat, bare)
    ratio = statistics.median(ours) / statistics.median(theirs)
    print(f"a product over 100 images: {statistics.median(ours):.2f} s of processor time")
    verdict("one product / a bare double backward", ratio, COST, ratio <= COST)


def product_memory(data, count):
    """Print by how many MB products over batches of 32 images raise the peak.

    There are as many products as make 16 passes over a batch, since the allocator keeps more
    and more in pieces during the first few. The images are random: to read those of CIFAR-10
    would take more memory than the product.
    """
    pairs = [
        (torch.randint(256, (32, 3, 32, 32), dtype=torch.uint8), torch.randint(10, (32,)))
        for _ in range(count)
    ]
    hessian = Hessian(trained_network(data), cross_entropy, pairs)
    vector = torch.ones(hessian.shape[0], dtype=torch.float64)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(MOST_BATCHES // count):
        hessian @ vector
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


def measure_memory(data):
    """Print the peak memory of a product with 1, 4 and 16 batches."""
    peaks = []
    for count in (1, 4, MOST_BATCHES):
        command = [sys.executable, __file__, "--data", data, "--batches-in-memory", str(count)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        peaks.append(float(output))
        print(f"peak of a product over {count} batches of 32 images: {peaks[-1]:.0f} MB")
    growth = peaks[-1] / peaks[0]
    verdict(f"{MOST_BATCHES} batches / 1 batch", growth, MEMORY, growth <= MEMORY)


def compare_products(operator, exact, values, ours):
    """Print what power iteration takes and finds, and how many times fewer products ours took."""
    slow = power_iteration(operator, values, RESIDUAL / STRICTER, 10_000, stop="residual")
    early = power_iteration(operator, values)
    for name, found in (("to the same residual", slow), ("with PyHessian's stop", early)):
        off = np.abs(found.values / exact[:values] - 1)
        print(
            f"power iteration {name}: {found.products} products for {values} values, residuals up "
            f"to {found.residuals.max():.2%}, values off by up to {off.max():.2%}"
        )
    fewer = slow.products / values / (ours.products / VALUES)
    verdict("times fewer products for each value", fewer, FEWER, fewer >= FEWER)


def measure_narrow():
    """Print how many products each method takes on a narrow network."""
    model, pairs = narrow_network().eval(), batches(100, 100)
    hessian = Hessian(model, cross_entropy, pairs)
    exact = hessian.top(VALUES, which="modulus").values
    ours = hessian.top(VALUES, RESIDUAL / 2, "modulus")
    print(
        f"narrow network ({hessian.shape[0]:,} parameters, 100 images): top {VALUES} with "
        f"{ours.products} products, residuals up to {ours.residuals.max():.2%}"
    )
    compare_products(hessian, exact, SLOW_VALUES, ours)

    theirs = curvlinops_operator(model, pairs)
    if theirs is None:
        return
    count = 0

    def counted(vector):
        nonlocal count
        count += 1
        return theirs @ vector.ravel().astype(np.float32)

    operator = LinearOperator(hessian.shape, counted, dtype=np.float64)
    values = eigsh(operator, VALUES, which="LM", tol=RESIDUAL / 2)[0]
    values = values[np.argsort(-np.abs(values))]
    vector = np.ones(hessian.shape[0], np.float32)
    times = in_turns(lambda: hessian @ vector, lambda: theirs @ vector)
    ratio = statistics.median(times[0]) / statistics.median(times[1])
    print(
        f"curvlinops with eigsh: {count} products, values off by up to "
        f"{np.abs(values / exact - 1).max():.2%}; ours takes {ratio:.2f} of the time of a product"
    )


def measure_top(data, images, records):
    """Print how many products the 50 largest eigenvalues of ResNet-20 take."""
    hessian = Hessian(trained_network(data), cross_entropy, batches(images, 50))
    with RecordedProducts(hessian, records) as products:
        found = find_eigenvalues(products, VALUES, RESIDUAL / 2)
    print(
        f"ResNet-20 ({hessian.shape[0]:,} parameters, {images} images): top {VALUES} with "
        f"{found.products} products, {hessian.products} of them computed now; from "
        f"{found.values[0]:.4g} to {found.values[-1]:.4g}"
    )
    worst = 100 * found.residuals.max()
    verdict("largest relative residual in %", worst, 100 * RESIDUAL, worst <= 100 * RESIDUAL)
    spectrum = np.zeros(20_000)  # fewer zeros help power iteration a little more, and save time
    spectrum[:VALUES] = found.values
    diagonal = LinearOperator(
        (len(spectrum),) * 2, lambda vector: spectrum * vector.ravel(), dtype=np.float64
    )
    print("on a diagonal matrix with these values:")
    compare_products(diagonal, found.values, VALUES, found)


def main():
    """Print all figures with their bounds."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of CIFAR-10 and weights")
    parser.add_argument("--images", type=int, default=500, help="for the 50 eigenvalues")
    parser.add_argument("--records", type=Path, default=ROOT / "build" / "hessian")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--part", choices=PARTS, action="append", help="by default all of them")
    parser.add_argument("--batches-in-memory", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ[DATA_VARIABLE] = str(options.data)
    torch.set_num_threads(options.threads)
    if options.batches_in_memory:
        product_memory(options.data, options.batches_in_memory)
        return
    print(", ".join(f"{key} {value}" for key, value in environment().items()), flush=True)
    parts = {
        "cost": lambda: measure_cost(options.data),
        "memory": lambda: measure_memory(options.data),
        "narrow": measure_narrow,
        "top": lambda: measure_top(options.data, options.images, options.records),
    }
    for part in options.part or PARTS:
        parts[part]()


if __name__ == "__main__":
    main()
