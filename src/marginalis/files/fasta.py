"""Aligned sequences in FASTA format as rows of states, a column per site, numbered as in the package rbms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..checks import shown

# Letters in the order of their states, for DNA, RNA and proteins; the first one with all letters of a file is used.
ALPHABETS = ("-ACGT", "-ACGU", "-ACDEFGHIKLMNPQRSTVWY")


def parse_fasta(text: str) -> NDArray[np.int64]:
    """Return the sequences of a text, one per row."""
    sequences: list[str] = []
    parts: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(">"):
            if number > 1 and parts:
                sequences.append("".join(parts))
            parts = []
        elif line.strip():
            if number == 1:
                raise ValueError("does not begin with '>' as FASTA files do")
            parts.append("".join(line.split()).upper())
    if parts:
        sequences.append("".join(parts))
    if not sequences:
        raise ValueError("holds no sequences")
    for k, sequence in enumerate(sequences):
        if len(sequence) != len(sequences[0]):
            raise ValueError(
                f"sequence {k + 1} has {len(sequence)} letters, the first has {len(sequences[0])}: they must be aligned"
            )
    letters = set().union(*map(set, sequences))
    alphabet = next((x for x in ALPHABETS if letters <= set(x)), None)
    if alphabet is None:
        strange = sorted(letters - set(ALPHABETS[-1]))
        raise ValueError(f"has the letter {shown(strange[0] if strange else 'U')}; the letters are {ALPHABETS[-1]}")
    states = np.full(128, -1, dtype=np.int64)
    states[[ord(x) for x in alphabet]] = np.arange(len(alphabet))
    codes = np.frombuffer("".join(sequences).encode("ascii"), dtype=np.uint8)
    return states[codes].reshape(len(sequences), -1)
