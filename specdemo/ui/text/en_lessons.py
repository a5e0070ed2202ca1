"""The lessons, their questions, the glossary and the sources, in English."""

from __future__ import annotations

from .en_glossary import GLOSSARY

LESSONS: dict[str, str] = {
    "learn_contents": "Lessons",
    "lesson_from": "Drafter {drafter}, {model}, {dtype}, {device}.",
    "lesson_no_recording": "This recording does not come with the page.",
    "lesson_no_refusal": "No draft was refused in this recording.",
    "guess_right": "Yes.",
    "guess_wrong": "Not on this run.",
    "lesson_memory": "Why decoding waits for memory",
    "lesson_memory_1": (
        "A language model writes one token at a time, because every token depends on the one "
        "before it. For "
        "each of them the machine has to read all the weights of the model from memory, once."
    ),
    "lesson_memory_2": (
        "The arithmetic for a single token is small beside that. The processor mostly waits: "
        "decoding is bound by "
        "memory, not by calculation."
    ),
    "lesson_memory_3": (
        "So if several positions could be scored in the same pass, the weights would still be read "
        "only once, and "
        "the extra positions would come nearly free, up to the point where the arithmetic catches up."
    ),
    "lesson_memory_figure": (
        "Every target pass of the recorded runs: its time against the rows it verified."
    ),
    "question_memory": (
        "In this recording, how much longer is a pass over {rows} rows than a pass over one?"
    ),
    "question_memory_0": "less than a quarter of {rows} times",
    "question_memory_1": "about half of {rows} times",
    "question_memory_2": "about {rows} times",
    "question_memory_answer": (
        "It took {many} ms instead of {one} ms: {ratio} times as long, for {rows} rows."
    ),
    "lesson_professor": "The professor and the teaching assistant",
    "lesson_professor_1": (
        "A professor dictates a text, slowly. An assistant, quick but less sure, writes down a "
        "guess of the next few "
        "words. The professor looks over all of them at one glance."
    ),
    "lesson_professor_2": (
        "Words that the professor would have said stay. At the first one that is not right, the "
        "professor says the "
        "right word, the rest is crossed out, and the assistant guesses on from there."
    ),
    "lesson_professor_3": (
        "The text is the professor's in every word. Time is saved because one glance over five "
        "words costs little "
        "more than saying one. If the assistant guesses badly or slowly, nothing is saved."
    ),
    "lesson_professor_figure": (
        "The first rounds of a recorded run: time of draft and verification, and what came of them."
    ),
    "lesson_assistant": "assistant: the draft",
    "lesson_professor_role": "professor: the target's pass",
    "question_professor": "Of the guesses that were tested in this run, how many were accepted?",
    "question_professor_0": "less than 40 %",
    "question_professor_1": "between 40 % and 80 %",
    "question_professor_2": "more than 80 %",
    "question_professor_answer": "{accepted} of {tested} tested guesses were accepted: α = {alpha}.",
    "lesson_verify": "Draft and verify",
    "lesson_verify_1": (
        "The draft does not only name a token, it also says how likely it found it: q. The "
        "target's pass gives its "
        "own probability for the same token: p."
    ),
    "lesson_verify_2": (
        "The token is accepted with probability min(1, p/q). If the target likes it at least as "
        "much as the draft "
        "did, it is always accepted; if the draft was too fond of it, it is accepted only as often "
        "as p allows."
    ),
    "lesson_verify_3": (
        "After a refusal the token is drawn from the residual, normalise(max(0, p − q)): exactly "
        "the part of p that "
        "the draft had not covered. Tokens drafted behind a refused one are not judged at all."
    ),
    "lesson_verify_figure": (
        "A refused draft of a recorded run: p, q and the residual its correction was drawn from."
    ),
    "question_verify": (
        "The draft gave “{text}” q = {q}, the target p = {p}. How likely was it to be accepted?"
    ),
    "question_verify_0": "p = {p}",
    "question_verify_1": "q = {q}",
    "question_verify_2": "p / q = {chance}",
    "question_verify_answer": (
        "min(1, p/q) = {chance}. The draw was not below it, so the token was refused."
    ),
    "lesson_quality": "Why the quality does not change",
    "lesson_quality_1": (
        "Take any token x. It can come out in two ways. Either it is drafted and accepted: that "
        "happens with "
        "probability q · min(1, p/q) = min(p, q)."
    ),
    "lesson_quality_2": (
        "Or the draft is refused and x is drawn from the residual: that adds exactly p − min(p, "
        "q), because the "
        "residual is scaled so. Together p. Whatever the draft was like, each token comes out as "
        "often as the "
        "target alone would write it."
    ),
    "lesson_quality_3": (
        "A bad draft costs time, never quality. This holds for the distribution; greedy decoding "
        "is the case where "
        "p is 1 for one token, and then even the text is the same, up to rounding where two tokens tie."
    ),
    "lesson_quality_figure": "The same place as above: both ways add up to p for every token.",
    "question_quality": (
        "The recorded greedy run with prompt lookup, and plain decoding of the same prompt: are "
        "the {tokens} tokens "
        "the same?"
    ),
    "question_quality_0": "all of them",
    "question_quality_1": "most of them",
    "question_quality_2": "only the accepted ones",
    "question_quality_answer": "The first {same} of {tokens} tokens are the same.",
    "lesson_eagle3": "EAGLE-3: a draft that looks inside the target",
    "lesson_eagle3_1": (
        "A separate draft model has to understand the text anew. EAGLE-3 instead reads what the "
        "target already "
        "knows: hidden states from a lower, a middle and an upper layer, fused into one, feed a "
        "single small layer."
    ),
    "lesson_eagle3_2": (
        "It was trained on its own outputs, as it will be used: from the second draft token on it "
        "sees its own "
        "states instead of the target's. That keeps later guesses good."
    ),
    "lesson_eagle3_3": (
        "It proposes a tree: where several continuations are plausible, it keeps more than one "
        "branch, and one pass "
        "with a tree mask judges all of them."
    ),
    "lesson_eagle3_figure": "The round of a recorded run in which most tokens were committed.",
    "question_eagle3": "How many tokens did a round of this run commit on average?",
    "question_eagle3_0": "less than 1.5",
    "question_eagle3_1": "between 1.5 and 3",
    "question_eagle3_2": "more than 3",
    "question_eagle3_answer": "τ = {tau}, from trees of {nodes} nodes on average.",
    "lesson_medusa": "Medusa and its weakness",
    "lesson_medusa_1": (
        "Medusa puts extra heads on the target's last hidden state: the first guesses the token "
        "after next, the "
        "second the one after that, all at once and almost for free."
    ),
    "lesson_medusa_2": (
        "The heads do not see each other's guesses. The third head must guess what follows two "
        "tokens it does not "
        "know, so its guesses suit many continuations and fit none well: acceptance falls with depth."
    ),
    "lesson_medusa_figure": "Accepted among tested drafts, by position, in a recorded run.",
    "question_medusa": (
        "From the first to the last position of the draft ({depth} positions), what does acceptance do?"
    ),
    "question_medusa_0": "it rises",
    "question_medusa_1": "it stays within 5 points",
    "question_medusa_2": "it falls",
    "question_medusa_answer": "{first} at the first position, {last} at the last.",
    "lesson_relaxed": "Smarter drafts, relaxed acceptance",
    "lesson_relaxed_1": (
        "Drafts can adapt: draft longer where the last guesses were right, stop where the draft "
        "itself is unsure, "
        "choose the method round by round. None of this touches the output; only the verdict decides."
    ),
    "lesson_relaxed_2": (
        "The verdict itself can be relaxed: typical acceptance takes a token that the target finds "
        "plausible "
        "enough. More is accepted, but the text is no longer the target's: this is lossy, and says "
        "so here."
    ),
    "lesson_relaxed_figure": "A recorded run with typical acceptance.",
    "question_relaxed": "How many of its {tokens} tokens were not the target's own first choice?",
    "question_relaxed_0": "none",
    "question_relaxed_1": "some, less than a fifth",
    "question_relaxed_2": "a fifth or more",
    "question_relaxed_answer": "{different} of {tokens} ({share}).",
    "lesson_frameworks": "In the serving engines",
    "lesson_frameworks_1": (
        "vLLM takes --speculative-config with a method (ngram, draft_model, eagle3, medusa and "
        "others) and a number of "
        "draft tokens. SGLang takes --speculative-algorithm (EAGLE3, STANDALONE, NGRAM)."
    ),
    "lesson_frameworks_2": (
        "The server of llama.cpp takes --spec-type and a draft model with -md; TensorRT-LLM a "
        "speculative_config with "
        "a decoding_type. With many requests at once the arithmetic is used up already, and "
        "speculation gains less."
    ),
    "lesson_frameworks_3": (
        "A client can see it at work: with streaming, vLLM sends one piece an engine step, and a "
        "piece of several "
        "tokens is a draft that was accepted. This page reads the streams of all four."
    ),
    "lesson_frameworks_figure": "A recorded run as a streaming server would send it: a piece a round.",
    "question_frameworks": (
        "This run committed {tokens} tokens. In how many pieces would they have arrived?"
    ),
    "question_frameworks_0": "{half}",
    "question_frameworks_1": "{rounds}",
    "question_frameworks_2": "{tokens}",
    "question_frameworks_answer": "{rounds} rounds, {rounds} pieces: τ = {tau} tokens a piece.",
    **GLOSSARY,
}
