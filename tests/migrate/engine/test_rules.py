"""Prometheus rules of a server with engines, for one without."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from trtllm_kit.errors import UsageError
from trtllm_kit.migrate.engine.promql import metric_named, rewrite
from trtllm_kit.migrate.engine.rules import rewrite_rules

RULES = """\
# of the platform team
groups:
  - name: triton   # keep
    rules:
      - alert: SlowInference
        expr: rate(nv_inference_request_duration_us{model="ensemble"}[5m]) > 500
      - alert: Failures   # page
        expr: |
          increase(nv_inference_request_failure{model="ensemble", reason!="CANCELED"}[5m]) > 0
        for: 5m
      - record: queue:time
        expr: nv_inference_queue_duration_us
      - record: queue:time:max
        expr: max(queue:time)
      - alert: Queue
        expr: queue:time:max > 3
      - alert: Cache
        expr: nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction"} > 0.95
"""


def test_each_rule_says_what_became_of_it() -> None:
    """One that says nothing any more takes those that are made of it along, over several steps."""
    made = rewrite_rules(RULES, "rules.yaml")

    assert [
        ("SlowInference", "none"), ("Failures", "rewritten"), ("queue:time", "none"), ("queue:time:max", "none"),
        ("Queue", "none"), ("Cache", "same"),
    ] == [(one.name, one.fate) for one in made.told]  # fmt: skip
    assert [5, 7, 11, 13, 15, 17] == [one.line for one in made.told]


def test_comments_and_order_stay_and_what_is_left_out_stands_on_top() -> None:
    """The file is still one of rules."""
    text = rewrite_rules(RULES, "rules.yaml").text
    rules = yaml.safe_load(text)["groups"][0]["rules"]

    assert ["Failures", "Cache"] == [rule["alert"] for rule in rules]
    assert 'model="tensorrt_llm", reason!="CANCELED"' in rules[0]["expr"]
    assert all(comment in text for comment in ("# of the platform team", "# keep", "# page"))
    assert "# Left out, for it says nothing of that server: SlowInference: " in text


def test_prometheus_itself_takes_the_rewritten_file(tmp_path: Path) -> None:
    """With as many rules as are left."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("SKIPPED FOR LACK OF A TOOL: no promtool; apt-get install prometheus")
    path = tmp_path / "rules.yaml"
    path.write_text(rewrite_rules(RULES, "rules.yaml").text)
    done = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True, check=False)

    assert (0, True) == (done.returncode, "2 rules found" in done.stdout), done.stderr


def test_manifests_of_the_prometheus_operator_are_read_too() -> None:
    """With groups under spec, several documents in one file, and others between."""
    text = "kind: Service\n---\nkind: PrometheusRule\nspec:\n  groups:\n  - name: a\n    rules:\n    - alert: B\n"
    made = rewrite_rules(text + "      expr: nv_inference_count{model='ensemble'} > 1\n", "x.yaml")

    assert [("B", "rewritten")] == [(one.name, one.fate) for one in made.told]
    assert "nv_inference_count{model='tensorrt_llm'} > 1" in made.text
    assert "kind: Service" in made.text


@pytest.mark.parametrize("text", ["", "a: 1", "groups: 3", "[", "groups: {", "- 1\n- 2"])
def test_a_file_without_rules_is_refused(text: str) -> None:
    """With what was looked for."""
    with pytest.raises(UsageError, match="holds no Prometheus rules"):
        rewrite_rules(text, "x.yaml")


def test_rules_that_are_no_rules_stay_as_they_are() -> None:
    """A rule without an expression, or one that is no mapping, is its owner's affair."""
    text = "groups:\n- name: a\n  rules:\n  - alert: A\n  - 3\n"

    assert () == rewrite_rules(text, "x.yaml").told


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('nv_inference_count{model="ensemble"}', 'nv_inference_count{model="tensorrt_llm"}'),
        (
            'nv_inference_count{version="1",model!="tensorrt_llm_bls"}',
            'nv_inference_count{version="1",model!="tensorrt_llm"}',
        ),
        ('nv_inference_count{model=~"preprocessing|ensemble"}', 'nv_inference_count{model=~"tensorrt_llm"}'),
        ('nv_inference_count{model="mine"}', 'nv_inference_count{model="mine"}'),
        ('up{model="ensemble"}', 'up{model="ensemble"}'),
        ("sum by (model) (nv_inference_count) # ensemble", "sum by (model) (nv_inference_count) # ensemble"),
        ('label_replace(x, "model", "ensemble", "", "")', 'label_replace(x, "model", "ensemble", "", "")'),
    ],
)
def test_matchers_of_tritons_series_name_the_new_model(before: str, after: str) -> None:
    """Other series, other labels, texts and comments stay."""
    made = rewrite(before)

    assert (after, ()) == (made.text, made.lost)


def test_a_pattern_that_is_no_list_of_names_is_left_to_its_owner() -> None:
    """And named as something to look at."""
    made = rewrite('nv_inference_count{model=~"ens.*"}')

    assert 'nv_inference_count{model=~"ens.*"}' == made.text
    assert "look at the matcher" in made.changes[-1]


def test_a_model_that_is_no_longer_there_says_nothing() -> None:
    """Preprocessing is done by the one model."""
    assert rewrite('nv_inference_count{model="preprocessing"}').lost
    assert not rewrite('nv_inference_count{model!="preprocessing"}').lost


@pytest.mark.parametrize(
    ("matcher", "is_there"),
    [
        ('request_type="active"', True),
        ('request_type="queued"', True),
        ('request_type=~"active|gone"', True),
        ('request_type=~"act.*"', True),
        ('request_type!="gone"', True),
        ('other="gone"', True),
        ('request_type="gone"', False),
        ('pod="a", request_type=~"gone|lost"', False),
    ],
)
def test_a_series_that_the_family_does_not_have_says_nothing(matcher: str, is_there: bool) -> None:
    """A rule over it could never fire, and would look like health."""
    made = rewrite(f"nv_trt_llm_request_metrics{{{matcher}}} > 1")

    assert is_there == (not made.lost)
    assert is_there or "active, max, scheduled, context, waiting, queued" in made.lost[0]


def test_a_family_named_by_its_label_is_known_too() -> None:
    """Whatever stands in front of the braces."""
    made = rewrite(
        'sum({__name__="nv_inference_queue_duration_us"}) + {model="ensemble", __name__="nv_inference_count"}'
    )

    assert "nv_inference_queue_duration_us" in made.lost[0]
    assert '{model="tensorrt_llm", __name__="nv_inference_count"}' in made.text


def test_a_rule_that_stays_is_told_what_its_family_counts_now() -> None:
    """Requests taken in place of requests answered; its expression is left as it is."""
    text = "groups:\n- name: a\n  rules:\n  - alert: A\n    expr: rate(nv_inference_request_success[1m]) == 0\n"
    told = rewrite_rules(text, "x.yaml").told[0]

    assert ("same", True) == (told.fate, "not those that are answered" in told.notes[0])


@pytest.mark.parametrize(
    "word", ["nv_inference_queue_duration_us", "nv_llm_input_token_len_bucket", "nv_trt_llm_v1_metrics"]
)
def test_a_family_is_known_by_each_of_its_series(word: str) -> None:
    """Those of a histogram among them."""
    found = metric_named(word)

    assert found is not None
    assert word.startswith(found.old)
    assert metric_named("node_load1") is None
