"""The seed alone decides who is killed and when."""

from __future__ import annotations

from tests.chaos.schedule import SERVER, instances, schedule


def test_the_same_seed_gives_the_same_kills() -> None:
    assert schedule(7, 20) == schedule(7, 20)
    assert schedule(7, 20) != schedule(8, 20)


def test_everybody_has_a_turn() -> None:
    for seed in range(50):
        kills = schedule(seed, 20)
        assert len(kills) == 20
        assert {kill.target for kill in kills} == {SERVER, *instances()}
        assert [kill.at for kill in kills] == sorted(kill.at for kill in kills)


def test_few_kills_still_meet_the_server() -> None:
    assert [kill.target for kill in schedule(1, 1)] == [SERVER]
    assert schedule(1, 0) == []
