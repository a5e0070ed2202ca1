"""The glossary and the sources, in English."""

from __future__ import annotations

_TERMS: dict[str, tuple[str, str]] = {
    "target": ("target", "The model whose text is wanted; its distribution of the next token is p."),
    "draft_model": ("draft model", "A smaller model that guesses; its distribution is q."),
    "drafter": (
        "drafter",
        "Anything that proposes: a draft model, heads, a lookup, the target's own layers.",
    ),
    "proposal": ("proposal", "The tokens a drafter suggests in one round, as a chain or a tree."),
    "round": ("round", "One draft and one verification."),
    "gamma": ("γ (gamma)", "The longest draft of a round; for trees the greatest depth."),
    "verify": (
        "verify",
        "Score every draft token in one target pass, then accept or reject from left to right.",
    ),
    "residual": (
        "residual",
        "normalise(max(0, p − q)): what is left of p once the draft's part is taken away.",
    ),
    "corrected": ("corrected token", "The token drawn from the residual after a rejection."),
    "bonus": ("bonus token", "One more token from p when every draft token of a path was accepted."),
    "committed": ("committed tokens", "Tokens that are part of the text for good."),
    "alpha": ("α, acceptance rate", "Accepted / (accepted + rejected), of tested tokens only."),
    "efficiency": ("draft efficiency", "Accepted / drafted, tokens that were never judged included."),
    "tau": ("τ, mean accepted length", "Committed tokens a target pass; plain decoding has 1."),
    "c": ("c", "Time of one draft step over time of one target pass."),
    "expected": (
        "expected τ and speed-up",
        "For a chain (1 − α^(γ+1)) / (1 − α), and that over γ c + 1.",
    ),
    "speedup": (
        "speed-up",
        "Decode tokens/s over those of plain decoding: same prompt, seed, dtype and engine.",
    ),
    "lossless": (
        "lossless, lossy",
        "Whether the text follows the target's distribution exactly, or drifts from it.",
    ),
    "typical": (
        "exact, typical",
        "Acceptance rules: min(1, p/q) is exact; typical takes what is plausible enough.",
    ),
    "chain": ("chain, tree", "A draft with one continuation, or with branches."),
    "tree_mask": (
        "tree mask",
        "Which rows of a pass may look at which: each one at its own branch only.",
    ),
    "lookup": (
        "prompt lookup (n-gram)",
        "Drafts what followed the last words earlier in prompt or text.",
    ),
    "self": ("self-speculation", "The target's own first layers make the draft."),
    "keep": ("keep, rollback", "Keep the cache rows of the accepted path, and drop the others."),
    "prefill": (
        "prefill, decode",
        "Reading the prompt, then writing token by token. Only decode time counts here.",
    ),
}

_SOURCES: dict[str, str] = {
    "leviathan": (
        "Leviathan, Kalman, Matias: Fast Inference from Transformers via Speculative Decoding. 2022, "
        "arXiv 2211.17192. The acceptance rule, expected τ and speed-up."
    ),
    "chen": (
        "Chen et al.: Accelerating Large Language Model Decoding with Speculative Sampling. 2023, "
        "arXiv 2302.01318."
    ),
    "stern": (
        "Stern, Shazeer, Uszkoreit: Blockwise Parallel Decoding for Deep Autoregressive Models. 2018, "
        "arXiv 1811.03115. Guess and check, for greedy decoding."
    ),
    "specinfer": "Miao et al.: SpecInfer. 2023, arXiv 2305.09781. Token trees and their verification.",
    "medusa": "Cai et al.: Medusa. 2024, arXiv 2401.10774. Heads, and typical acceptance.",
    "eagle": "Li et al.: EAGLE. 2024, arXiv 2401.15077. Drafting on the target's hidden states.",
    "eagle3": "Li et al.: EAGLE-3. 2025, arXiv 2503.01840. Fused layers, training on own outputs.",
    "skip": "Zhang et al.: Draft & Verify. 2023, arXiv 2309.08168. Self-speculation by skipping layers.",
    "layerskip": "Elhoushi et al.: LayerSkip. 2024, arXiv 2404.16710. Early exit and self-speculation.",
    "lookup": "Saxena: Prompt Lookup Decoding. 2023, github.com/apoorvumang/prompt-lookup-decoding.",
    "bench": "Xia et al.: Unlocking Efficiency in LLM Inference (Spec-Bench). 2024, arXiv 2401.07851.",
    "typical": (
        "Hewitt, Manning, Liang: Truncation Sampling as Language Model Desmoothing. 2022, arXiv "
        "2210.15191."
    ),
}

GLOSSARY: dict[str, str] = {
    "glossary": "Glossary",
    "sources": "Sources",
    "sources_about": "Where the methods come from. The words of these lessons are this project's own.",
    **{f"term_{key}": name for key, (name, _) in _TERMS.items()},
    **{f"term_{key}_is": words for key, (_, words) in _TERMS.items()},
    **{f"source_{key}": words for key, words in _SOURCES.items()},
}
