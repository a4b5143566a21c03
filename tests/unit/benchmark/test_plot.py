"""The curve is drawn as a well-formed SVG document, and exported as rows."""

import csv
import io
import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from flexinfer.contracts.events import BenchCompleted, CurvePoint, Latencies
from flexinfer.core.benchmark.comparison import Run
from flexinfer.core.benchmark.export import COLUMNS, headline, rows
from flexinfer.core.benchmark.plot import Line, curve_svg, lines_of

SVG = "{http://www.w3.org/2000/svg}"


def point(concurrency: int, speed: float, prompt: int = 64) -> CurvePoint:
    return CurvePoint(
        concurrency=concurrency, prompt_tokens=prompt, tokens_per_second=speed,
        per_request_tokens_per_second=speed, requests=5,
    )  # fmt: skip


def result(*points: CurvePoint) -> BenchCompleted:
    return BenchCompleted(
        key="k", namespace="d", model="m", workload="w", source="s", backend="b", device_class="c",
        tokens_per_second=50.0, iterations=5, duration_seconds=30.0, curve=points, spread_percent=2.5,
        first_token=Latencies(p50=0.1, p95=0.2, p99=0.3),
    )  # fmt: skip


RESULT = result(point(8, 90.0), point(1, 50.0), point(1, 40.0, prompt=256))


def test_one_line_per_prompt_length_with_rising_concurrency():
    lines = lines_of(RESULT, "new")
    assert [line.label for line in lines] == ["new 64 prompt tokens", "new 256 prompt tokens"]
    assert [p.concurrency for p in lines[0].points] == [1, 8]


def test_every_point_is_drawn():
    tree = ET.fromstring(curve_svg("a & b <c>", lines_of(RESULT)))
    assert len(tree.findall(f"{SVG}circle")) == 3
    assert len(tree.findall(f"{SVG}polyline")) == 2
    assert any(text.text == "a & b <c>" for text in tree.findall(f"{SVG}text"))


def test_faster_is_higher_and_more_is_further_right():
    circles = ET.fromstring(curve_svg("t", lines_of(result(point(1, 50.0), point(8, 90.0))))).findall(f"{SVG}circle")
    assert float(circles[0].get("cx", 0)) < float(circles[1].get("cx", 0))
    assert float(circles[0].get("cy", 0)) > float(circles[1].get("cy", 0))


def test_nothing_measured_is_said():
    assert "no points measured" in curve_svg("t", ())


@given(st.lists(st.tuples(st.integers(1, 1024), st.floats(0, 1e6)), min_size=1, max_size=8))
def test_any_curve_stays_inside_the_picture(points: list[tuple[int, float]]):
    line = Line("x", tuple(point(c, speed) for c, speed in points))
    for circle in ET.fromstring(curve_svg("t", [line])).findall(f"{SVG}circle"):
        assert 69 <= float(circle.get("cx", -1)) <= 701
        assert 49 <= float(circle.get("cy", -1)) <= 321


def test_rows_repeat_the_result_for_each_point():
    found = rows([Run(0.0, RESULT)])
    assert [(row["concurrency"], row["tokens_per_second"]) for row in found] == [(8, 50.0), (1, 50.0), (1, 50.0)]
    assert found[0]["completed_at"] == "1970-01-01T00:00:00+00:00"
    assert found[0]["first_token_p95"] == 0.2
    assert found[0]["inter_token_p50"] is None


def test_a_result_without_a_curve_has_one_row():
    assert len(rows([Run(0.0, result())])) == 1


def test_rows_fit_the_columns():
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS)
    table.writeheader()
    table.writerows(rows([Run(0.0, RESULT)]))
    assert len(text.getvalue().splitlines()) == 4


def test_headline_is_a_sentence():
    assert headline(RESULT) == "50.00 tokens/s, median of 5 iterations, spread 2.5 %"
