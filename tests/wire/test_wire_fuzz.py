"""Random and damaged bytes are refused with ProtocolError, or are frames that can be encoded again."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import ProtocolError
from holdfast.wire import Frame, FrameDecoder, FrameType, encode_frame
from tests.wire.frame_cases import EVERY_FRAME, channel_of, raw

CASES = 12_000
REASONS = {"protocol.malformed", "protocol.unexpected", "limit.frame"}

ORIGINALS = [encode_frame(channel_of(frame), frame) for frame in EVERY_FRAME]


def decoded(data: bytes, chance: random.Random) -> list[tuple[int, Frame]] | str:
    """The frames of `data`, fed in random pieces; or the reason why it is refused."""
    decoder = FrameDecoder(4096)
    frames: list[tuple[int, Frame]] = []
    position = 0
    while position < len(data):
        size = chance.choice((1, 3, 8, 40, len(data)))
        try:
            frames += decoder.feed(data[position : position + size])
        except ProtocolError as error:
            return error.reason_code
        position += size
    return frames


def check_bytes(data: bytes, chance: random.Random) -> bool:
    """True where all that is complete in `data` is frames. Pieces make no difference."""
    found = decoded(data, chance)
    whole = decoded(data, random.Random(0))
    assert found == whole
    if isinstance(found, str):
        assert found in REASONS
        return False
    again = b"".join(encode_frame(*frame) for frame in found)
    assert FrameDecoder().feed(again) == found
    return True


def damaged(data: bytes, chance: random.Random) -> bytes:
    """One to three injuries; half of the time the length is put right again, so that the payload is reached."""
    hurt = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(hurt) + 1)
        injury = chance.randrange(6)
        if injury == 0 and hurt:
            hurt[place % len(hurt)] ^= 1 << chance.randrange(8)
        elif injury == 1 and hurt:
            hurt[place % len(hurt)] = chance.choice((0, 1, 0x7F, 0x80, 0x91, 0xC1, 0xDF, 0xFF))
        elif injury == 2:
            del hurt[place:]
        elif injury == 3:
            hurt += chance.randbytes(chance.randint(1, 9))
        elif injury == 4:
            hurt[place:] = chance.choice(ORIGINALS)[place:]
        else:
            hurt[place:place] = hurt[chance.randrange(len(hurt) + 1) :][: chance.randint(1, 8)]
    if chance.random() < 0.5 and len(hurt) >= 8:
        hurt[:4] = (len(hurt) - 4).to_bytes(4, "little")
    return bytes(hurt)


def test_undamaged_frames_are_frames() -> None:
    assert all(check_bytes(data, random.Random(1)) for data in (*ORIGINALS, b"".join(ORIGINALS)))


@pytest.mark.parametrize("seed", range(4))
def test_damaged_frames_are_refused_or_frames(seed: int) -> None:
    chance = random.Random(seed)
    sound = 0
    for _ in range(CASES // 4):
        data = damaged(chance.choice(ORIGINALS), chance)
        if chance.random() < 0.3:
            data = chance.choice(ORIGINALS) + data + chance.choice(ORIGINALS)
        sound += check_bytes(data, chance)

    assert 0 < sound < CASES // 4, "the damage must be neither harmless nor always fatal"


@pytest.mark.parametrize("seed", range(4))
def test_payloads_of_noise_are_refused_or_frames(seed: int) -> None:
    """A sound header before noise, so that the payload is reached; a map now and then."""
    chance = random.Random(seed)
    for _ in range(CASES // 4):
        noise = chance.randbytes(chance.randrange(60))
        if chance.random() < 0.5:
            noise = b"\x82\xa7request\x01" + chance.choice((b"\xa6result\x81\xa1a", b"\xa4name", b"")) + noise
        check_bytes(raw(chance.choice(list(FrameType)), noise), chance)


@pytest.mark.parametrize("seed", range(4))
def test_noise_is_refused_or_frames(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(CASES // 4):
        check_bytes(chance.randbytes(chance.randrange(80)), chance)


def test_single_flipped_bits_are_refused_or_frames() -> None:
    chance = random.Random(1)
    for data in ORIGINALS:
        for bit in range(8 * len(data)):
            hurt = bytearray(data)
            hurt[bit // 8] ^= 1 << bit % 8
            check_bytes(bytes(hurt), chance)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_frames(data: bytes) -> None:
    check_bytes(data, random.Random(1))
