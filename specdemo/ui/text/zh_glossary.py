"""The glossary and the sources, in simplified Chinese."""

from __future__ import annotations

from .en_glossary import GLOSSARY as EN

_TERMS: dict[str, tuple[str, str]] = {
    "target": ("目标模型（target）", "我们想要其文本的模型；它对下一个词元的分布是 p。"),
    "draft_model": ("草稿模型（draft model）", "负责猜测的小模型；它的分布是 q。"),
    "drafter": ("草稿方法（drafter）", "一切能提出草稿的东西：草稿模型、头、查找、目标模型自己的几层。"),
    "proposal": ("提案（proposal）", "草稿方法在一轮中建议的词元，呈链或树。"),
    "round": ("轮（round）", "一次草稿加一次验证。"),
    "gamma": ("γ（gamma）", "一轮中草稿的最大长度；对树而言是最大深度。"),
    "verify": ("验证（verify）", "用一次目标前向给所有草稿词元打分，再从左到右接受或拒绝。"),
    "residual": ("残差（residual）", "normalise(max(0, p − q))：p 去掉草稿那部分之后剩下的。"),
    "corrected": ("修正词元（corrected token）", "拒绝之后从残差中抽取的词元。"),
    "bonus": ("奖励词元（bonus token）", "一条路径的草稿全部被接受时，从 p 中多得的一个词元。"),
    "committed": ("已确定的词元（committed）", "永久成为正文的词元。"),
    "alpha": ("α，接受率", "接受 /（接受 + 拒绝），只计检验过的词元。"),
    "efficiency": ("草稿效率", "接受 / 草稿总数，包括从未检验的词元。"),
    "tau": ("τ，平均接受长度", "每次目标前向确定的词元数；普通解码为 1。"),
    "c": ("c", "一步草稿的时间与一次目标前向的时间之比。"),
    "expected": ("期望的 τ 与加速比", "对链为 (1 − α^(γ+1)) / (1 − α)，再除以 γ c + 1。"),
    "speedup": (
        "加速比（speed-up）",
        "解码的词元/秒与普通解码之比：提示词、种子、数据类型和引擎都相同。",
    ),
    "lossless": ("无损、有损", "文本是严格服从目标模型的分布，还是偏离了它。"),
    "typical": ("exact、typical", "接受规则：min(1, p/q) 是 exact；typical 接受足够合理的词元。"),
    "chain": ("链、树", "只有一种续写的草稿，或带分支的草稿。"),
    "tree_mask": ("树形掩码（tree mask）", "前向中哪些行能看见哪些行：每行只看得见自己的分支。"),
    "lookup": ("提示词查找（n-gram）", "最后几个词以前出现过，就把当时其后的内容作为草稿。"),
    "self": ("自投机", "由目标模型自己的前几层打草稿。"),
    "keep": ("保留、回滚", "保留被接受路径的缓存行，丢弃其余。"),
    "prefill": ("预填充、解码", "先读提示词，再逐个写词元。这里只计解码时间。"),
}

GLOSSARY: dict[str, str] = {
    **EN,  # the sources stay in the language they are cited in
    "glossary": "术语表",
    "sources": "来源",
    "sources_about": "这些方法的出处。课程的文字是本项目自己的。",
    **{f"term_{key}": name for key, (name, _) in _TERMS.items()},
    **{f"term_{key}_is": words for key, (_, words) in _TERMS.items()},
}
