"""The lessons and their questions, in simplified Chinese."""

from __future__ import annotations

from .zh_glossary import GLOSSARY

LESSONS: dict[str, str] = {
    "learn_contents": "课程",
    "lesson_from": "草稿方法 {drafter}，{model}，{dtype}，{device}。",
    "lesson_no_recording": "本页没有附带这份录制。",
    "lesson_no_refusal": "这份录制中没有草稿被拒绝。",
    "guess_right": "对。",
    "guess_wrong": "在这次运行中不是。",
    "lesson_memory": "为什么解码总在等内存",
    "lesson_memory_1": (
        "语言模型一次只写一个词元，因为每个词元都取决于前一个。每写一个，机器都要从内存把模型的全部"
        "权重读一遍。"
    ),
    "lesson_memory_2": (
        "相比之下，一个词元的计算量很小。处理器大半时间在等待：解码受限于内存，而不是算力。"
    ),
    "lesson_memory_3": (
        "所以，如果同一次前向能给几个位置打分，权重仍然只读一次，多出的位置几乎不花额外时间，直到"
        "计算量追上来为止。"
    ),
    "lesson_memory_figure": "录制运行中的每一次目标前向：时间与验证的行数。",
    "question_memory": "在这份录制中，{rows} 行的前向比一行的前向长多少？",
    "question_memory_0": "不到 {rows} 倍的四分之一",
    "question_memory_1": "大约 {rows} 倍的一半",
    "question_memory_2": "大约 {rows} 倍",
    "question_memory_answer": "用了 {many} 毫秒而不是 {one} 毫秒：{rows} 行只用了 {ratio} 倍的时间。",
    "lesson_professor": "教授与助教",
    "lesson_professor_1": (
        "教授慢慢地口述一篇文章。助教手快但没那么有把握，先写下接下来几个词的猜测。教授一眼就看完它们。"
    ),
    "lesson_professor_2": (
        "教授本来会说的词留下。遇到第一个不对的词，教授说出正确的词，后面的划掉，助教从那里继续猜。"
    ),
    "lesson_professor_3": (
        "文章的每个词都是教授的。省下时间，是因为一眼看五个词并不比说一个词多花多少。助教猜得差或猜"
        "得慢，就省不下什么。"
    ),
    "lesson_professor_figure": "一次录制运行的最初几轮：草稿与验证的时间，以及得到了什么。",
    "lesson_assistant": "助教：草稿",
    "lesson_professor_role": "教授：目标模型的前向",
    "question_professor": "这次运行中检验过的猜测，有多少被接受？",
    "question_professor_0": "不到 40 %",
    "question_professor_1": "40 % 到 80 % 之间",
    "question_professor_2": "超过 80 %",
    "question_professor_answer": "检验过的 {tested} 个猜测中接受了 {accepted} 个：α = {alpha}。",
    "lesson_verify": "打草稿与验证",
    "lesson_verify_1": (
        "草稿不仅说出一个词元，还说它认为有多可能：q。目标模型的前向给出同一词元自己的概率：p。"
    ),
    "lesson_verify_2": (
        "词元以概率 min(1, p/q) 被接受。如果目标模型至少和草稿一样喜欢它，就总是接受；如果草稿偏爱过头，"
        "就只按 p 允许的频率接受。"
    ),
    "lesson_verify_3": (
        "拒绝之后，词元从残差 normalise(max(0, p − q)) 中抽取：正是 p 中草稿没有覆盖的部分。"
        "排在被拒词元之后的草稿完全不检验。"
    ),
    "lesson_verify_figure": "录制运行中一个被拒的草稿：p、q，以及抽取修正词元的残差。",
    "question_verify": "草稿给“{text}”的 q = {q}，目标模型的 p = {p}。它被接受的概率是多少？",
    "question_verify_0": "p = {p}",
    "question_verify_1": "q = {q}",
    "question_verify_2": "p / q = {chance}",
    "question_verify_answer": "min(1, p/q) = {chance}。抽得的随机数不小于它，所以这个词元被拒绝。",
    "lesson_quality": "为什么质量不变",
    "lesson_quality_1": (
        "取任意一个词元 x。它有两条路可以出现。一是被草稿提出并接受：概率为 q · min(1, p/q) = "
        "min(p, q)。"
    ),
    "lesson_quality_2": (
        "二是草稿被拒绝，而 x 从残差中抽出：这恰好补上 p − min(p, q)，因为残差就是这样缩放的。合起"
        "来是 p。"
        "不管草稿怎样，每个词元出现的频率都与目标模型单独写作时相同。"
    ),
    "lesson_quality_3": (
        "草稿差，费的是时间，绝不是质量。这说的是分布；贪心解码是 p 对某个词元为 1 的情形，"
        "那时连文本都相同，除非两个词元打平时舍入不同。"
    ),
    "lesson_quality_figure": "与上面同一位置：对每个词元，两条路加起来都是 p。",
    "question_quality": "录制的提示词查找（贪心）运行，与同一提示词的普通解码：{tokens} 个词元相同吗？",
    "question_quality_0": "全部相同",
    "question_quality_1": "大部分相同",
    "question_quality_2": "只有被接受的相同",
    "question_quality_answer": "{tokens} 个词元中前 {same} 个相同。",
    "lesson_eagle3": "EAGLE-3：看进目标模型内部的草稿",
    "lesson_eagle3_1": (
        "独立的草稿模型要重新理解文本。EAGLE-3 则读取目标模型已经知道的东西：来自低、中、高三层的隐"
        "藏状态，"
        "融合为一，送进单独一个小层。"
    ),
    "lesson_eagle3_2": (
        "它按将来使用的方式，用自己的输出来训练：从第二个草稿词元起，它看到的是自己的状态而不是目标"
        "模型的。"
        "这使后面的猜测保持良好。"
    ),
    "lesson_eagle3_3": (
        "它提出一棵树：有几种可能的续写时，就保留不止一个分支，用一次带树形掩码的前向全部检验。"
    ),
    "lesson_eagle3_figure": "录制运行中确定词元最多的一轮。",
    "question_eagle3": "这次运行平均每轮确定多少个词元？",
    "question_eagle3_0": "不到 1.5",
    "question_eagle3_1": "1.5 到 3 之间",
    "question_eagle3_2": "超过 3",
    "question_eagle3_answer": "τ = {tau}，来自平均 {nodes} 个节点的树。",
    "lesson_medusa": "Medusa 及其弱点",
    "lesson_medusa_1": (
        "Medusa 在目标模型最后的隐藏状态上加几个头：第一个猜再下一个词元，第二个猜其后一个，同时进"
        "行，几乎免费。"
    ),
    "lesson_medusa_2": (
        "这些头看不到彼此的猜测。第三个头要猜两个它还不知道的词元之后是什么，于是它的猜测迁就许多续写，"
        "却没有一个真正合适：接受率随深度下降。"
    ),
    "lesson_medusa_figure": "录制运行中检验过的草稿有多少被接受，按位置。",
    "question_medusa": "从草稿的第一个位置到最后一个（共 {depth} 个），接受率怎样变化？",
    "question_medusa_0": "上升",
    "question_medusa_1": "变化不超过 5 个百分点",
    "question_medusa_2": "下降",
    "question_medusa_answer": "第一个位置 {first}，最后一个 {last}。",
    "lesson_relaxed": "更聪明的草稿，放宽的接受",
    "lesson_relaxed_1": (
        "草稿可以自适应：刚才猜得对就写长些，草稿自己没把握就停下，逐轮选择方法。这些都不影响输出；"
        "只有裁决说了算。"
    ),
    "lesson_relaxed_2": (
        "裁决本身也可以放宽：typical 规则接受目标模型认为足够合理的词元。接受得更多，但文本不再是目"
        "标模型的："
        "这是有损的，这里也如实标明。"
    ),
    "lesson_relaxed_figure": "一次使用 typical 接受规则的录制运行。",
    "question_relaxed": "它的 {tokens} 个词元中，有多少不是目标模型自己的首选？",
    "question_relaxed_0": "没有",
    "question_relaxed_1": "有一些，不到五分之一",
    "question_relaxed_2": "五分之一或更多",
    "question_relaxed_answer": "{tokens} 个中有 {different} 个（{share}）。",
    "lesson_frameworks": "在推理引擎中",
    "lesson_frameworks_1": (
        "vLLM 用 --speculative-config 指定方法（ngram、draft_model、eagle3、medusa 等）和草稿词元数。"
        "SGLang 用 --speculative-algorithm（EAGLE3、STANDALONE、NGRAM）。"
    ),
    "lesson_frameworks_2": (
        "llama.cpp 的服务器用 --spec-type，并用 -md 指定草稿模型；TensorRT-LLM 用带 decoding_type 的 "
        "speculative_config。请求很多时计算能力已经用满，投机的收益就变小。"
    ),
    "lesson_frameworks_3": (
        "客户端能看到它在工作：流式输出时，vLLM 每个引擎步发一块，含多个词元的一块就是被接受的草稿。"
        "本页能读这四种引擎的数据流。"
    ),
    "lesson_frameworks_figure": "一次录制的运行，按流式服务器会发送的样子：每轮一块。",
    "question_frameworks": "这次运行确定了 {tokens} 个词元。它们会分几块到达？",
    "question_frameworks_0": "{half}",
    "question_frameworks_1": "{rounds}",
    "question_frameworks_2": "{tokens}",
    "question_frameworks_answer": "{rounds} 轮，{rounds} 块：每块 τ = {tau} 个词元。",
    **GLOSSARY,
}
