"""Data sets that are fetched: where they are looked for, what is believed, how they are read.

Long for the many ways in which a download fails.
"""

import contextlib
import dataclasses
import errno
import io
import os
import socket
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from made_data import NOWHERE, coloured, real_data, records, sha256, tiny, unpacked, with_files
from sgdf.bench.errors import DataError, StoreError
from sgdf.bench.tasks.assets import Archive, data_folder
from sgdf.bench.tasks.cifar.data import CIFAR10, CIFAR100, MEAN, deal_by_class

CONTENT = {"one.bin": b"the first", "two.bin": bytes(range(256)) * 9000}
each_format = pytest.mark.parametrize("cifar", [CIFAR10, CIFAR100], ids=lambda cifar: cifar.test)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Let data be looked for in a folder that is not there yet."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("SGDF_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def packed(content):
    """Return a ``.tar.gz`` with files in a folder, and one that nobody asked for."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, value in {"readme.html": b"<p>", **content}.items():
            member = tarfile.TarInfo(f"tiny/{name}")
            member.size = len(value)
            archive.addfile(member, io.BytesIO(value))
    return buffer.getvalue()


PACKED = packed(CONTENT)


def whole(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(PACKED)))
    handler.end_headers()
    handler.wfile.write(PACKED)


class Server(ThreadingHTTPServer):
    """Answers every request as a test says, and counts them."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer, self.asked, self.over = whole, 0, threading.Event()

    @property
    def url(self):
        """Where the archive is."""
        return f"http://127.0.0.1:{self.server_port}/tiny.tar.gz"


class Handler(BaseHTTPRequestHandler):
    """Leaves the answer to the server."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        """Answer, and hang up."""
        self.server.asked += 1
        self.close_connection = True
        with contextlib.suppress(ConnectionError):  # a client that has had enough
            self.server.answer(self)

    def log_message(self, *arguments):
        """Say nothing."""


@pytest.fixture
def server():
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


def archive_at(url):
    return Archive(
        title="Tiny",
        url=url,
        sha256=sha256(PACKED),
        size=len(PACKED),
        folder="tiny",
        files={name: sha256(value) for name, value in CONTENT.items()},
    )


@pytest.fixture
def archive(server):
    return archive_at(server.url)


def everything_in(folder):
    return {path.relative_to(folder): path for path in folder.rglob("*") if not path.is_dir()}


# Where data are looked for


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"SGDF_DATA": "/there", "XDG_CACHE_HOME": "/caches"}, "/there"),
        ({"SGDF_DATA": "~/mine"}, "/me/mine"),
        ({"SGDF_DATA": "", "XDG_CACHE_HOME": "/caches"}, "/caches/sgdf"),
        ({"XDG_CACHE_HOME": "/caches"}, "/caches/sgdf"),
        ({"XDG_CACHE_HOME": "~/caches"}, "/me/caches/sgdf"),
        ({"XDG_CACHE_HOME": ""}, "/me/.cache/sgdf"),
        ({}, "/me/.cache/sgdf"),
    ],
)
def test_the_folder_of_the_data(variables, expected, monkeypatch):
    for name in ("SGDF_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/me", **variables}.items():
        monkeypatch.setenv(name, value)
    assert data_folder() == Path(expected)


def test_a_folder_is_named_from_the_root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SGDF_DATA", "here")
    assert data_folder() == tmp_path / "here"


def test_files_that_are_there_are_not_downloaded(folder):
    archive = archive_at(NOWHERE)
    assert archive.missing == list(CONTENT)
    (folder / "tiny").mkdir(parents=True)
    for name, value in CONTENT.items():
        (folder / "tiny" / name).write_bytes(value)
    assert archive.missing == []
    assert {name: archive.content(name) for name in CONTENT} == CONTENT


# Downloads


def test_an_archive_is_downloaded_and_unpacked_once(archive, server, folder, capsys):
    assert archive.content("two.bin") == CONTENT["two.bin"]
    assert archive.content("one.bin") == CONTENT["one.bin"]
    archive.provide()
    assert server.asked == 1
    assert set(everything_in(folder)) == {Path("tiny") / name for name in CONTENT}
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"Downloading Tiny, 0 MB, from {server.url} to {folder}"


def test_only_files_that_are_missing_are_written(archive, folder):
    (folder / "tiny").mkdir(parents=True)
    (folder / "tiny/one.bin").write_bytes(b"one's own")
    archive.provide()
    assert (folder / "tiny/one.bin").read_bytes() == b"one's own"
    assert (folder / "tiny/two.bin").read_bytes() == CONTENT["two.bin"]


def other_content(handler):
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(PACKED[:-1] + b"x")


def not_found(handler):
    handler.send_error(404)


def cut_short(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(PACKED)))
    handler.end_headers()
    handler.wfile.write(PACKED[: len(PACKED) // 2])


def cut_in_a_chunk(handler):
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"%x\r\n" % len(PACKED) + PACKED[: len(PACKED) // 2])


def silent(handler):
    handler.server.over.wait(3)


def no_http(handler):
    handler.wfile.write(b"220 welcome\r\n")


def told(error, archive, missing=tuple(CONTENT)):
    """Return the message, once it is seen that it says what is wrong and what helps."""
    text = str(error.value)
    assert "Traceback" not in text
    trouble, _, help_ = text.partition(".\nGet ")
    assert trouble.startswith(f"Tiny: {archive.place} lacks {', '.join(missing)}, and the download")
    for helpful in (archive.url, archive.sha256, str(data_folder()), "--data FOLDER", "SGDF_DATA"):
        assert helpful in help_
    for name, checksum in archive.files.items():
        assert f"\n  {checksum}  {name}" in help_
    return trouble


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (other_content, f"its SHA-256 is {sha256(PACKED[:-1] + b'x')}, not {sha256(PACKED)}"),
        (cut_short, f"its SHA-256 is {sha256(PACKED[: len(PACKED) // 2])}, not {sha256(PACKED)}"),
        (cut_in_a_chunk, "IncompleteRead"),
        (not_found, "404"),
        (silent, "timed out"),
        (no_http, "220 welcome"),
    ],
)
def test_a_download_that_fails_leaves_nothing(answer, reason, archive, server, folder, monkeypatch):
    monkeypatch.setattr("sgdf.bench.tasks.assets.SILENCE", 0.2)
    server.answer = answer
    with pytest.raises(DataError) as error:
        archive.content("one.bin")
    assert reason in told(error, archive)
    assert not list(folder.iterdir())
    server.answer = whole
    assert archive.content("one.bin") == CONTENT["one.bin"]


def test_a_server_that_is_not_there_is_told_of(folder):
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and nobody listens
        archive = archive_at(f"http://127.0.0.1:{bound.getsockname()[1]}/tiny.tar.gz")
        with pytest.raises(DataError) as error:
            archive.provide()
    assert "Connection refused" in told(error, archive)


def test_the_files_that_are_missing_are_named(folder):
    (folder / "tiny").mkdir(parents=True)
    (folder / "tiny/one.bin").write_bytes(CONTENT["one.bin"])
    with pytest.raises(DataError) as error:
        archive_at(NOWHERE).provide()
    told(error, archive_at(NOWHERE), missing=["two.bin"])


def test_a_folder_that_cannot_be_made_is_told_of(archive, server, folder):
    folder.rmdir()
    folder.write_text("a file is in the way")
    with pytest.raises(DataError) as error:
        archive.provide()
    assert f"cannot write {folder / 'tiny'}: " in told(error, archive)
    assert server.asked == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_to_is_told_of(archive, folder):
    (folder / "tiny").mkdir(parents=True)
    (folder / "tiny").chmod(0o500)
    with pytest.raises(DataError) as error:
        archive.provide()
    assert "Permission denied" in told(error, archive)


def test_a_full_disk_is_told_of_and_leaves_no_halves(archive, folder, monkeypatch):
    def no_space(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_space)
        with pytest.raises(DataError) as error:
            archive.provide()
    assert "No space left on device" in told(error, archive)
    assert not everything_in(folder)


def test_data_that_are_not_there_are_no_failure_of_a_run():
    assert issubclass(DataError, StoreError)


# What is believed


@each_format
def test_a_file_with_another_checksum_is_refused_unless_it_is_taken_knowingly(cifar, folder):
    made = tiny(cifar, folder)
    path = made.archive.place / cifar.test
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError) as error:
        made.read()
    trouble, _, help_ = str(error.value).partition(".\nGet ")
    assert f"{path} is damaged, or not the published file" in trouble
    assert sha256(content) in trouble
    assert "official = false" in trouble
    for name, checksum in made.archive.files.items():
        assert f"\n  {checksum}  {name}" in help_
    _, (images, _) = made.read(official=False)
    assert images[-1, -1, -1, -1] == content[-1]


@each_format
@pytest.mark.parametrize("change", [lambda content: content[:-1], lambda content: b""])
def test_what_are_no_whole_images_is_always_refused(cifar, change, folder):
    path = tiny(cifar, folder).archive.place / cifar.train[-1]
    content = change(path.read_bytes())
    path.write_bytes(content)
    length = 3072 + cifar.labels
    message = f"{path} has {len(content)} bytes, which are not images of {length}"
    with pytest.raises(DataError, match=message):
        cifar.read(official=False)


@each_format
def test_a_class_that_cannot_be_is_always_refused(cifar, folder):
    path = tiny(cifar, folder).archive.place / cifar.test
    labels = np.array([[0] * (cifar.labels - 1) + [number] for number in (1, cifar.classes)])
    path.write_bytes(records(labels, coloured([1, 1], 0)))
    message = f"{path} has an image of class {cifar.classes}, but there are {cifar.classes}"
    with pytest.raises(DataError, match=message):
        cifar.read(official=False)


def test_a_file_that_cannot_be_read_is_told_of(folder, monkeypatch):
    made = tiny(CIFAR100, folder)

    def stale(path):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(Path, "read_bytes", stale)
    with pytest.raises(DataError, match=r"train\.bin cannot be read: Stale file handle"):
        made.read()


# What is read


def test_ten_classes_are_read_as_they_were_written(folder):
    rng = np.random.default_rng(0)
    classes = [[7, 0, 7], [3], [0, 7], [3, 3], [0]]
    pixels = [rng.integers(0, 256, (len(part), 3, 32, 32)) for part in classes]
    content = {
        name: records(np.array(part)[:, None], images.reshape(len(part), -1))
        for name, part, images in zip(CIFAR10.train, classes, pixels, strict=True)
    }
    content["test_batch.bin"] = records(np.array([[9], [1]]), pixels[0][:2].reshape(2, -1))
    (images, found), (test_images, test_classes) = with_files(CIFAR10, folder, content).read()
    whole = np.concatenate(pixels)
    dealt = [1, 3, 0, 4, 6, 2, 8, 7, 5]  # by hand: 0, 3, 7, again 0, 3, 7, and again
    assert found.tolist() == [0, 3, 7] * 3
    assert found.dtype == test_classes.dtype == torch.int64
    assert images.dtype == test_images.dtype == torch.uint8
    assert np.array_equal(images.numpy(), whole[dealt])
    assert test_classes.tolist() == [9, 1]  # in their own order
    assert np.array_equal(test_images.numpy(), pixels[0][:2])


def test_of_two_labels_the_fine_one_is_the_class(folder):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (3, 3, 32, 32))
    train = records(np.array([[19, 99], [0, 5], [250, 40]]), pixels.reshape(3, -1))
    test = records(np.array([[4, 0]]), pixels[:1].reshape(1, -1))
    made = with_files(CIFAR100, folder, {"train.bin": train, "test.bin": test})
    (images, classes), (test_images, test_classes) = made.read()
    assert classes.tolist() == [5, 40, 99]
    assert np.array_equal(images.numpy(), pixels[[1, 2, 0]])
    assert test_classes.tolist() == [0]
    assert np.array_equal(test_images.numpy(), pixels[:1])


def test_the_files_are_read_in_their_order_whatever_order_they_are_listed_in(folder):
    made = tiny(CIFAR10, folder)
    listed = dict(reversed(made.archive.files.items()))
    other = dataclasses.replace(made, archive=dataclasses.replace(made.archive, files=listed))
    assert torch.equal(other.read()[0][0], made.read()[0][0])


@given(
    st.integers(1, 5).flatmap(
        lambda kinds: st.integers(1, 6).flatmap(
            lambda each: st.permutations(sorted([*range(kinds)] * each))
        )
    )
)
def test_any_first_or_last_images_have_as_many_of_each_class(classes):
    order = deal_by_class(torch.tensor(classes)).tolist()
    assert sorted(order) == list(range(len(classes)))
    dealt = [classes[index] for index in order]
    for cut in range(len(dealt) + 1):
        for part in (dealt[:cut], dealt[cut:]):
            counts = [part.count(kind) for kind in set(classes)]
            assert max(counts) - min(counts) <= 1


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40))
def test_images_are_dealt_out_class_by_class_in_their_order(classes):
    piles = {kind: [i for i, other in enumerate(classes) if other == kind] for kind in range(7)}
    dealt = [
        pile[turn] for turn in range(len(classes)) for pile in piles.values() if turn < len(pile)
    ]
    assert deal_by_class(torch.tensor(classes)).tolist() == dealt


# The real ones


@real_data
def test_the_checksums_are_those_of_cifar_10(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("SGDF_DATA", str(unpacked(tmp_path_factory, "cifar10")))
    (images, classes), (test_images, test_classes) = CIFAR10.read()
    assert images.shape == (50_000, 3, 32, 32)
    assert test_images.shape == (10_000, 3, 32, 32)
    assert classes.bincount().tolist() == [5000] * 10
    assert test_classes.bincount().tolist() == [1000] * 10
    assert test_classes[:5].tolist() == [3, 8, 8, 0, 6]  # a cat, two ships, an airplane, a frog
    means = [images[:, channel].float().mean().item() / 255 for channel in range(3)]
    assert means == pytest.approx(MEAN, abs=6e-5)


@real_data
def test_a_part_of_cifar_100_is_accepted_only_knowingly(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("SGDF_DATA", str(unpacked(tmp_path_factory, "cifar100")))
    with pytest.raises(DataError, match=r"train\.bin is damaged, or not the published file"):
        CIFAR100.read()
    (_, classes), (_, test_classes) = CIFAR100.read(official=False)
    assert classes.bincount().tolist() == [200] * 100
    assert test_classes.bincount().tolist() == [100] * 100
