"""The simulated farm: what is common is executed once, others wait, servers serve one after another."""

import pytest

from tests.measuring.farm import CHAIN, Clock, Farm, Job, Slots, simulate

ALONE = Farm(1, 0.0, 0.0, 0.0, {}, 0.0, 0)


def farm(workers: int, **changed: object) -> Farm:
    return Farm(**({**ALONE.__dict__, "workers": workers} | changed))  # type: ignore[arg-type]


def job(name: str, common: str = "a") -> Job:
    """trace of 10 s, which is common, verify of 5 s of its own, gate of 1 s, which runs always."""
    return Job({"trace": common, "verify": name, "gate": None}, {"trace": 10.0, "verify": 5.0, "gate": 1.0})


def test_one_worker_does_one_job_after_another_and_what_is_common_once() -> None:
    found = simulate([job("x"), job("y")], farm(1))
    assert found.makespan_s == 10 + 5 + 1 + 5 + 1
    assert found.executed == {"trace": 1, "verify": 2, "gate": 2}


def test_who_needs_what_another_makes_waits_for_it() -> None:
    found = simulate([job("x"), job("y")], farm(2))
    assert found.makespan_s == 16
    assert found.spent["waiting for another job's stage"] == 10
    assert found.spent["stages"] == 10 + 2 * (5 + 1)


def test_jobs_without_anything_in_common_do_not_wait() -> None:
    found = simulate([job("x", "a"), job("y", "b")], farm(2))
    assert found.makespan_s == 16 and found.executed["trace"] == 2
    assert found.spent["waiting for another job's stage"] == 0


def test_the_order_of_jobs_decides_who_waits() -> None:
    by_model = [job(f"{model}{number}", model) for model in "ab" for number in range(2)]
    in_turn = [job(f"{model}{number}", model) for number in range(2) for model in "ab"]
    assert simulate(by_model, farm(2)).makespan_s == 2 * 16
    assert simulate(in_turn, farm(2)).makespan_s == 16 + 6


@pytest.mark.parametrize(("slots", "expected"), [(1, 16 + 3 * 4), (2, 16 + 2 * 4), (4, 16 + 4)])
def test_the_tracking_server_takes_so_many_at_a_time(slots: int, expected: float) -> None:
    jobs = [Job({"trace": str(n), "track": None}, {"trace": 16.0, "track": 0.0}) for n in range(3)]
    found = simulate(jobs, farm(3, tracked_s=4.0, tracking_slots=slots))
    assert found.makespan_s == expected
    assert found.busy["tracking server"] == pytest.approx(3 * 4 / expected / slots)


def test_bytes_go_through_one_file_server_and_a_link_of_the_worker() -> None:
    jobs = [Job({"trace": str(n)}, {"trace": 1.0}) for n in range(2)]
    on = {"made": {"trace": (100e6, 5)}, "server_mb_s": 100.0, "operations_s": 10.0, "operations_a_stage": 10.0}
    found = simulate(jobs, farm(2, **on))
    # operations: (10 + 2 * 5) / 10 = 2 s each, one after another; bytes 1 s each, the second's behind its operations
    assert found.makespan_s == 1 + 2 + 2 + 1
    assert simulate(jobs[:1], farm(1, **on, worker_mb_s=10.0)).makespan_s == 1 + 2 + 10


def test_a_local_cache_reads_once() -> None:
    jobs = [job("x"), job("y")]
    on = {"made": {"trace": (100e6, 0)}, "server_mb_s": 100.0}
    written = 1.0
    assert simulate(jobs, farm(1, **on)).makespan_s == 22 + written + 1.0
    assert simulate(jobs, farm(1, **on, local_cache=True)).makespan_s == 22 + written


def test_what_is_in_the_cache_can_be_checked_out_beside_each_other() -> None:
    jobs = [job(str(n)) for n in range(4)]
    locked = simulate(jobs, farm(4, dvc_stage_s=1.0, lock_on_hit=True))
    unlocked = simulate(jobs, farm(4, dvc_stage_s=1.0))
    assert locked.makespan_s > unlocked.makespan_s


def test_time_is_accounted_for() -> None:
    found = simulate([job(str(n)) for n in range(7)], farm(3, workspace_s=0.5, dvc_start_s=0.5, dvc_stage_s=0.1))
    assert sum(found.spent.values()) == pytest.approx(3 * found.makespan_s)
    assert all(seconds >= 0 for seconds in found.spent.values())


def test_slots_are_first_come_first_served() -> None:
    clock, order = Clock(), []
    slots = Slots(clock, 1)

    def wanting(name: str):  # type: ignore[no-untyped-def]
        yield from slots.serve(1.0)
        order.append((name, clock.now))

    for name in "abc":
        clock.start(wanting(name))
    clock.run()
    assert order == [("a", 1.0), ("b", 2.0), ("c", 3.0)]


def test_the_chain_is_that_of_dvc_yaml() -> None:
    import yaml

    from tests.conftest import ROOT

    assert list(yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]) == list(CHAIN)
