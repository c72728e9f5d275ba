# SPDX-License-Identifier: Apache-2.0
"""A template reaches nothing but its values, and cannot take the server's time or memory."""

import contextlib
import json
import time

import pytest

from tokenlight.base.errors import CheckpointCorrupt, InvalidRequest
from tokenlight.text import ChatTemplate
from tokenlight.text.template import bounds

MESSAGES = [{"role": "user", "content": "hi"}]


def render(source, **variables):
    return ChatTemplate(source).render(MESSAGES, **variables)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ raise_exception.__globals__ }}",
        "{{ '{0.__class__.__init__.__globals__}'.format(messages) }}",
        "{{ (messages|map(attribute='__class__')|list)[0].__name__ }}",
        "{% set n = namespace(__class__='x') %}",
        "{% set n = namespace() %}{% set n._x = 1 %}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='x') }}",
        "{{ messages.clear() }}",
    ],
)
def test_internals_and_changes_are_out_of_reach(source):
    before = json.dumps(MESSAGES)
    # Jinja2 reads an unsafe attribute as undefined: an empty text, or an error when used.
    with contextlib.suppress(InvalidRequest):
        assert render(source) == ""
    assert json.dumps(MESSAGES) == before


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10**10 }}",
        "{{ 10**10 * 'a' }}",
        "{{ [1] * 10**10 }}",
        "{{ 2 ** 10 ** 10 ** 10 ** 10 }}",
        "{{ (2 ** 1000) * (2 ** 1000) }}",
        "{{ 'a'.center(10**10) }}",
        "{{ 'a'.ljust(10**10) }}",
        "{{ '1'.zfill(10**10) }}",
        "{{ '\t'.expandtabs(10**10) }}",
        "{{ '%10000000000d' % 1 }}",
        "{{ '%*d' % (10**10, 1) }}",
        "{{ '%10000000000d'|format(1) }}",
        "{{ '%(a)10000000000d'|format(a=1) }}",
        "{{ '{:10000000000}'.format(1) }}",
        "{{ '{:{}}'.format(1, 10**10) }}",
        "{{ messages|tojson(indent=10**10) }}",
        "{{ 'a\nb'|indent(10**10) }}",
        "{% set b = 'a' * 10**7 %}{{ ([b] * 10**5)|join('') }}",
        "{% set b = 'a' * 10**7 %}{{ ''.join([b] * 10**5) }}",
        "{% set b = 'a' * 10**7 %}{{ b|replace('a', b) }}",
        "{% set b = 'a' * 10**7 %}{{ b.replace('a', b) }}",
        "{% set b = 'a' * 10**7 %}{% for i in range(9999) %}{{ b }}{% endfor %}",
        "{% set c %}{% for i in range(999) %}{{ 'a' * 10**7 }}{% endfor %}{% endset %}",
        "{% set n = namespace(a='a') %}{% for i in range(99) %}{% set n.a = n.a ~ n.a %}"
        "{% endfor %}",
        "{% set n = namespace(a='a') %}{% for i in range(99) %}{% set n.a = n.a + n.a %}"
        "{% endfor %}",
    ],
)
def test_values_that_would_fill_the_memory_are_never_made(source):
    start_s = time.process_time()
    with pytest.raises(InvalidRequest, match=r"was stopped: it (makes|pads)"):
        render(source)
    assert time.process_time() - start_s < 5


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) ~ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
        "{% set n = namespace(i=0) %}{% for a in range(99999) %}{% for b in range(99999) %}"
        "{% set n.i = n.i + 1 %}{% endfor %}{% endfor %}",
    ],
)
def test_time_is_bounded(source, monkeypatch):
    monkeypatch.setattr(bounds, "MAX_RENDER_S", 0.2)
    start_s = time.monotonic()
    with pytest.raises(InvalidRequest, match="longer than"):
        render(source)
    assert time.monotonic() - start_s < 30  # without a bound: hours


def test_endless_recursion_is_a_clear_error():
    with pytest.raises(InvalidRequest, match="RecursionError"):
        render("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}")


@pytest.mark.parametrize(
    "source",
    ["{% if %}", "{{ ", "{% endfor %}", "{{ x|nofilter }}", "{{ (" * 5000],
)
def test_templates_that_do_not_compile_are_a_checkpoints_fault(source):
    with pytest.raises(CheckpointCorrupt, match="chat template"):
        ChatTemplate(source)


@pytest.mark.parametrize(
    "source",
    [
        "{% include 'x' %}",
        "{% import 'x' as y %}",
        "{% extends 'x' %}",
        "{{ messages.a.b }}",
        "{{ 1 / 0 }}",
        "{{ messages|tojson + 1 }}",
        "{{ nothing() }}",
        "{{ nothing|tojson }}",
    ],
)
def test_whatever_fails_is_the_requests_error(source):
    with pytest.raises(InvalidRequest, match="chat template"):
        render(source)


def test_what_transformers_gives_to_templates():
    assert render("{{ strftime_now('%Y') }}").isdigit()
    assert render("{{ {'a': '<é>'}|tojson }}") == '{"a": "<é>"}'
    assert render("{{ [1, {'b': 2}]|tojson(indent=2) }}") == json.dumps([1, {"b": 2}], indent=2)
    assert render("{{ {'b': 1, 'a': 2}|tojson(sort_keys=true, separators=(',', ':')) }}") == (
        '{"a":2,"b":1}'
    )
    assert (
        render("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}")
        == "012"
    )
    assert (
        render("{% for i in range(4) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}")
        == "023"
    )
    assert (
        render("{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}")
        == "21"
    )
    assert render("{{ dict(a=1)['a'] }}{{ dict.fromkeys(['k'], 2)['k'] }}") == "12"
    assert render("{{ enable_thinking }}", enable_thinking=False) == "False"
    assert render("{{ '%s-%d'|format('a', 3) }}{{ 'x'|indent(2, first=true) }}") == "a-3  x"
    assert render("{{ [1, 2]|join('+') }}{{ messages|join(',', attribute='role') }}") == "1+2user"
    assert render("{{ 'aXbX'|replace('X', '-') }}{{ 'aa'|replace('a', 'b', 1) }}") == "a-b-ba"
    assert render("  {% if true %}\n  x\n  {% endif %}\n") == "  x\n"
