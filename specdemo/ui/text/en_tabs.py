"""Words of the tabs after Live, in English."""

from __future__ import annotations

from .en_round import ROUND

LOSSLESS: dict[str, str] = {
    "prefix": "Text that the two tokens follow",
    "exhibit": "Rule that judges the draft",
    "heat": "Temperature",
    "draws": "Draws",
    "draw": "Draw tokens",
    "measure_gap": "Measure the gap",
    "status_measuring": "Measuring on the device.",
    "status_measured": "Measured.",
    "draw_title": "Sampling: thousands of tokens against p",
    "draw_about": (
        "Each draw is a whole speculative round after the text above: all layers of the target but "
        "the last one draft, the target verifies, with top-k 8. The outlined bars are p, computed "
        "once from the target alone; the filled bars are what came out. If the method is lossless, "
        "they agree up to chance."
    ),
    "draw_hint": (
        "Choose a rule and press Draw tokens. The first rule is the right one; then try the bugs."
    ),
    "draw_progress": "{done} of {draws} draws",
    "draw_first": "First token",
    "draw_second": "Second token",
    "draw_chart": "Shares of drawn tokens beside p; total variation distance {distance}",
    "draw_rest": "{count} others",
    "draw_numbers": (
        "Total variation distance {distance} (chance alone gives about {expected}); G = {g} with "
        "{degrees} "
        "degrees of freedom, p-value {p}."
    ),
    "draw_fits": "True draws from p look like this: nothing speaks against lossless.",
    "draw_differs": "True draws from p almost never look like this: the output is not the target's.",
    "exhibit_exact": "exact",
    "exhibit_exact_why": (
        "accept with min(1, p/q), after a refusal draw from the residual. This is the rule of this "
        "program."
    ),
    "exhibit_no_residual": "bug: no residual",
    "exhibit_no_residual_why": (
        "after a refusal the token is drawn from p again. What the draft likes then has two "
        "chances, and "
        "comes out too often."
    ),
    "exhibit_greedy_as_sampled": "bug: greedy draft, judged as sampled",
    "exhibit_greedy_as_sampled_why": (
        "the draft always takes its likeliest token, but the verdict divides by q as if it had "
        "been drawn. "
        "Such a draft has q = 1; any smaller q accepts it too often."
    ),
    "exhibit_strings": "bug: comparing strings",
    "exhibit_strings_why": (
        "the draft is taken when its text equals the target's likeliest token, blanks and case aside. "
        "That compares words where it should compare distributions."
    ),
    "exhibit_q_before_temperature": "bug: q before temperature",
    "exhibit_q_before_temperature_why": (
        "the draft samples at the chosen temperature and top-k, but reports q from before. The "
        "ratio p/q "
        "is then wrong for every token. At temperature 1 only the missing top-k is felt."
    ),
    "exhibit_typical": "typical (lossy by design)",
    "exhibit_typical_why": (
        "Medusa's rule takes what the target finds plausible. Faster, and no bug, but the output drifts "
        "from p: the distance below is its price."
    ),
    "same_title": "Greedy: the two texts side by side",
    "same_about": (
        "At temperature 0 there is no chance: with the same arithmetic both ways must give the "
        "same tokens. "
        "Scoring several rows at once can round differently, though, and where two tokens are nearly "
        "equally likely the texts may part."
    ),
    "same_missing": "Run a prompt in the Live tab with plain decoding measured.",
    "same_yes": "The same {tokens} tokens, one by one.",
    "same_parts": "The texts part at token {at}.",
    "same_sampled": (
        "The texts part at token {at}. At a temperature above 0 this is expected: both are draws "
        "from the same "
        "distribution with other random numbers. The experiment above is the test."
    ),
    "same_lossy": "The texts part at token {at}: this acceptance rule does not promise the same text.",
    "gap_unmeasured": "Press Measure the gap to score both tokens there.",
    "gap_not_live": "The gap can be measured on a live run.",
    "gap_tie": (
        "Numerical tie: the two logits there are {gap} apart (a difference up to {tolerance} is "
        "rounding in this "
        "dtype). Plain decoding's token ranks {plain}, the other {main}."
    ),
    "gap_bug": (
        "Bug: the two logits there are {gap} apart, more than rounding ({tolerance}) explains. Plain "
        "decoding's token ranks {plain}, the other {main}."
    ),
    "both_rules": "Run both rules",
    "rules_title": "Typical next to exact",
    "rules_about": (
        "The same prompt, drafter and seed under both rules. The exact rule gives the target's own "
        "text. The typical rule takes every draft that the target finds plausible: it accepts more, "
        "and the text strays. The drift says how far."
    ),
    "rules_recorded": (
        "A recorded pair: {drafter}, {model}, {dtype}, {device}. Run both rules takes the prompt of "
        "the Live tab."
    ),
    "rules_live": "The prompt of the Live tab: {drafter}, {model}, {dtype}, {device}.",
    "rules_missing": "Run both rules takes the prompt and the drafter of the Live tab.",
    "rules_rule": "rule",
    "drift_different": "not the target's first choice",
    "drift_surprise": "mean −ln p, nats",
    "drift_kl": "mean KL from the target, nats",
    "drift_of": "{different} of {tokens}",
    "drift_none": "no drift",
    "parting_none": (
        "There is no place to measure: run a prompt here, without a conversation, until texts part."
    ),
}

WHY: dict[str, str] = {
    "guess_gamma": "What if γ were",
    "guess_alpha": "What if α were (0 = as recorded)",
    "explain": "Explain this run",
    "measure_curve": "Measure the cost curve",
    "why_nothing": "There is no run with tested drafts to explain.",
    "why_empty": "Run a prompt with a drafter, then press Explain this run.",
    "why_waterfall": "Where a round's time goes",
    "why_waterfall_about": (
        "The mean round of the run on show, against plain decoding of as many tokens."
    ),
    "why_round": "one round",
    "why_round_note": "{ms} ms for τ = {tau} tokens",
    "why_plain": "plain decoding",
    "why_plain_note": "{ms} ms for {tau} tokens, {each} ms each",
    "why_prediction": "Prediction and measurement",
    "why_prediction_about": (
        "The formula of Leviathan et al. (2022) knows three numbers: α, how often a tested draft "
        "is accepted; γ, "
        "how long drafts are; c, what a draft token costs beside a plain one. It takes a verify "
        "pass to cost as "
        "much as a plain token. Step by step towards what was measured:"
    ),
    "why_measured": "measured",
    "why_step_predicted": "formula",
    "why_step_tau": "real lengths",
    "why_step_pass": "real pass cost",
    "why_predicted": "expected τ {tau} / (γ c + 1) with γ = {gamma}, c = {c}",
    "why_factor_tau": (
        "×{factor}: τ was {tau}, not {expected}; acceptance is not the same at every place"
    ),
    "why_factor_pass": "×{factor}: a verify pass cost {cost} plain tokens, not 1",
    "why_factor_overhead": "×{factor}: everything else in a round",
    "why_break_even": "This draft would pay from α = {need} on; it had α = {alpha}.",
    "why_no_break_even": (
        "A round of this draft costs more than all its tokens could save: no α makes it pay."
    ),
    "why_curve": "What a pass costs on this device",
    "why_curve_about": (
        "Decoding one token reads all weights from memory for one row of arithmetic. Verifying "
        "several rows reads "
        "them once as well. As long as the curve stays below the dashed line, extra rows are cheap."
    ),
    "why_curve_missing": (
        "Press Measure the cost curve: passes over more and more rows are timed here and now."
    ),
    "why_rows": "rows verified in one pass",
    "why_linear": "as costly as one by one",
    "why_measured_pass": "measured",
    "why_guess": "What if?",
    "why_guess_about": (
        "The recorded verdicts are walked again with another γ (or the formula with another α), "
        "priced with this "
        "run's times and, where measured, the cost curve."
    ),
    "why_guess_words": "Estimate for γ = {gamma}, α = {alpha}: τ about {tau}, {speed}.",
    "why_estimate": "estimate",
    "why_this_run": "this run, measured",
    "why_estimate_note": "An estimate, not a measurement: check it with a real run.",
    "check_guess": "Check it with a real run",
    "why_fact_bandwidth": (
        "Memory: {used} GB/s read in a one-row pass, of {best} GB/s this device was measured to "
        "read ({share})."
    ),
    "why_fact_compute": (
        "Arithmetic: {used} GFLOP/s in a pass of {rows} rows, of {best} GFLOP/s measured ({share})."
    ),
}

COMPARE: dict[str, str] = {
    "compare_all": "Compare all drafters",
    "open_second": "Add a recording",
    "compare_about": (
        "The prompt and sampling of the Live tab, through every drafter, one after the other on "
        "the same device, "
        "plain decoding first and once more at the end."
    ),
    "compare_progress": "Drafters done",
    "compare_empty": "Press Compare all drafters, or add recordings to compare them.",
    "compare_caption": "draft, verify and overhead: milliseconds a round",
    "compare_done": "Compared {count} drafters.",
    "compare_file": "recording",
    "compare_before": "before",
    "compare_after": "after",
    "compare_steady": (
        "Plain decoding: {first} tokens/s before the others, {last} after them. Speed-ups are against "
        "the mean of the two."
    ),
    "compare_changed": (
        "This machine's speed changed during the comparison: plain decoding ran at {first} tokens/s "
        "before the others and at {last} after them, {apart} apart. Speed-ups are against the mean of "
        "the two and may be off by as much; τ and α are not touched by it."
    ),
    "compare_unlike": "Not only the drafter: these runs also differ in {what}.",
    "compare_unlike_prompt": "the prompt",
    "compare_unlike_model": "the model",
    "compare_unlike_dtype": "the number format",
    "compare_unlike_device": "the device",
    "compare_unlike_seed": "the seed",
    "compare_unlike_settings": "sampling settings",
    "comma": ", ",
    "compare_tokens": "tokens",
    "compare_tau": "τ",
    "compare_alpha": "α",
    "compare_efficiency": "accepted / drafted",
    "compare_rate": "tokens/s",
    "compare_speedup": "speed-up",
    "compare_draft": "draft",
    "compare_verify": "verify",
    "compare_overhead": "overhead",
    "compare_rates": "tokens/s, and speed-up over plain decoding",
    "compare_depths": "Accepted among tested, by position in the draft",
    "compare_depth": "position in the draft",
    "compare_csv": "Save table (CSV)",
    "compare_jsonl": "Save all runs (JSONL)",
}

TABS: dict[str, str] = {**ROUND, **LOSSLESS, **WHY, **COMPARE}
