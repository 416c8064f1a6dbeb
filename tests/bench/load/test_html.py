import re
from dataclasses import replace

from cluster_serving.bench.load import html
from tests.support.payloads.bench_result import RESULT


def test_the_page_holds_everything_itself():
    page = html.page([RESULT, replace(RESULT, concurrency=16)], {"job": "<script>alert(1)</script>"})
    assert "<script" not in page
    # Within a chart, marks and clips refer to definitions of the same page.
    for address in re.findall(r"""(?:src=|href=|@import|url\()\s*["']?(.)""", page):
        assert address == "#"
    assert "QUEUE_FULL" not in page or "errors" in page
    assert page.count("<svg") >= 6
