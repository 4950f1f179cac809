"""What models read changes on purpose only."""

from difflib import unified_diff

from tests.wording.prompts import RECORDED, find_texts, render_prompts

HOW = "Models read other texts. If that is meant: python -m tests.wording.prompts, in a commit of its own"


def test_texts_for_models_match_the_record() -> None:
    before, now = RECORDED.read_text(), render_prompts()
    lines = unified_diff(before.splitlines(), now.splitlines(), "recorded", "now", lineterm="", n=0)
    assert before == now, "\n".join([HOW, *lines])


def test_texts_are_found_with_their_placeholders_and_without_docstrings() -> None:
    source = '''
"""A docstring of words."""
def say(name):
    """Another docstring."""
    return f"Hello {name!r}, how are you?" + "fine, thank you\\nand you" + "word"
'''
    assert list(find_texts(source)) == ["Hello {name}, how are you?", "fine, thank you⏎and you"]
