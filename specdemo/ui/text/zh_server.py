"""在推理服务器上运行时的文字：简体中文。"""

from __future__ import annotations

SERVER: dict[str, str] = {
    "server_missing": (
        "该服务器未报告：q、被拒绝的草稿词元、草稿、验证与其他开销各自的时间、数值精度，以及它的规则是否无损。"
    ),
    "server_missing_short": "该服务器未报告",
    "server_precision": "精度未报告",
    "server_promise": "是否无损未报告",
    "server_round": (
        "这次运行来自推理服务器。它只发送每一步提交的词元："
        "草稿提出并被拒绝了什么、q 以及草稿树，该服务器都未报告。"
    ),
    "check_confirmed": "已核对：标为“接受”的词元数与服务器自己的计数一致（{told}）。",
    "check_confirmed_hidden": (
        "已核对：接受的词元与服务器自己的计数一致（{told}）；其中 {hidden} 个因回答结束而被截去。"
    ),
    "check_confirmed_length": "已核对：每步的平均长度与服务器自己的数字一致。",
    "check_differs": (
        "有 {inferred} 个词元标为“接受”，但服务器的计数是 {told}："
        "数据块被合并了，或者同时有别人在使用这台服务器。部分颜色有误。"
    ),
    "check_differs_length": "每步长度与服务器自己的数字不符：数据块可能被合并，部分颜色有误。",
    "check_not_reported": "服务器没有给出可供核对的计数：颜色是推断出来的。",
    "check_not_finished": "回答不完整，因此服务器没有给出可供核对的计数。",
    "check_uncertain": "有 {count} 个词元来自合并的数据块：它们的颜色不确定。",
    "no_baseline": "无：这台服务器没有配置不带投机解码的端点。",
    "tab_load": "服务器满载时",
    "load_server": "推理服务器",
    "load_most": "同时请求数，最多",
    "load_length": "每个回答的词元数",
    "load_run": "逐步加满服务器",
    "load_title": "服务器越来越满时",
    "load_about": (
        "投机解码用空闲的算力来减少读取权重的次数。服务器满载时，每次前向本来就由许多请求分担，"
        "可省的就少了：看看同时运行的请求越多，加速比如何下降。"
    ),
    "load_empty": "按“逐步加满服务器”开始测量。",
    "load_caption": "所有请求合计；每一行单独测量",
    "load_at_once": "同时",
    "load_rate": "词元/秒，合计",
    "load_plain_rate": "不用投机解码",
    "load_each": "词元/秒，每个请求",
    "load_first": "首个词元，毫秒",
    "load_failed": "失败",
    "load_plain": "普通解码",
    "load_checks": "接受计数已核对：{all} 个中有 {confirmed} 个与服务器自己的一致",
    "load_progress": "已完成的步骤",
    "load_save": "保存此表（JSON）",
}
