"""Every model has a counter."""

import os
import subprocess
import sys

import pytest
from tiktoken.model import MODEL_PREFIX_TO_ENCODING, MODEL_TO_ENCODING

from aforesaid.errors import InvalidInput, MissingExtra
from aforesaid.tokens import Estimator, ExactCounter, counter_for
from aforesaid.tokens.exact import ENCODINGS

O200K = (
    "gpt-4o gpt-4o-mini gpt-4o-2024-08-06 chatgpt-4o-latest gpt-4.1 gpt-4.1-nano gpt-4.5 gpt-4.5-preview "
    "gpt-5 gpt-5-mini gpt-5.1-codex gpt-oss-20b o1 o1-mini o3 o3-pro o4-mini ft:gpt-4o-mini:team "
    "ft:gpt-4.1:team openai/gpt-4o GPT-4o o200k_base"
)
CL100K = (
    "gpt-4 gpt-4-0613 gpt-4-turbo gpt-4-32k gpt-3.5 gpt-3.5-turbo gpt-35-turbo ft:gpt-4:team "
    "ft:gpt-3.5-turbo:team text-embedding-3-small cl100k_base"
)
OTHERS = (
    "claude-sonnet-4-5 claude-3-opus anthropic/claude-3-haiku gemini-2.5-pro llama-3.3-70b mistral-large "
    "davinci gpt-2 o10 gpt-45 unheard-of estimate"
)


@pytest.mark.parametrize("model", O200K.split())
def test_later_models_of_openai_count_by_o200k(model: str) -> None:
    assert counter_for(model).name == "o200k_base"


@pytest.mark.parametrize("model", CL100K.split())
def test_earlier_models_of_openai_count_by_cl100k(model: str) -> None:
    assert counter_for(model).name == "cl100k_base"


@pytest.mark.parametrize("model", OTHERS.split())
def test_all_others_are_estimated(model: str) -> None:
    counter = counter_for(model)
    assert isinstance(counter, Estimator)
    assert counter.name.startswith("estimate")


def test_exact_counters_are_shared_and_estimators_are_not() -> None:
    assert counter_for("gpt-4o") is counter_for("o1")
    assert counter_for("claude-3-opus") is not counter_for("claude-3-opus")


@pytest.mark.parametrize("model", ["", "  ", None, 4])
def test_what_is_no_name_is_refused(model: object) -> None:
    with pytest.raises(InvalidInput, match="model must be a name"):
        counter_for(model)  # type: ignore[arg-type]


def test_without_tiktoken_exact_counters_are_missed_at_once_and_others_estimated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(MissingExtra):
        counter_for("gpt-4o")
    assert counter_for("claude-3-opus").name == "estimate_by_characters"


def test_models_that_tiktoken_knows_count_as_it_says() -> None:
    known = MODEL_TO_ENCODING | {f"{prefix}:1": name for prefix, name in MODEL_PREFIX_TO_ENCODING.items()}
    expected = {model: name for model, name in known.items() if name in ENCODINGS}
    assert {model: counter_for(model).name for model in expected} == expected
    assert len(expected) > 20


def test_naming_a_model_does_not_wait_for_tiktoken() -> None:
    script = (
        "import sys; from aforesaid.tokens import counter_for; "
        "counter_for('gpt-4'); counter_for('claude-3-opus'); sys.exit('tiktoken' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", script], env=environment, check=False).returncode == 0


def test_counting_by_name_gives_what_the_encoding_gives() -> None:
    assert counter_for("gpt-4").count_text("naïve") == ExactCounter("cl100k_base").count_text("naïve")
