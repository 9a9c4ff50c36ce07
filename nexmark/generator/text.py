"""Generates the strings of events from the event's number, in compiled code, in Arrow's layout."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nexmark.generator.chance import MANY, Draw, below, draw
from nexmark.generator.model import Ints, Model, choices
from primitives.kernels import kernel

Bytes = NDArray[np.uint8]

FIRST_NAMES = pa.array(["Ada", "Bruno", "Clara", "Emil", "Frida", "Hugo", "Ida", "Jonas", "Lena", "Max", "Nora"])
LAST_NAMES = pa.array(["Baker", "Carter", "Fisher", "Mason", "Miller", "Porter", "Shepherd", "Taylor", "Weaver"])
CITIES = pa.array(
    ["Boise", "Cheyenne", "Eugene", "Fresno", "Oakland", "Portland", "Sacramento", "Spokane", "Tacoma", "Tucson"]
)
STATES = pa.array(["AZ", "CA", "ID", "OR", "WA", "WY"])

#: Upper limits (exclusive) of the lengths of texts.
ITEM, DESCRIPTION, USER, HOST = 20, 100, 7, 5

# Draw numbers of each text: its characters, and its length as the last one.
_ITEM, _DESCRIPTION, _USER, _HOST, _CARD, _FILLER = (Draw.TEXT * MANY + kind * MANY for kind in range(6))
_LENGTH = MANY - 1

_BLANK, _A, _ZERO = ord(" "), ord("a"), ord("0")
#: Number of filler characters from one draw.
_SIX = 6


class Person(NamedTuple):
    """The strings of persons."""

    name: pa.Array
    email: pa.Array
    card: pa.Array
    city: pa.Array
    state: pa.Array


def people(numbers: Ints, model: Model) -> Person:
    """Returns all strings of persons except the filler."""
    names = (
        values.take(pa.array(choices(numbers, model, int(which), len(values))))
        for values, which in ((FIRST_NAMES, Draw.FIRST_NAME), (LAST_NAMES, Draw.LAST_NAME))
    )
    mail = pc.binary_join_element_wise(words(numbers, model, _USER, USER), words(numbers, model, _HOST, HOST), "@")
    return Person(
        name=pc.binary_join_element_wise(*names, " "),
        email=pc.binary_join_element_wise(mail, "com", "."),
        card=_array(*_cards(numbers, model.seed, _CARD)),
        city=CITIES.take(pa.array(choices(numbers, model, int(Draw.CITY), len(CITIES)))),
        state=STATES.take(pa.array(choices(numbers, model, int(Draw.STATE), len(STATES)))),
    )


def items(numbers: Ints, model: Model) -> pa.Array:
    """Returns the names of items."""
    return words(numbers, model, _ITEM, ITEM)


def descriptions(numbers: Ints, model: Model) -> pa.Array:
    """Returns the descriptions of items."""
    return words(numbers, model, _DESCRIPTION, DESCRIPTION)


def words(numbers: Ints, model: Model, which: int, limit: int) -> pa.Array:
    """Returns texts of 3 to less than `limit` letters and blanks, with no blanks at the ends."""
    return _array(*_words(numbers, model.seed, which, limit))


def fillers(numbers: Ints, model: Model, room: Ints) -> pa.Array:
    """Returns filler for records: texts as long as `room`, plus or minus a fifth."""
    spread = np.floor(room * 0.2 + 0.5).astype(np.int64)
    return _array(*_fillers(numbers, model.seed, _FILLER, room, np.where(room < 0, 0, spread)))


def _array(offsets: NDArray[np.int32], data: Bytes) -> pa.Array:
    return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(data[: offsets[-1]]))


@kernel
def _words(numbers: Ints, seed: np.uint64, which: int, limit: int) -> tuple[NDArray[np.int32], Bytes]:
    offsets, data = np.zeros(len(numbers) + 1, np.int32), np.empty(len(numbers) * limit, np.uint8)
    end = 0
    for at in range(len(numbers)):
        length = 3 + below(draw(seed, numbers[at], which + _LENGTH), limit - 3)
        start = end
        for nth in range(length):
            letter = below(draw(seed, numbers[at], which + nth), 13 * 26)
            blank = letter < 26
            if not (blank and end == start):
                data[end] = _BLANK if blank else _A + letter % 26
                end += 1
        while end > start and data[end - 1] == _BLANK:
            end -= 1
        offsets[at + 1] = end
    return offsets, data


@kernel
def _cards(numbers: Ints, seed: np.uint64, which: int) -> tuple[NDArray[np.int32], Bytes]:
    """Returns numbers of credit cards: four groups of four digits."""
    offsets, data = (19 * np.arange(len(numbers) + 1)).astype(np.int32), np.empty(len(numbers) * 19, np.uint8)
    for at in range(len(numbers)):
        for group in range(4):
            digits = below(draw(seed, numbers[at], which + group), 10_000)
            for place in range(4):
                data[at * 19 + group * 5 + 3 - place] = _ZERO + digits % 10
                digits //= 10
            if group < 3:
                data[at * 19 + group * 5 + 4] = _BLANK
    return offsets, data


@kernel
def _fillers(numbers: Ints, seed: np.uint64, which: int, room: Ints, spread: Ints) -> tuple[NDArray[np.int32], Bytes]:
    offsets, data = np.zeros(len(numbers) + 1, np.int32), np.empty(np.sum(np.maximum(room + spread, 0)), np.uint8)
    end = 0
    for at in range(len(numbers)):
        length = max(room[at] - spread[at], 0)
        if spread[at] > 0:
            length += below(draw(seed, numbers[at], which + _LENGTH), 2 * spread[at])
        for first in range(0, length, _SIX):
            value = draw(seed, numbers[at], which + first // _SIX) >> np.uint64(32)
            for _ in range(min(_SIX, length - first)):
                data[end] = _A + value % np.uint64(26)
                value //= np.uint64(26)
                end += 1
        offsets[at + 1] = end
    return offsets, data
