"""A kill of the kernel explains the end of one host, not of every host that is open."""

from flowmesh_worker.instances.oom import OomVictims


class Kills:
    def __init__(self) -> None:
        self.so_far = 0

    def count(self) -> int:
        return self.so_far


def test_a_kill_explains_one_failure_of_one_host() -> None:
    kills = Kills()
    victims = OomVictims(kills)
    victims.add(1)
    victims.add(2)
    assert not victims.blame(1)
    kills.so_far += 1
    assert victims.blame(1)
    assert not victims.blame(1)
    assert not victims.blame(2)


def test_two_kills_explain_the_ends_of_two_hosts() -> None:
    kills = Kills()
    victims = OomVictims(kills)
    victims.add(1)
    victims.add(2)
    kills.so_far += 2
    assert victims.blame(2)
    victims.remove(2)
    assert victims.blame(1)


def test_a_kill_before_a_host_started_does_not_explain_its_failure() -> None:
    kills = Kills()
    kills.so_far = 3
    victims = OomVictims(kills)
    victims.add(1)
    assert not victims.blame(1)
