"""Words of the tab "One round" and of exported pages, in English."""

from __future__ import annotations

ROUND: dict[str, str] = {
    "round_empty": "No round yet: run a prompt in the Live tab, or open a recording.",
    "round_back": "Previous round",
    "round_next": "Next round",
    "round_of": "Round {n} of {all}{source}",
    "round_play": "Play this round",
    "stage_draft": "Draft",
    "stage_pass": "One pass",
    "stage_cut": "The cut",
    "stage_commit": "Commit",
    "stage_draft_words": (
        "The draft proposes {drafted} tokens in {draft_ms} ms. They are guesses: nothing is "
        "decided yet. "
        "The lower bar of each box is q, how sure the draft was."
    ),
    "stage_pass_words": (
        "One pass of the target scores all {rows} positions at the same time, the last committed token "
        "and every draft token after it ({verify_ms} ms with the verdict). This is what makes it pay."
    ),
    "stage_cut_words": (
        "From left to right each draft token is accepted with probability min(1, p/q). At the first "
        "refusal a branch ends: {accepted} accepted, {rejected} rejected, {not_judged} not judged "
        "at all."
    ),
    "stage_commit_words": (
        "{tokens} tokens join the text. The last one, “{text}” ({origin}), comes from the target "
        "itself, "
        "so a round always gives at least one token, and never a token the target did not allow."
    ),
    "stage_draft_none_words": "Nothing was proposed in this round.",
    "stage_pass_none_words": "One pass of the target scores one position ({verify_ms} ms).",
    "stage_cut_none_words": "There is nothing to judge.",
    "stage_commit_none_words": "One token joins the text, “{text}”: this round is plain decoding.",
    "tree_label": "The draft as a tree; choose a token to see how it was judged",
    "prompt_end": "end of the prompt",
    "beam": "one target pass scores {rows} positions",
    "proposed": "proposed",
    "mask_label": "Attention mask of {rows} rows",
    "mask_words": "Who may look at whom: each row sees the text before, its own branch, and itself.",
    "draw_sure": "p is at least q: accepted without a draw.",
    "draw_never": "The target gives it no probability here: refused without a draw.",
    "draw_below": "The draw u = {u} is below it: accepted.",
    "draw_above": "The draw u = {u} is not below it: refused.",
    "q_none_words": (
        "This draft is deterministic: its q counts as 1, so the token is accepted with probability p."
    ),
    "greedy_words": "Greedy: p counts as 1 for the target's likeliest token and as 0 for every other.",
    "no_alternatives": "The likeliest tokens at this place were not recorded.",
    "alternatives": "Likeliest tokens at this place (greedy runs show the plain softmax)",
    "alternatives_residual": (
        "Likeliest tokens at this place; the corrected one is drawn from the residual = "
        "normalise(max(0, p − q))"
    ),
    "col_token": "token",
    "col_p": "target p",
    "col_q": "draft q",
    "col_residual": "residual",
    "exported_title": "A run of speculative decoding",
    "exported_about": "Recorded from a real run and replayed at its own pace. This page works offline.",
}
