"""Whether two models' token ids mean the same: what a draft model must fulfil."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import InputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from .target import Target


def same_tokenizer(a: PreTrainedTokenizerBase, b: PreTrainedTokenizerBase) -> bool:
    """Whether token ids mean the same in both, special tokens included.

    One may know more *added* tokens, if they come after all the other's: so differ the sizes of one
    family. Rows that merely pad a model's vocabulary have no token and are not looked at."""
    small, large = sorted((a, b), key=len)
    known, more = small.get_vocab(), large.get_vocab()
    if any(more.get(token) != index for token, index in known.items()):
        return False
    border, added = max(known.values(), default=-1), large.get_added_vocab()
    return all(index > border and token in added for token, index in more.items() if token not in known)


def check_tokenizers(target: Target, draft: Target) -> None:
    """Raises ``InputError("tokenizer_mismatch")`` unless ids mean the same to both models and the
    draft has a row for every token that the target's tokenizer knows."""
    last = max(target.tokenizer.get_vocab().values(), default=-1)
    if last >= draft.shape.vocab or not same_tokenizer(target.tokenizer, draft.tokenizer):
        raise InputError("tokenizer_mismatch", draft=draft.name, target=target.name)
