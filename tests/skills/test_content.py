"""The hash of a skill: it stands for every byte, name and executable bit, and for nothing else."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.skills.written import skill
from treadle.skills.content import (
    MAX_BYTES,
    MAX_FILES,
    SkillContent,
    SkillFile,
    compute_fingerprint,
    open_folder,
    read_content,
)
from treadle.skills.manifest import InvalidSkill

FILES = st.lists(
    st.builds(SkillFile, st.text("ab:/1", max_size=6), st.binary(max_size=6), st.booleans()),
    max_size=4,
    unique_by=lambda file: file.path,
).map(lambda files: tuple(sorted(files, key=lambda file: file.path)))


def read(place: Path, name: str) -> SkillContent:
    with open_folder(place) as folder:
        return read_content(name, folder)


@settings(deadline=None)
@given(FILES, FILES)
def test_only_equal_skills_have_the_same_hash(one: tuple[SkillFile, ...], other: tuple[SkillFile, ...]) -> None:
    assert (compute_fingerprint(one) == compute_fingerprint(other)) == (one == other)


def test_every_change_of_a_file_changes_the_hash(tmp_path: Path) -> None:
    folder = skill(tmp_path, "one")
    (folder / "scripts").mkdir()
    script = folder / "scripts" / "run.sh"
    script.write_text("true\n")
    seen = [read(tmp_path, "one").sha256]
    script.chmod(0o755)
    seen.append(read(tmp_path, "one").sha256)
    script.write_text("rm x\n")
    seen.append(read(tmp_path, "one").sha256)
    script.rename(folder / "run.sh")
    seen.append(read(tmp_path, "one").sha256)
    (folder / ".hidden").touch()
    seen.append(read(tmp_path, "one").sha256)
    assert len({*seen}) == len(seen)


def test_times_and_permissions_do_not_change_the_hash(tmp_path: Path) -> None:
    before = read(skill(tmp_path, "one").parent, "one")
    os.utime(tmp_path / "one" / "SKILL.md", (1, 1))
    (tmp_path / "one" / "SKILL.md").chmod(0o600)
    assert read(tmp_path, "one") == before


def test_a_skill_that_is_too_large_is_refused(tmp_path: Path) -> None:
    folder = skill(tmp_path, "one")
    with (folder / "big").open("wb") as file:
        file.truncate(MAX_BYTES)
    with pytest.raises(InvalidSkill, match="more than 2 MB in total"):
        read(tmp_path, "one")
    (folder / "big").unlink()
    for number in range(MAX_FILES - 1):
        (folder / str(number)).touch()
    assert len(read(tmp_path, "one").files) == MAX_FILES
    (folder / "more").mkdir()
    with pytest.raises(InvalidSkill, match="more than 200 files"):
        read(tmp_path, "one")


def test_a_folder_that_is_too_deep_is_refused(tmp_path: Path) -> None:
    (skill(tmp_path, "one") / "/".join("abcdefghi")).mkdir(parents=True)
    with pytest.raises(InvalidSkill, match="8 folders deep"):
        read(tmp_path, "one")


@pytest.mark.parametrize("name", ["a\nb", "a\x1bb", "a\u202eb", "a\u3164b", "a\ufe0f", os.fsdecode(b"a\xffb")])
def test_names_that_cannot_be_seen_are_refused(tmp_path: Path, name: str) -> None:
    (skill(tmp_path, "one") / name).touch()
    with pytest.raises(InvalidSkill, match="cannot be seen") as refused:
        read(tmp_path, "one")
    assert str(refused.value).isprintable()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_file_is_reported(tmp_path: Path) -> None:
    (skill(tmp_path, "one") / "SKILL.md").chmod(0)
    with pytest.raises(InvalidSkill, match=r"SKILL\.md cannot be read: Permission denied"):
        read(tmp_path, "one")
