"""The Inception of the published FIDs, with random weights: the real ones are a download."""

import hashlib
import pickle
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.nn import functional

from sgdf.bench.errors import DataError, SpecError
from sgdf.bench.fidelity import inception as module
from sgdf.bench.fidelity.inception import (
    FILE,
    SHA256,
    Block,
    Conv,
    Inception,
    WithoutBias,
    as_in_pytorch_fid,
    as_in_tensorflow,
    convolution,
    mixed_8,
    mixed_35,
)


def small_network():
    """Return a network in which the extractor finds its parts."""
    return nn.Sequential(
        OrderedDict(
            Mixed_6d=Block(3, [[Conv("branch1x1", 8)], [Conv("branch7x7_1", 4, (1, 7))]]),
            Mixed_7c=convolution(12, 6, (3, 3)),
            average=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            fc=WithoutBias(6, 5),
        )
    )


def random_weights(network):
    """Return weights in the names of the file, which keep the size of what goes through."""
    noise = torch.Generator().manual_seed(0)
    with torch.device("meta"):
        shapes = {key: value.shape for key, value in network().state_dict().items()}
    found = {}
    for key, shape in shapes.items():
        if key.endswith(("conv.weight", "fc.weight")):
            deviation = (2 / shape[1:].numel()) ** 0.5
            found[key] = deviation * torch.randn(shape, generator=noise)
        elif not key.endswith("num_batches_tracked"):
            found[key] = 0.5 + torch.rand(shape, generator=noise)
    return found


@pytest.fixture(scope="module")
def extractor(tmp_path_factory):
    """The whole network."""
    path = tmp_path_factory.mktemp("weights") / FILE
    torch.save(random_weights(module.network), path)
    return Inception(path, official=False)


@pytest.fixture
def weights(monkeypatch):
    """Weights of a small network, which stands for the whole one."""
    monkeypatch.setattr(module, "network", small_network)
    return random_weights(small_network)


@pytest.fixture
def path(weights, tmp_path):
    torch.save(weights, tmp_path / FILE)
    return tmp_path / FILE


def test_it_has_the_layers_of_the_published_one():
    """It has the parameters of torchvision's, without its second head and with 8 classes more."""
    with torch.device("meta"):
        network = module.network()
    assert sum(parameter.numel() for parameter in network.parameters()) == 23_850_960
    assert sum(isinstance(part, nn.Conv2d) for part in network.modules()) == 94
    norms = [part for part in network.modules() if isinstance(part, nn.BatchNorm2d)]
    assert {norm.eps for norm in norms} == {1e-3}
    keys = set(network.state_dict())
    assert {
        *("Conv2d_1a_3x3.conv.weight", "Mixed_5b.branch5x5_2.bn.running_mean"),
        *("Mixed_6a.branch3x3dbl_3.conv.weight", "Mixed_6e.branch7x7dbl_5.bn.bias"),
        *("Mixed_7a.branch7x7x3_4.conv.weight", "Mixed_7b.branch3x3dbl_3b.conv.weight"),
        *("Mixed_7c.branch_pool.bn.running_var", "fc.weight", "fc.bias"),
    } <= keys


def test_features_are_finite_and_of_the_published_shapes(extractor):
    found = extractor(torch.randint(0, 256, (1, 3, 20, 31), dtype=torch.uint8))
    assert found.pooled.shape == (1, 2048)
    assert found.spatial.shape == (1, 7 * 17 * 17)
    assert found.probabilities.shape == (1, 1008)
    for part in vars(found).values():
        assert part.isfinite().all()
        assert part.std() > 0
    assert (found.spatial >= 0).all()
    assert found.probabilities.sum().item() == pytest.approx(1.0, abs=1e-5)


def test_features_are_those_of_the_graph(extractor):
    """mixed_6/conv is Mixed_6d's first branch; the last bias is left out; pool_3 is the mean."""
    images = torch.randint(0, 256, (1, 3, 299, 299), dtype=torch.uint8)
    found = extractor(images)
    network = extractor._network
    names = [name for name, _ in network.named_children()]
    with torch.no_grad():
        before = network[: names.index("Mixed_6d")]((images.float() - 128) / 128)
        spatial = network.Mixed_6d.branch1x1(before)[:, :7]
        last = network[names.index("Mixed_6d") : names.index("average")](before)
        logits = last.mean((2, 3)) @ network.fc.weight.T
    assert torch.equal(found.spatial.view(17, 17, 7), spatial[0].permute(1, 2, 0))
    assert torch.allclose(found.pooled, last.mean((2, 3)), rtol=1e-5)
    assert torch.allclose(found.probabilities, logits.softmax(1), rtol=1e-3, atol=1e-7)
    assert not torch.allclose(
        found.probabilities, (logits + network.fc.bias).softmax(1), rtol=1e-2, atol=1e-7
    )


@pytest.mark.parametrize("make", [lambda: mixed_35(8, 16), lambda: mixed_8(8, module.AVERAGE)])
def test_average_pooling_does_not_count_the_padding(make):
    block = make().eval()
    values = torch.rand(1, 8, 6, 6)
    pooled = block.outputs - list(block.children())[-1].conv.out_channels

    def through(counted):
        means = functional.avg_pool2d(values, 3, 1, 1, count_include_pad=counted)
        return block.branch_pool(means)

    with torch.no_grad():
        found = block(values)[:, pooled:]
        assert torch.equal(found, through(False))
        assert not torch.allclose(found[..., 0, :], through(True)[..., 0, :], rtol=1e-3)
        assert torch.allclose(found[..., 1:-1, 1:-1], through(True)[..., 1:-1, 1:-1])


def test_the_last_block_takes_the_maximum():
    with torch.device("meta"):
        network = module.network()
    last = {name: block.branches[-1][0] for name, block in network.named_children()
            if name.startswith(("Mixed_5", "Mixed_6b", "Mixed_7b", "Mixed_7c"))}  # fmt: skip
    assert isinstance(last.pop("Mixed_7c"), nn.MaxPool2d)
    assert len(last) == 5
    assert all(isinstance(pool, nn.AvgPool2d) for pool in last.values())
    block = mixed_8(8, module.MAXIMUM).eval()
    values = torch.randn(1, 8, 5, 5)
    with torch.no_grad():
        expected = block.branch_pool(functional.max_pool2d(values, 3, 1, 1))
        assert torch.equal(block(values)[:, -192:], expected)


def test_tensorflow_resizes_from_the_corner_at_the_top_left(monkeypatch):
    monkeypatch.setattr(module, "SIDE", 4)
    images = torch.tensor([[[[0.0, 128.0], [64.0, 192.0]]]])
    row = torch.tensor([0.0, 64.0, 128.0, 128.0])  # places 0, ½, 1, 1½: none beyond the last
    expected = torch.stack([row, row + 32, row + 64, row + 64])
    assert torch.equal(as_in_tensorflow(images), (expected[None, None] - 128) / 128)
    larger = torch.arange(8.0).expand(1, 1, 8, 8)
    assert torch.equal(as_in_tensorflow(larger)[0, 0, 0] * 128 + 128, torch.tensor([0.0, 2, 4, 6]))
    same = torch.rand(2, 3, 4, 4) * 255
    assert torch.equal(as_in_tensorflow(same), (same - 128) / 128)


def test_pytorch_fid_resizes_between_centres(monkeypatch):
    monkeypatch.setattr(module, "SIDE", 4)
    images = torch.tensor([[[[0.0, 255.0], [0.0, 255.0]]]])
    expected = torch.tensor([-1.0, -0.5, 0.5, 1.0]).expand(1, 1, 4, 4)
    assert torch.allclose(as_in_pytorch_fid(images), expected)


def test_the_two_ways_of_resizing_are_two_extractors(path):
    extractor = Inception(path, official=False)
    other = Inception(path, resizing="pytorch-fid", official=False)
    assert (extractor.name, other.name) == ("inception", "inception-pytorch-fid")
    assert extractor.digest != other.digest
    images = torch.randint(0, 256, (1, 3, 32, 32), dtype=torch.uint8)
    assert not torch.allclose(extractor(images).pooled, other(images).pooled, rtol=1e-2)


def test_an_unknown_way_of_resizing_is_refused(path):
    with pytest.raises(SpecError, match=r"resizing = 'pytorch': must be one of tensorflow, .*mean"):
        Inception(path, resizing="pytorch")


def test_the_name_of_the_file_has_the_beginning_of_its_checksum():
    assert FILE.endswith(f"-{SHA256[:8]}.pth")
    assert len(SHA256) == 64


def test_only_the_published_file_makes_it_the_published_inception(path, monkeypatch):
    assert not Inception(path, official=False).is_inception
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(DataError, match="not the published file") as caught:
        Inception(path)
    assert digest in str(caught.value)
    assert SHA256 in str(caught.value)
    monkeypatch.setattr(module, "SHA256", digest)
    assert Inception(path).is_inception


def test_loading_draws_no_random_numbers(path):
    generator = torch.get_rng_state()
    Inception(path, official=False)
    assert torch.equal(torch.get_rng_state(), generator)


def test_counters_in_the_file_are_ignored(weights, tmp_path):
    counters = {"Mixed_7c.bn.num_batches_tracked": torch.tensor(7)}
    torch.save(weights | counters, tmp_path / FILE)
    Inception(tmp_path / FILE, official=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fc.bias": None}, "fc.bias is in only one"),
        ({"AuxLogits.fc.weight": torch.ones(3)}, "AuxLogits.fc.weight is in only one"),
        ({"fc.bias": torch.ones(6)}, r"fc.bias has the shape \(6,\)"),
        ({"fc.bias": torch.ones(5).half()}, "fc.bias has .* the type torch.float16"),
        ({"fc.bias": 3}, "fc.bias is in only one"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights, tmp_path, change, message):
    changed = {key: value for key, value in (weights | change).items() if value is not None}
    torch.save(changed, tmp_path / FILE)
    with pytest.raises(DataError, match=message) as caught:
        Inception(tmp_path / FILE, official=False)
    assert hashlib.sha256((tmp_path / FILE).read_bytes()).hexdigest() in str(caught.value)


def test_damaged_files_are_refused(path, tmp_path):
    content = path.read_bytes()
    damaged = tmp_path / FILE
    for broken in (content[: len(content) // 2], b"weights", pickle.dumps([1, 2])):
        damaged.write_bytes(broken)
        with pytest.raises(DataError, match="has no weights of the published Inception"):
            Inception(damaged, official=False)


def test_a_file_that_runs_code_is_not_run(tmp_path):
    class Trap:
        def __reduce__(self):
            return (tmp_path.joinpath("trap").touch, ())

    (tmp_path / FILE).write_bytes(pickle.dumps(Trap()))
    with pytest.raises(DataError, match="torch cannot load it"):
        Inception(tmp_path / FILE, official=False)
    assert not (tmp_path / "trap").exists()


def test_a_missing_file_is_named_with_its_source(tmp_path):
    with pytest.raises(DataError, match=r"there is no such file\. Get it from https://github"):
        Inception(tmp_path / FILE)
