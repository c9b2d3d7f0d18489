"""The Penn Treebank: its words, the cut of its vocabulary, and files that are none of it."""

from collections import Counter

import pytest
import torch

from made_data import real_data, unpacked
from sgdf.bench.errors import DataError
from sgdf.bench.tasks.ptb.data import END, PTB, SPLITS, UNKNOWN, read_corpus


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return a folder for files of a test's own, all three of which have a short text at first."""
    monkeypatch.setenv("SGDF_DATA", str(tmp_path))
    PTB.place.mkdir()
    write(train="a b a\n", validation="a b\n", test="b a\n")
    return PTB.place


def write(**texts):
    for split, text in texts.items():
        (PTB.place / SPLITS[split]).write_text(text)


def decoded(corpus, split):
    return [corpus.words[code] for code in corpus.codes[split].tolist()]


@pytest.mark.usefixtures("place")
def test_every_line_is_ended():
    write(train=" the cat sat \n the cat\n\n sat <unk> \n", test="cat the\nthe dog")
    corpus = read_corpus(100, official=False)
    expected = "the cat sat <eos> the cat <eos> <eos> sat <unk> <eos>"
    assert " ".join(decoded(corpus, "train")) == expected
    assert " ".join(decoded(corpus, "test")) == "cat the <eos> the <unk> <eos>"
    assert corpus.codes["train"].dtype == torch.int64


@pytest.mark.usefixtures("place")
def test_the_commonest_words_of_the_training_text_are_kept():
    write(train="a a a a b b b c c <unk> d\n", validation="d d d d d d a c\n", test="c b x\n")
    for vocabulary, expected in {
        6: ["a", "b", "c", UNKNOWN, "d", END],  # of equally common ones, the first
        5: ["a", "b", "c", UNKNOWN, "d"],
        4: ["a", "b", "c", UNKNOWN],
        3: ["a", "b", UNKNOWN],
        2: ["a", UNKNOWN],
    }.items():
        corpus = read_corpus(vocabulary, official=False)
        assert list(corpus.words) == expected
        for split, text in {"train": "a a a a b b b c c <unk> d", "test": "c b x"}.items():
            kept = [word if word in expected else UNKNOWN for word in [*text.split(), END]]
            assert decoded(corpus, split) == kept


def test_a_vocabulary_larger_than_the_text_has_all_of_its_words(words):
    counts = Counter((words / "ptb/ptb.train.txt").read_text().split())
    corpus = read_corpus(1_000_000, official=False)
    assert set(corpus.words) == {*counts, END, UNKNOWN}
    codes = torch.bincount(corpus.codes["train"], minlength=len(corpus.words)).tolist()
    found = dict(zip(corpus.words, codes, strict=True))
    assert {word: found[word] for word in counts} == counts
    assert UNKNOWN in counts or found[UNKNOWN] == 0


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("text", ["", "\n"])
def test_a_text_in_which_no_word_follows_another_is_refused(split, text, place):
    write(**{split: text})
    path = place / SPLITS[split]
    with pytest.raises(DataError, match=rf"Penn Treebank.*: {path} has fewer than two words"):
        read_corpus(100, official=False)


def test_what_is_no_text_is_refused(place):
    (place / "ptb.valid.txt").write_bytes(b"\xff\xfe binary")
    with pytest.raises(DataError, match=r"ptb\.valid\.txt is no text: 'utf-8' codec") as error:
        read_corpus(100, official=False)
    assert PTB.files["ptb.valid.txt"] in str(error.value)


def test_another_text_is_taken_only_knowingly(words):
    with pytest.raises(DataError, match=r"ptb\.train\.txt is damaged, or not the published file"):
        read_corpus(100)
    assert len(read_corpus(100, official=False).words) == 100


# The real ones


@pytest.fixture
def real_files(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("SGDF_DATA", str(unpacked(tmp_path_factory, "ptb")))


@real_data
@pytest.mark.usefixtures("real_files")
def test_the_published_text_has_its_known_size():
    corpus = read_corpus(20_000)
    counts = {split: len(codes) for split, codes in corpus.codes.items()}
    assert counts == {"train": 929_589, "validation": 73_760, "test": 82_430}
    assert len(corpus.words) == 10_000  # there are no more
    assert corpus.words[:5] == ("the", UNKNOWN, END, "N", "of")
    ends = {s: (c == corpus.words.index(END)).sum().item() for s, c in corpus.codes.items()}
    assert ends == {"train": 42_068, "validation": 3_370, "test": 3_761}
    assert decoded(corpus, "train")[:4] == ["aer", "banknote", "berlitz", "calloway"]


@real_data
@pytest.mark.usefixtures("real_files")
def test_two_thousand_words_keep_87_percent_of_the_published_text():
    whole, cut = read_corpus(10_000), read_corpus(2_000)
    assert cut.words == whole.words[:2_000]
    for split in SPLITS:
        kept = cut.codes[split] == whole.codes[split]
        was_unknown = whole.codes[split] == whole.words.index(UNKNOWN)
        # 5 % are unknown in the published text itself; of the others 86 % are kept.
        assert kept.double().mean().item() == pytest.approx(0.87, abs=0.01)
        assert kept[~was_unknown].double().mean().item() == pytest.approx(0.865, abs=0.01)
        assert (cut.codes[split][~kept] == cut.words.index(UNKNOWN)).all()
