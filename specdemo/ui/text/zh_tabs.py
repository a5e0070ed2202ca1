"""Words of the tabs after Live, in simplified Chinese."""

from __future__ import annotations

from .zh_round import ROUND

LOSSLESS: dict[str, str] = {
    "prefix": "两个词元之前的文本",
    "exhibit": "检验草稿的规则",
    "heat": "温度",
    "draws": "抽样次数",
    "draw": "抽取词元",
    "measure_gap": "测量差距",
    "status_measuring": "正在设备上测量。",
    "status_measured": "已测量。",
    "draw_title": "采样：成千上万个词元对照 p",
    "draw_about": (
        "每次抽样都是接在上面文本之后的完整一轮投机解码：目标模型除最后一层外的各层打草稿，目标模型验证，"
        "top-k 为 8。"
        "空心条是 p，由目标模型单独算出一次；实心条是实际得到的。如果方法无损，两者只差随机波动。"
    ),
    "draw_hint": "选一条规则，然后按“抽取词元”。第一条是正确的规则；再试试那些错误。",
    "draw_progress": "已抽样 {done} / {draws} 次",
    "draw_first": "第一个词元",
    "draw_second": "第二个词元",
    "draw_chart": "抽得词元的占比与 p 对照；总变差距离 {distance}",
    "draw_rest": "其余 {count} 个",
    "draw_numbers": (
        "总变差距离 {distance}（仅随机波动约为 {expected}）；G = {g}，自由度 {degrees}，p 值 {p}。"
    ),
    "draw_fits": "真正从 p 抽样就是这个样子：没有证据表明输出有损。",
    "draw_differs": "真正从 p 抽样几乎不会是这个样子：输出已不再服从目标模型的分布。",
    "exhibit_exact": "exact（正确）",
    "exhibit_exact_why": "以 min(1, p/q) 接受，拒绝后从残差中抽取。这就是本程序的规则。",
    "exhibit_no_residual": "错误：没有残差",
    "exhibit_no_residual_why": "拒绝之后又从 p 中抽取。草稿喜欢的词元于是有两次机会，出现得太多。",
    "exhibit_greedy_as_sampled": "错误：把贪心草稿当作采样来检验",
    "exhibit_greedy_as_sampled_why": (
        "草稿总取它最可能的词元，检验时却除以 q，仿佛它是抽样得来的。这样的草稿 q = 1；更小的 q 会接"
        "受得太多。"
    ),
    "exhibit_strings": "错误：比较字符串",
    "exhibit_strings_why": (
        "草稿的文本与目标最可能的词元相同（不计空白与大小写）就接受。该比较分布的地方比较了文字。"
    ),
    "exhibit_q_before_temperature": "错误：温度之前的 q",
    "exhibit_q_before_temperature_why": (
        "草稿按所选温度和 top-k 采样，报告的却是处理之前的 q。于是每个词元的 p/q 都是错的。"
        "温度为 1 时只看得出少了 top-k。"
    ),
    "exhibit_typical": "typical（本来就有损）",
    "exhibit_typical_why": (
        "Medusa 的规则接受目标认为合理的词元。更快，也不是错误，但输出会偏离 p：下面的距离就是代价。"
    ),
    "same_title": "贪心：两段文本并列",
    "same_about": (
        "温度为 0 时没有随机性：算术相同，两种方式必得相同的词元。不过同时给多行打分，舍入可能不同，"
        "在两个词元几乎同样可能的地方，文本可能分开。"
    ),
    "same_missing": "请在“实时”页运行一个提示词，并测量普通解码。",
    "same_yes": "{tokens} 个词元逐个相同。",
    "same_parts": "文本在第 {at} 个词元处分开。",
    "same_sampled": (
        "文本在第 {at} 个词元处分开。温度大于 0 时这是意料之中：两者用不同的随机数从同一分布抽取。"
        "上面的实验才是检验。"
    ),
    "same_lossy": "文本在第 {at} 个词元处分开：这条接受规则不保证文本相同。",
    "gap_unmeasured": "按“测量差距”，给那里的两个词元打分。",
    "gap_not_live": "只有实时运行才能测量差距。",
    "gap_tie": (
        "数值打平：那里的两个 logit 相差 {gap}（在此数据类型下，{tolerance} 以内属于舍入）。"
        "普通解码的词元排第 {plain}，另一个排第 {main}。"
    ),
    "gap_bug": (
        "错误：那里的两个 logit 相差 {gap}，超出舍入（{tolerance}）所能解释。"
        "普通解码的词元排第 {plain}，另一个排第 {main}。"
    ),
    "both_rules": "运行两条规则",
    "rules_title": "typical 与 exact 并列",
    "rules_about": (
        "提示词、草稿方法和种子都相同，只换接受规则。exact 得到的就是目标模型自己的文本；"
        "typical 接受目标模型认为合理的每个草稿词元：接受得更多，文本却会偏离。漂移说明偏了多远。"
    ),
    "rules_recorded": (
        "录制的一对运行：{drafter}，{model}，{dtype}，{device}。按“运行两条规则”改用“实时”页的提示词。"
    ),
    "rules_live": "“实时”页的提示词：{drafter}，{model}，{dtype}，{device}。",
    "rules_missing": "“运行两条规则”使用“实时”页的提示词和草稿方法。",
    "rules_rule": "规则",
    "drift_different": "不是目标首选的词元",
    "drift_surprise": "平均 −ln p（nat）",
    "drift_kl": "与目标分布的平均 KL（nat）",
    "drift_of": "{tokens} 个中有 {different} 个",
    "drift_none": "无漂移",
    "parting_none": "没有可测量之处：请在此运行一个提示词（不是对话），直到文本分开。",
}

WHY: dict[str, str] = {
    "guess_gamma": "如果 γ 为",
    "guess_alpha": "如果 α 为（0 = 按录制）",
    "explain": "解释这次运行",
    "measure_curve": "测量成本曲线",
    "why_nothing": "没有检验过草稿的运行可以解释。",
    "why_empty": "请先用一种草稿方法运行提示词，再按“解释这次运行”。",
    "why_waterfall": "一轮的时间去了哪里",
    "why_waterfall_about": "所示运行的平均一轮，对照同样多词元的普通解码。",
    "why_round": "一轮",
    "why_round_note": "{ms} 毫秒得到 τ = {tau} 个词元",
    "why_plain": "普通解码",
    "why_plain_note": "{tau} 个词元要 {ms} 毫秒，每个 {each} 毫秒",
    "why_prediction": "预测与实测",
    "why_prediction_about": (
        "Leviathan 等人（2022）的公式只知道三个数：α，检验过的草稿有多常被接受；γ，草稿有多长；"
        "c，一个草稿词元相对普通词元的花费。它假定一次验证与一个普通词元一样贵。下面一步步走到实测值："
    ),
    "why_measured": "实测",
    "why_step_predicted": "公式",
    "why_step_tau": "真实长度",
    "why_step_pass": "真实前向成本",
    "why_predicted": "期望 τ {tau} / (γ c + 1)，γ = {gamma}，c = {c}",
    "why_factor_tau": "×{factor}：τ 是 {tau}，不是 {expected}；接受率并非处处相同",
    "why_factor_pass": "×{factor}：一次验证的成本是 {cost} 个普通词元，不是 1 个",
    "why_factor_overhead": "×{factor}：一轮中其余的一切",
    "why_break_even": "α 至少达到 {need}，这种草稿才划算；实际 α = {alpha}。",
    "why_no_break_even": "这种草稿一轮的花费超过它所有词元能省下的：α 再高也不划算。",
    "why_curve": "这台设备上一次前向的成本",
    "why_curve_about": (
        "解码一个词元要从内存读取全部权重，却只做一行的计算。验证多行也只读一次。"
        "只要曲线在虚线之下，多出的行就便宜。"
    ),
    "why_curve_missing": "按“测量成本曲线”，就在此时此地测量行数逐渐增多的前向时间。",
    "why_rows": "一次前向验证的行数",
    "why_linear": "与逐个解码一样贵",
    "why_measured_pass": "实测",
    "why_guess": "如果换一种设置？",
    "why_guess_about": (
        "用另一个 γ 重走录下的裁决（或用另一个 α 代入公式），按这次运行的时间计价；若已测量，也用成"
        "本曲线。"
    ),
    "why_guess_words": "γ = {gamma}、α = {alpha} 的估计：τ 约 {tau}，{speed}。",
    "why_estimate": "估计",
    "why_this_run": "这次运行，实测",
    "why_estimate_note": "这是估计，不是测量：请用真实的运行来核对。",
    "check_guess": "用真实运行核对",
    "why_fact_bandwidth": "内存：一行的前向读取 {used} GB/s，这台设备实测可读 {best} GB/s（{share}）。",
    "why_fact_compute": "计算：{rows} 行的前向 {used} GFLOP/s，实测可达 {best} GFLOP/s（{share}）。",
}

COMPARE: dict[str, str] = {
    "compare_all": "比较所有草稿方法",
    "open_second": "加入一份录制",
    "compare_about": (
        "“实时”页的提示词与采样设置，在同一设备上依次用每种草稿方法运行；普通解码在最前和最后各做一次。"
    ),
    "compare_progress": "已完成的草稿方法",
    "compare_empty": "按“比较所有草稿方法”，或加入录制文件来比较。",
    "compare_caption": "草稿、验证、其他开销：每轮毫秒数",
    "compare_done": "已比较 {count} 种草稿方法。",
    "compare_file": "录制",
    "compare_before": "之前",
    "compare_after": "之后",
    "compare_steady": (
        "普通解码：其他方法之前 {first} 词元/秒，之后 {last} 词元/秒。加速比以两次的平均为基准。"
    ),
    "compare_changed": (
        "比较期间这台机器的速度变了：普通解码在其他方法之前为 {first} 词元/秒，"
        "之后为 {last} 词元/秒，相差 {apart}。"
        "加速比以两次的平均为基准，可能有同样大的偏差；τ 和 α 不受影响。"
    ),
    "compare_unlike": "不仅草稿方法不同：这些运行还在以下方面不同：{what}。",
    "compare_unlike_prompt": "提示词",
    "compare_unlike_model": "模型",
    "compare_unlike_dtype": "数值格式",
    "compare_unlike_device": "设备",
    "compare_unlike_seed": "种子",
    "compare_unlike_settings": "采样设置",
    "comma": "、",
    "compare_tokens": "词元",
    "compare_tau": "τ",
    "compare_alpha": "α",
    "compare_efficiency": "接受 / 草稿",
    "compare_rate": "词元/秒",
    "compare_speedup": "加速比",
    "compare_draft": "草稿",
    "compare_verify": "验证",
    "compare_overhead": "其他",
    "compare_rates": "词元/秒，以及相对普通解码的加速比",
    "compare_depths": "按草稿中的位置，检验过的有多少被接受",
    "compare_depth": "草稿中的位置",
    "compare_csv": "保存表格（CSV）",
    "compare_jsonl": "保存所有运行（JSONL）",
}

TABS: dict[str, str] = {**ROUND, **LOSSLESS, **WHY, **COMPARE}
