"""Weights in the layout of Google's files: what they mean, and which files are refused."""

import io
import os
import zipfile

import numpy as np
import pytest
import torch

from made_vit import ATTENTION, TINY, made_arrays, plain_features
from sgdf.bench.errors import DataError
from sgdf.bench.tasks.vit.google import POSITIONS, read_weights, write_weights
from sgdf.bench.tasks.vit.transformer import VisionTransformer

FIRST = "Transformer/encoderblock_0"


def saved(tmp_path, arrays):
    path = tmp_path / "weights.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("grid", [3, 4])
def test_the_features_are_those_of_the_arrays_in_plain_numpy(grid, tmp_path):
    arrays = made_arrays(grid=grid)
    transformer = read_weights(saved(tmp_path, arrays), "tiny", TINY).eval().double()
    images = torch.randn(5, 3, 2 * grid, 2 * grid, dtype=torch.float64)
    with torch.no_grad():
        found = transformer(images)
    np.testing.assert_allclose(found.numpy(), plain_features(arrays, images.numpy()), rtol=1e-9)


def test_what_is_written_is_read_again_to_the_last_bit_and_is_trained(tmp_path):
    transformer = VisionTransformer(TINY, 6)
    path = tmp_path / "weights.npz"
    path.write_bytes(write_weights(transformer))
    again = read_weights(path, "tiny", TINY)
    for name, value in transformer.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name
    assert all(parameter.requires_grad for parameter in again.parameters())


def test_every_array_of_a_backbone_is_read_and_written_and_no_head(tmp_path):
    arrays = made_arrays()
    path = tmp_path / "again.npz"
    path.write_bytes(write_weights(read_weights(saved(tmp_path, arrays), "tiny", TINY)))
    used = {name for name in arrays if not name.startswith(("head/", "pre_logits/"))}
    with np.load(path) as again:
        assert set(again.files) == used
        for name in used:
            np.testing.assert_array_equal(again[name], arrays[name], err_msg=name)


def test_reading_weights_draws_no_random_numbers(tmp_path):
    path = saved(tmp_path, made_arrays())
    before = torch.get_rng_state()
    read_weights(path, "tiny", TINY)
    assert torch.equal(torch.get_rng_state(), before)


def test_half_precision_is_read_as_float32(tmp_path):
    arrays = {name: array.astype(np.float16) for name, array in made_arrays().items()}
    transformer = read_weights(saved(tmp_path, arrays), "tiny", TINY)
    assert {parameter.dtype for parameter in transformer.parameters()} == {torch.float32}


def changed(**changes):
    """Return the arrays with others in the place of some, or without them."""
    arrays = made_arrays() | changes
    return {name: array for name, array in arrays.items() if array is not None}


QUERY = f"{FIRST}/{ATTENTION}/query/kernel"
MISFITS = {
    "lacks a block": (
        {f"{FIRST}/LayerNorm_0/scale": None},
        f"it has no {FIRST}/LayerNorm_0/scale",
    ),
    "lacks positions": ({POSITIONS: None}, f"it has no {POSITIONS}"),
    "other heads": (
        {QUERY: np.zeros((8, 4, 2), np.float32)},
        rf"{QUERY} has the shape \(8, 4, 2\) in place of \(8, 2, 4\)",
    ),
    "another patch": (
        {"embedding/kernel": np.zeros((4, 4, 3, 8), np.float32)},
        r"embedding/kernel has the shape \(4, 4, 3, 8\) in place of \(2, 2, 3, 8\)",
    ),
    "no square grid": (
        {POSITIONS: np.zeros((1, 8, 8), np.float32)},
        r"has the shape \(1, 8, 8\), which is no square grid and one place",
    ),
    "flat positions": (
        {POSITIONS: np.zeros(80, np.float32)},
        r"has the shape \(80,\), which is no square grid",
    ),
    "one block more": (
        {"Transformer/encoderblock_2/LayerNorm_0/scale": np.zeros(8, np.float32)},
        "it has Transformer/encoderblock_2/LayerNorm_0/scale, one block too many",
    ),
    "not a number": (
        {"cls": np.full((1, 1, 8), np.nan, np.float32)},
        "cls has values that are not finite numbers with a point",
    ),
    "whole numbers": (
        {"cls": np.zeros((1, 1, 8), np.int64)},
        "cls has values that are not finite numbers with a point",
    ),
    "pickles": ({"cls": np.array([{}], object)}, "cls has values that are not finite numbers"),
}


@pytest.mark.parametrize("kind", MISFITS)
def test_a_file_that_does_not_fit_is_refused_in_one_sentence(kind, tmp_path):
    changes, message = MISFITS[kind]
    path = saved(tmp_path, changed(**changes))
    with pytest.raises(DataError, match=f"has no weights of tiny: .*{message}") as caught:
        read_weights(path, "tiny", TINY)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def with_claim(path, name, shape):
    """Put an array in a file of which there is nothing but a header that claims a shape."""
    member = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(member, header)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(f"{name}.npy", member.getvalue())


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        (QUERY, (8, 2, 10**15), r"has the shape \(8, 2, 10{15}\) in place of \(8, 2, 4\)"),
        (POSITIONS, (1, 1 + 10**14, 8), ""),
    ],
)
def test_an_array_that_claims_to_be_huge_is_refused_before_it_is_read(
    name, shape, message, tmp_path
):
    path = saved(tmp_path, changed(**{name: None}))
    with_claim(path, name, shape)
    with pytest.raises(DataError, match=f"{path} has no weights of tiny: .*{message}"):
        read_weights(path, "tiny", TINY)


def test_what_has_the_name_of_an_array_and_is_none_is_refused(tmp_path):
    path = saved(tmp_path, changed(cls=None))
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("cls", "none")
    with pytest.raises(DataError, match="has no weights of tiny"):
        read_weights(path, "tiny", TINY)


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"PK\x03\x04 cut short", b"\x93NUMPY\x01\x00"]
)
def test_what_is_no_file_of_arrays_is_refused(content, tmp_path):
    path = tmp_path / "weights.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match="has no weights of tiny") as caught:
        read_weights(path, "tiny", TINY)
    assert "\n" not in str(caught.value)


def test_an_array_in_place_of_several_is_refused(tmp_path):
    path = tmp_path / "weights.npz"
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(DataError, match="it does not hold arrays by name"):
        read_weights(path, "tiny", TINY)


def test_a_file_that_was_cut_short_or_damaged_is_refused(tmp_path):
    arrays = made_arrays()
    path = saved(tmp_path, arrays)
    content = path.read_bytes()
    damaged = content.replace(arrays["cls"].tobytes(), bytes(arrays["cls"].nbytes))
    assert damaged != content
    for wrong in (content[: len(content) // 2], damaged):
        path.write_bytes(wrong)
        with pytest.raises(DataError, match="has no weights of tiny"):
            read_weights(path, "tiny", TINY)


@pytest.mark.usefixtures("_watchdog")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    path = tmp_path / "weights.npz"
    os.mkfifo(path)
    with pytest.raises(DataError, match="is a pipe, not a file"):
        read_weights(path, "tiny", TINY)
