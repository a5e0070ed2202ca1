"""The Hub asked once, with a short time-out: transformers' retries take minutes without a network."""

from __future__ import annotations

from .errors import InputError

_SECONDS = 10.0


def cached(source: str) -> bool:
    """Whether the Hub's cache on this machine has the model's configuration (perhaps not all files)."""
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(source, "config.json"), str)


def reach(name: str, source: str) -> None:
    """Raises ``InputError("model_not_found")`` unless the Hub answers that it has ``source``."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    try:
        HfApi().model_info(source, timeout=_SECONDS)
    except GatedRepoError as error:
        why = "its licence must be accepted on the Hub first"
        raise InputError("model_not_found", name=name, why=why) from error
    except RepositoryNotFoundError as error:
        why = "the Hub has no public model of that name"
        raise InputError("model_not_found", name=name, why=why) from error
    except Exception as error:  # no network, offline mode, a proxy's refusal
        why = "the Hub could not be reached"
        raise InputError("model_not_found", name=name, why=why) from error
