"""Words for runs on a serving engine, in English."""

from __future__ import annotations

SERVER: dict[str, str] = {
    "server_missing": (
        "Not reported by this server: q, refused draft tokens, the time of draft, verification and "
        "overhead, its precision, and whether its rule is lossless."
    ),
    "server_missing_short": "not reported by this server",
    "server_precision": "precision not reported",
    "server_promise": "losslessness not reported",
    "server_round": (
        "This run comes from a serving engine. It sends only the tokens that a step committed: what was "
        "drafted and refused, q and the tree are not reported by this server."
    ),
    "check_confirmed": "Checked: the accepted tokens agree with the server's own count ({told}).",
    "check_confirmed_hidden": (
        "Checked: the accepted tokens agree with the server's own count ({told}); {hidden} of them were "
        "cut off by the end of the answer."
    ),
    "check_confirmed_length": "Checked: the mean step length agrees with the server's own figure.",
    "check_differs": (
        "{inferred} tokens are coloured accepted, but the server counts {told}: chunks were merged, or "
        "others used the server at the same time. Some colours are wrong."
    ),
    "check_differs_length": (
        "The length of the steps differs from the server's own figure: chunks may have been merged, so "
        "some colours are wrong."
    ),
    "check_not_reported": "The server gives no count to check the colours against: they are inferred.",
    "check_not_finished": "The answer is not complete, so the server gave no count to check against.",
    "check_uncertain": "{count} tokens came in merged chunks: their colours are uncertain.",
    "no_baseline": "n/a: no endpoint without speculation is configured for this server.",
    "tab_load": "When a server fills",
    "load_server": "Serving engine",
    "load_most": "requests at once, up to",
    "load_length": "tokens an answer",
    "load_run": "Fill the server",
    "load_title": "When a server fills",
    "load_about": (
        "Speculation spends spare arithmetic to save passes over the weights. A full server already "
        "shares each pass among many requests, so there is less to save: watch the speed-up fall as "
        "more requests run at once."
    ),
    "load_empty": "Press Fill the server to measure.",
    "load_caption": "all requests together; each row is measured by itself",
    "load_at_once": "at once",
    "load_rate": "tokens/s, all",
    "load_plain_rate": "without speculation",
    "load_each": "tokens/s, each",
    "load_first": "first token, ms",
    "load_failed": "failed",
    "load_plain": "plain",
    "load_checks": "accepted counts checked: {confirmed} of {all} agree with the server's own",
    "load_progress": "Steps done",
    "load_save": "Save this table (JSON)",
}
