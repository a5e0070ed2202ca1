"""Words of the tab "One round" and of exported pages, in simplified Chinese."""

from __future__ import annotations

ROUND: dict[str, str] = {
    "round_empty": "还没有任何一轮：请在“实时”页运行一个提示词，或打开一份录制。",
    "round_back": "上一轮",
    "round_next": "下一轮",
    "round_of": "第 {n} 轮，共 {all} 轮{source}",
    "round_play": "播放这一轮",
    "stage_draft": "草稿",
    "stage_pass": "一次前向",
    "stage_cut": "截断",
    "stage_commit": "确定",
    "stage_draft_words": (
        "草稿用 {draft_ms} 毫秒提出 {drafted} 个词元。它们只是猜测，什么都还没有定。"
        "每个方框下部的横条是 q，即草稿有多确信。"
    ),
    "stage_pass_words": (
        "目标模型只用一次前向，就同时给全部 {rows} 个位置打分：最后一个已确定的词元，"
        "以及其后的每个草稿词元（连同裁决共 {verify_ms} 毫秒）。省下的时间就来自这里。"
    ),
    "stage_cut_words": (
        "从左到右，每个草稿词元以概率 min(1, p/q) 被接受。第一次拒绝就结束一个分支："
        "接受 {accepted} 个，拒绝 {rejected} 个，完全未检验 {not_judged} 个。"
    ),
    "stage_commit_words": (
        "{tokens} 个词元加入正文。最后一个“{text}”（{origin}）来自目标模型自己，"
        "所以每轮至少得到一个词元，而且绝不会有目标模型不允许的词元。"
    ),
    "stage_draft_none_words": "这一轮没有提出任何草稿。",
    "stage_pass_none_words": "目标模型一次前向给一个位置打分（{verify_ms} 毫秒）。",
    "stage_cut_none_words": "没有需要检验的词元。",
    "stage_commit_none_words": "一个词元“{text}”加入正文：这一轮就是普通解码。",
    "tree_label": "以树表示的草稿；选择一个词元，看它是怎样被检验的",
    "prompt_end": "提示词结尾",
    "beam": "一次目标前向给 {rows} 个位置打分",
    "proposed": "已提出",
    "mask_label": "{rows} 行的注意力掩码",
    "mask_words": "谁能看见谁：每一行看得见前文、自己所在的分支和它自己。",
    "draw_sure": "p 不小于 q：无需抽样即接受。",
    "draw_never": "目标模型在此处给它的概率为零：无需抽样即拒绝。",
    "draw_below": "抽得的 u = {u} 小于它：接受。",
    "draw_above": "抽得的 u = {u} 不小于它：拒绝。",
    "q_none_words": "这种草稿是确定性的：它的 q 视为 1，所以词元以概率 p 被接受。",
    "greedy_words": "贪心：目标模型最可能的词元 p 算作 1，其余都算作 0。",
    "no_alternatives": "此处最可能的词元没有被录下。",
    "alternatives": "此处最可能的词元（贪心运行显示原始 softmax）",
    "alternatives_residual": "此处最可能的词元；修正词元抽自残差 = normalise(max(0, p − q))",
    "col_token": "词元",
    "col_p": "目标 p",
    "col_q": "草稿 q",
    "col_residual": "残差",
    "exported_title": "一次投机解码的运行",
    "exported_about": "录自真实的运行，按它自己的节奏回放。此页可离线使用。",
}
