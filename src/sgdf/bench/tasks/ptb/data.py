"""The Penn Treebank as Mikolov prepared it for language models: 10,000 words, one line a sentence.

The text is licensed for research, so nothing is downloaded: users bring the files.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from ...errors import DataError
from ..assets import PublishedFiles

END, UNKNOWN = "<eos>", "<unk>"

PTB = PublishedFiles(
    title="Penn Treebank (Mikolov's files)",
    folder="ptb",
    files={
        "ptb.train.txt": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
        "ptb.valid.txt": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
        "ptb.test.txt": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
    },
    origin="Nothing is downloaded, because the text is licensed for research only. The files are "
    "in the folder data of Mikolov's simple-examples.tgz",
)
SPLITS = {"train": "ptb.train.txt", "validation": "ptb.valid.txt", "test": "ptb.test.txt"}


@dataclass(frozen=True)
class Corpus:
    """A text as numbers.

    Attributes:
        words: the vocabulary; the place of a word is its code.
        codes: the codes of each split.
    """

    words: tuple[str, ...]
    codes: dict[str, Tensor]


def read_corpus(vocabulary: int, official: bool = True) -> Corpus:
    """Return the text, each line of it ended by ``<eos>``.

    Args:
        vocabulary: how many words are kept: the commonest of the training text, the commonest
            first. All others become ``<unk>``.
        official: insist on the published files; if false, any text of one sentence a line will do.

    Raises:
        DataError: if files are missing, damaged, no text, or without two words.
    """
    texts = {split: _words(name, official) for split, name in SPLITS.items()}
    words = [word for word, _ in Counter(texts["train"]).most_common(vocabulary)]
    if UNKNOWN not in words:
        words = [*words[: vocabulary - 1], UNKNOWN]
    numbers = {word: number for number, word in enumerate(words)}
    unknown = numbers[UNKNOWN]
    return Corpus(
        tuple(words),
        {
            split: torch.tensor([numbers.get(word, unknown) for word in text])
            for split, text in texts.items()
        },
    )


def _words(name: str, official: bool) -> list[str]:
    content = PTB.content(name, official)
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise PTB.refused(f"{PTB.place / name} is no text: {error}") from error
    words = list(itertools.chain.from_iterable([*line.split(), END] for line in lines))
    if len(words) < 2:
        raise DataError(f"{PTB.title}: {PTB.place / name} has fewer than two words")
    return words
