# SPDX-License-Identifier: Apache-2.0
"""What the probes find out about each family of templates."""

import pytest

from tests.text.conversation.sources import SOURCES, template
from tokenlight.text import ChatTemplate
from tokenlight.text.conversation import PLAINEST, Traits, read_traits

FULL = Traits(takes_strings=True, reasoning_key="reasoning_content")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chatml", Traits(has_tools=False)),
        ("tools", FULL),
        (
            "forgetful",
            Traits(system="first", takes_strings=True, reasoning_key="reasoning_content"),
        ),
        ("stern", Traits(system="first", takes_strings=True, reasoning_key="reasoning_content")),
        ("tags", Traits(reasoning_key="reasoning_content")),
        ("alternating", PLAINEST),
        (
            "nines",
            Traits(
                system="first", alternates=True, takes_any_id=False, takes_text_with_calls=False
            ),
        ),
        (
            "single",
            Traits(takes_strings=True, takes_parallel=False, reasoning_key="reasoning_content"),
        ),
    ],
)
def test_what_a_template_can_do_is_found_out(name, expected):
    assert read_traits(template(name)) == expected


def test_every_template_of_the_tests_is_expected_above():
    mark = test_what_a_template_can_do_is_found_out.pytestmark[0]
    assert {name for name, _ in mark.args[1]} == set(SOURCES)


def test_a_template_that_hoists_late_system_turns_counts_as_first_only():
    hoisting = ChatTemplate(
        "{% for m in messages if m.role == 'system' %}S:{{ m.content }}\n{% endfor %}"
        "{% for m in messages if m.role != 'system' %}{{ m.role }}:{{ m.content }}\n{% endfor %}"
    )
    assert read_traits(hoisting).system == "first"


def test_a_template_that_prints_objects_as_python_does_gets_text():
    printing = ChatTemplate(
        "{{ tools | tojson if tools else '' }}{% for m in messages %}{{ m.role }}:{{ m.content }}"
        "{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments }}{% endfor %}\n"
        "{% endfor %}"
    )
    traits = read_traits(printing)
    assert (traits.takes_objects, traits.takes_strings) == (False, True)


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_is_sent_back_under_the_name_that_the_template_reads(key):
    source = "{% for m in messages %}{{ m.role }}:{{ m.KEY or '' }}{{ m.content }}\n{% endfor %}"
    assert read_traits(ChatTemplate(source.replace("KEY", key))).reasoning_key == key


def test_a_model_without_template_is_given_the_plainest():
    assert read_traits(ChatTemplate(None)) == PLAINEST
