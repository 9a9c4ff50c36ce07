"""Replica groups: where replicas may be, how evenly they lie, and how few of them move."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from policies.replicas import Group, replica_groups
from primitives.errors import UserError
from primitives.graph import InstanceId

Groups = dict[InstanceId, Group]


@dataclass(frozen=True)
class Case:
    """What groups are made from."""

    sizes: dict[InstanceId, int]
    hosts: dict[InstanceId, str]
    nodes: tuple[str, ...]
    r: int
    vms: dict[str, str]

    def groups(self, present: Groups | None = None, tolerance: float = 0.25) -> Groups:
        return replica_groups(self.sizes, self.hosts, self.nodes, self.r, self.vms, present, tolerance)

    def loads(self, groups: Groups) -> Counter[str]:
        found = Counter(dict.fromkeys(self.nodes, 0))
        for instance, group in groups.items():
            found.update(dict.fromkeys(group, self.sizes[instance]))
        return found


@st.composite
def cases(draw: st.DrawFn, shared_vms: bool = True) -> Case:
    nodes = tuple(f"n{number}" for number in range(draw(st.integers(1, 8))))
    instances = [InstanceId("count", index) for index in range(draw(st.integers(0, 10)))]
    return Case(
        sizes={each: draw(st.integers(0, 1000)) for each in instances},
        hosts={each: draw(st.sampled_from([*nodes, "elsewhere"])) for each in instances},
        nodes=nodes,
        r=draw(st.integers(1, 3)),
        vms={node: draw(st.sampled_from(["vm0", "vm1", "vm2"])) for node in nodes} if shared_vms else {},
    )


def packed(r: int, nodes: int, *sizes: int) -> Case:
    """Instances of these sizes on nodes n0, n1, …"""
    names = tuple(f"n{number}" for number in range(nodes))
    instances = [InstanceId("count", index) for index in range(len(sizes))]
    hosts = {each: names[each.index % nodes] for each in instances}
    return Case(dict(zip(instances, sizes, strict=True)), hosts, names, r, {})


# -- where replicas may be -------------------------------------------------------------------------------------------


@given(cases())
def test_a_group_has_r_distinct_nodes_or_all_there_are_and_never_its_own(case: Case) -> None:
    for instance, group in case.groups().items():
        others = set(case.nodes) - {case.hosts[instance]}
        assert set(group) <= others
        assert len(set(group)) == len(group) == min(case.r, len(others))


@given(cases())
def test_no_vm_is_shared_as_long_as_there_are_others(case: Case) -> None:
    for instance, group in case.groups().items():
        own = case.vms.get(case.hosts[instance])
        others = {vm for node, vm in case.vms.items() if node != case.hosts[instance]} - {own}
        assert len({case.vms[node] for node in group} - {own}) == min(len(group), len(others))


@given(cases())
def test_the_same_question_has_the_same_answer(case: Case) -> None:
    turned = replace(case, sizes=dict(reversed(case.sizes.items())), nodes=case.nodes[::-1])
    assert turned.groups() == case.groups()


def test_a_group_of_none_is_refused() -> None:
    with pytest.raises(UserError, match="a replica group of 0 nodes holds nothing; choose one at least"):
        packed(0, 2, 10).groups()


# -- how evenly they lie ---------------------------------------------------------------------------------------------


@given(cases(shared_vms=False), st.floats(0, 1))
def test_the_fullest_node_is_bounded_whatever_was_there(case: Case, tolerance: float) -> None:
    count = len(case.nodes)
    assume(case.r < count)
    crowded = {each: tuple(n for n in case.nodes if n != case.hosts[each])[: case.r] for each in case.sizes}
    for present in (None, crowded):
        loads = case.loads(case.groups(present, tolerance))
        mean = sum(loads.values()) / count
        bound = count / (count - case.r) * mean + max(case.sizes.values(), default=0)
        assert max(loads.values()) <= max((1 + tolerance) * mean, bound)


def test_the_largest_are_packed_first_each_to_where_least_is() -> None:
    case = packed(1, 4, 100, 30, 30, 40)
    loads = case.loads(case.groups())
    assert sorted(loads.values()) == [30, 30, 40, 100]


# -- how few move ----------------------------------------------------------------------------------------------------


@given(cases())
def test_nothing_changes_while_nothing_changes(case: Case) -> None:
    groups = case.groups()
    assert case.groups(groups) == groups


@given(cases(), st.data())
def test_when_a_node_goes_only_its_groups_change_each_by_one_member(case: Case, data: st.DataObject) -> None:
    groups, gone = case.groups(), data.draw(st.sampled_from(case.nodes))
    after = replace(case, nodes=tuple(n for n in case.nodes if n != gone)).groups(groups, tolerance=1e9)
    for instance, group in groups.items():
        left = tuple(node for node in group if node != gone)
        assert after[instance][: len(left)] == left  # they are up to date, so they lead the chain
        assert len(after[instance]) - len(left) <= len(group) - len(left)


@given(cases(), st.data())
def test_an_instance_that_moves_to_one_of_its_replicas_gets_another_in_its_place(
    case: Case, data: st.DataObject
) -> None:
    groups = case.groups()
    assume(any(groups.values()))
    instance = data.draw(st.sampled_from([each for each, group in groups.items() if group]))
    head = groups[instance][0]
    after = replace(case, hosts={**case.hosts, instance: head}).groups(groups, tolerance=1e9)
    assert head not in after[instance]
    assert set(groups[instance]) - {head} <= set(after[instance])
    assert {each: group for each, group in after.items() if each != instance} == {
        each: group for each, group in groups.items() if each != instance
    }


@given(cases())
def test_fewer_replicas_keep_the_head_of_the_chain(case: Case) -> None:
    groups = case.groups()
    fewer = replace(case, r=1).groups(groups, tolerance=1e9)
    assert fewer == {instance: group[:1] for instance, group in groups.items()}


def test_a_new_node_gets_replicas_only_when_the_fullest_has_too_much() -> None:
    case = packed(1, 3, 100, 100, 100)
    groups, larger = case.groups(), replace(case, nodes=(*case.nodes, "n3"))
    assert larger.groups(groups, tolerance=0.34) == groups
    crowded = packed(1, 2, *[100] * 8)
    before = crowded.groups()
    after = replace(crowded, nodes=("n0", "n1", "n2", "n3")).groups(before)
    assert sum(before[each] != after[each] for each in before) == 4  # half of all, two for each new node
    assert sorted(crowded.loads(after).values()) == [200, 200, 200, 200]


def test_what_has_drifted_is_packed_anew_by_moving_what_helps_most() -> None:
    case = packed(1, 4, 10, 10, 10, 10)
    a, b, *_ = case.sizes
    present = {a: ("n2",), b: ("n2",)}
    drifted = replace(case, sizes={a: 500, b: 400}, hosts={a: "n0", b: "n1"})
    after = drifted.groups(present)
    assert sum(after[each] != present[each] for each in present) == 1
    assert sorted(drifted.loads(after).values()) == [0, 0, 400, 500]
