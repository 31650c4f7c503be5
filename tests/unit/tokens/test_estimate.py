"""Estimates stay on the safe side, and learn from what providers report."""

import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aforesaid.errors import InvalidInput
from aforesaid.tokens import Estimator, ExactCounter, RoughCounter, count_tools, tokens_reported

ENGLISH = "Could you find me a chicken dinner for tonight that is ready in half an hour?"
CHINESE = "请帮我找一个今晚的鸡肉晚餐食谱，最好半小时之内能做好，不要太辣。"
EMOJI = "😀🎉👍🏽🚀🔥✨"
PROSE = (
    ENGLISH,
    CHINESE,
    "Die Besprechung findet morgen um zehn Uhr im großen Raum statt, bitte bringen Sie die Unterlagen mit.",
    "Привет, напомни мне завтра утром купить хлеб и молоко, а вечером позвонить маме.",
    "今晩の夕食に鶏肉を使った簡単なレシピを教えてください。三十分以内で作れるものがいいです。",
    "오늘 저녁에 먹을 닭고기 요리법을 알려 주세요. 삼십 분 안에 만들 수 있으면 좋겠어요.",
    "من فضلك ابحث لي عن وصفة عشاء بالدجاج لهذه الليلة، ويفضل أن تكون جاهزة خلال نصف ساعة.",
    "कृपया मुझे आज रात के लिए चिकन डिनर की रेसिपी बताइए जो आधे घंटे में तैयार हो जाए।",
    "ช่วยหาสูตรอาหารเย็นที่ใช้ไก่ให้หน่อย อยากได้แบบที่ทำเสร็จภายในครึ่งชั่วโมง",
    'def area(width: int, height: int) -> int:\n    """How much it covers."""\n    return width * height\n',
    '{"id": 17, "name": "lamp", "room": "kitchen", "on": true, "brightness": 0.75}',
)


@pytest.fixture
def o200k() -> ExactCounter:
    return ExactCounter("o200k_base")


@pytest.mark.parametrize(
    ("text", "margin"), [(ENGLISH, 1.2), (CHINESE, 1.5), (EMOJI, 1.5), ("Grüße, café, naïve", 1.2)]
)
def test_the_margin_goes_by_script(text: str, margin: float, o200k: ExactCounter) -> None:
    assert Estimator().count_text(text) == pytest.approx(margin * o200k.count_text(text), abs=1)


def test_mixed_text_gets_a_mixed_margin(o200k: ExactCounter) -> None:
    mixed = ENGLISH + CHINESE
    assert 1.2 < Estimator().count_text(mixed) / o200k.count_text(mixed) < 1.5


@given(st.text())
def test_an_estimate_lies_within_its_margins(text: str) -> None:
    exact, estimate = ExactCounter("o200k_base").count_text(text), Estimator().count_text(text)
    assert 1.2 * exact <= estimate + 1e-6
    assert estimate <= 1.5 * exact + 1


@pytest.mark.parametrize("text", PROSE)
def test_a_rough_count_is_near_the_exact_one(text: str, o200k: ExactCounter) -> None:
    assert 0.9 <= RoughCounter().count_text(text) / o200k.count_text(text) <= 1.35


def test_without_tiktoken_an_estimate_is_rough_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = Estimator().count_text(ENGLISH)
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    estimator = Estimator()
    assert estimator.name == "estimate_by_characters"
    assert estimator.count_text(ENGLISH) == pytest.approx(exact, rel=0.35)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["a", " ", "\n", "é", "漢", "😀", "a1 漢\n"])
def test_a_rough_count_of_a_megabyte_comes(unit: str) -> None:
    assert 1 <= RoughCounter().count_text(unit * 1_000_000) <= 8_000_000


def test_half_of_a_surrogate_pair_has_an_estimate() -> None:
    assert Estimator().count_text("\ud83d") >= 1
    assert RoughCounter().count_text("\ud83d") >= 1


@pytest.mark.parametrize("truth", [0.6, 0.95, 1.4, 2.9])
def test_the_correction_converges(truth: float) -> None:
    """A provider that counts `truth` times what we do: after a report the next estimate is right."""
    estimator = Estimator()
    right = round(truth * estimator.count_text(ENGLISH * 100))
    for _ in range(20):
        estimator.calibrate(estimated=estimator.count_text(ENGLISH * 100), reported=right)
    assert estimator.correction == pytest.approx(truth, abs=0.011)
    assert estimator.count_text(ENGLISH * 100) == pytest.approx(right, rel=0.02)


def test_noise_is_averaged_out() -> None:
    estimator = Estimator()
    for turn in range(60):
        noise = 1.1 if turn % 2 else 0.9
        estimated = estimator.count_text(ENGLISH * 100)
        estimator.calibrate(
            estimated=estimated, reported=round(estimated / estimator.correction * 1.3 * noise)
        )
    assert estimator.correction == pytest.approx(1.3, abs=0.04)


def test_an_estimate_made_earlier_names_its_correction() -> None:
    """Two requests on their way at once were both estimated before the first report came."""
    estimator = Estimator()
    for _ in range(2):
        estimator.calibrate(estimated=1000, reported=1300, correction=1.0)
    assert estimator.correction == 1.3


@pytest.mark.parametrize(("reported", "bound"), [(1, 0.5), (10**9, 3.0)])
def test_the_correction_is_bounded(reported: int, bound: float) -> None:
    estimator = Estimator()
    for _ in range(50):
        assert 0.5 <= estimator.calibrate(estimated=1000, reported=reported) <= 3.0
    assert estimator.correction == bound


@pytest.mark.parametrize(
    "nonsense", [0, -5, True, 1.5, "many", None, {}, {"input_tokens": 0}, {"input_tokens": "7"}]
)
def test_a_nonsensical_report_is_refused_and_changes_nothing(nonsense: object) -> None:
    estimator = Estimator()
    with pytest.raises(InvalidInput, match=r"reported|input_tokens"):
        estimator.calibrate(estimated=100, reported=nonsense)
    with pytest.raises(InvalidInput, match="estimated"):
        estimator.calibrate(estimated=nonsense, reported=100)  # type: ignore[arg-type]
    assert (estimator.name, estimator.correction) == ("estimate", 1.0)


@pytest.mark.parametrize("nonsense", [0.0, -1.0, 0.4, 3.1, float("nan"), "1"])
def test_a_nonsensical_correction_is_refused(nonsense: float) -> None:
    with pytest.raises(InvalidInput, match="correction must lie between"):
        Estimator().calibrate(estimated=100, reported=100, correction=nonsense)


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (120, 120),
        ({"input_tokens": 120, "output_tokens": 5}, 120),
        ({"prompt_tokens": 120, "completion_tokens": 5, "total_tokens": 125}, 120),
        ({"input_tokens": 20, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 70}, 120),
        ({"input_tokens": 20, "cache_creation_input_tokens": None, "cache_read_input_tokens": 100}, 120),
        ({"input_tokens": 0, "cache_read_input_tokens": 120}, 120),
        (SimpleNamespace(input_tokens=120), 120),
    ],
)
def test_usage_is_read_as_providers_write_it(usage: object, tokens: int) -> None:
    assert tokens_reported(usage) == tokens


def test_the_name_stands_for_the_counts() -> None:
    """Counts are kept by the counter's name, so a new correction is a new name."""
    estimator = Estimator()
    assert estimator.name == "estimate"
    estimator.calibrate(estimated=100, reported={"input_tokens": 125})
    assert estimator.name == "estimate@1.25"


def test_what_a_provider_adds_to_tools_is_learned_apart_from_the_factor() -> None:
    tools = [{"name": "look", "description": "Looks.", "input_schema": {"type": "object", "properties": {}}}]
    estimator = Estimator(RoughCounter())
    before = count_tools(estimator, tools)
    for _ in range(30):
        counted = count_tools(estimator, tools)
        estimator.calibrate(estimated=counted + 20, reported=before + 620, tools=counted)
    assert estimator.correction == 1.0
    assert abs(count_tools(estimator, tools) - (before + 600)) <= 6
