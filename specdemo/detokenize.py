"""Ids to text, token by token, without ever showing half a character."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from tokenizers import decoders
from transformers import PreTrainedTokenizerBase

_HALF = "\ufffd"  # what decoding makes of incomplete bytes


class Detokenizer:
    """Incremental: ``push`` returns the text a token adds, empty while its bytes are only a part of
    a character. The texts add up to what ``decode`` gives for all ids; bytes that never become a
    character are left out.

    Decodes a short window, not everything, because a tokenizer may treat a token by its neighbours
    (leading spaces, byte fallback). ``whole``: see ``Pieces.whole``; what it knows is not decoded."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        whole: Callable[[int], str | None] = lambda token: None,
    ) -> None:
        self._tokenizer, self._whole = tokenizer, whole
        self._window: list[int] = []
        self._shown = 0  # characters of the window's text already returned

    def push(self, token: int) -> str:
        if not self._window and (known := self._whole(token)) is not None:
            return known
        self._window.append(token)
        text = self._decode(self._window)
        settled = text.rstrip(_HALF)
        piece, whole = settled[self._shown :], len(settled) >= self._shown
        self._shown = max(self._shown, len(settled))
        # Byte fallback takes back a whole run of bytes until its last character is complete: not then.
        if settled == text and self._whole(token) is not None:
            self._window, self._shown = [], 0  # nothing is open, and the next one stands alone
        elif whole and len(self._window) > 8:
            self._shrink(settled)
        return piece.replace(_HALF, "")

    def _shrink(self, settled: str) -> None:
        """Go on with a short tail, one that has text at all (in front of the first text some decoders
        drop a space) and whose text is whole but for its two ends."""
        for size in range(3, 8):
            tail = self._window[-size:]
            text = self._decode(tail).rstrip(_HALF)
            core = text.lstrip(_HALF)
            if core and _HALF not in core and settled.endswith(core):
                self._window, self._shown = tail, len(text)
                return

    def _decode(self, ids: list[int]) -> str:
        return str(
            self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        )


class Pieces:
    """The text of a single token on its own, for draft tokens, alternatives and the like. A token
    that is only part of a character is shown by its bytes: ‹F0 9F›; a special token by its name."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._special = set(tokenizer.all_special_ids)
        self._anchor = tokenizer.encode("a", add_special_tokens=False)[-1:]
        self._lead = len(tokenizer.decode(self._anchor, clean_up_tokenization_spaces=False))
        backend = getattr(tokenizer, "backend_tokenizer", None)
        byte_level = isinstance(getattr(backend, "decoder", None), decoders.ByteLevel)
        self._byte_level = backend if byte_level else None
        self.text = lru_cache(maxsize=65536)(self._text)
        self.whole = lru_cache(maxsize=65536)(self._whole_text)

    def _whole_text(self, token: int) -> str | None:
        """The text that a token adds whatever stands around it (none for a special token), or None
        where that may depend on its neighbours. Byte-level decoders put bytes side by side, so whole
        characters are such texts."""
        if self._byte_level is None:
            return None
        text = str(self._byte_level.decode([token], skip_special_tokens=True))
        return None if _HALF in text else text

    def _text(self, token: int) -> str:
        if token >= len(self._tokenizer):
            return f"‹{token}›"  # a padded vocabulary has ids without a token
        if token in self._special:
            return str(self._tokenizer.convert_ids_to_tokens(token))
        if known := self.whole(token):
            return known
        both = str(self._tokenizer.decode([*self._anchor, token], clean_up_tokenization_spaces=False))
        text = both[self._lead :]
        return self._bytes(token) if _HALF in text else text

    def _bytes(self, token: int) -> str:
        name = str(self._tokenizer.convert_ids_to_tokens(token))
        if name.startswith("<0x") and name.endswith(">"):
            return f"‹{name[3:-1]}›"
        table = _byte_of_character()
        values = [table[c] for c in name if c in table]
        return "‹" + " ".join(f"{value:02X}" for value in values) + "›"


@lru_cache(maxsize=1)
def _byte_of_character() -> dict[str, int]:
    """The byte-level BPE alphabet (Radford et al. 2019): printable bytes stand for themselves, the
    others for characters from 256 on, in order."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in plain}
    hidden = [byte for byte in range(256) if byte not in set(plain)]
    table |= {chr(256 + index): byte for index, byte in enumerate(hidden)}
    return table
