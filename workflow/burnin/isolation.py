# SPDX-License-Identifier: Apache-2.0
"""Who is it, when a group failed and no evidence names anybody: adaptive group testing. Pure.

A *trial* is one run of a group in a step, with its verdict. A failed group opens a case: its nodes are suspects. They
are split, each part filled up to the same size with nodes that passed the step (trusted partners), until

* one suspect is left that failed in groups which have nobody else in common: it is convicted (no single link explains
  what happens in two groups that share only this node);
* all suspects passed with other partners: then it is no node. Pairs that met in the failed group and in no later group
  that passed may be the path; cross tests halve them until one pair is left that fails again, in groups which have nobody
  else in common: a link (whoever else was in all of them may be a node whose fault comes and goes);
* even that does not fail again: it comes and goes. The group runs again as often as `repeats` says, then those are given
  up who were in it and in all earlier groups that it was to explain;
* no test that could tell is left (too few trusted partners, too many rounds): given up, and said.

Who is given up stays suspect, is named, and does not pass; so does who was a suspect in all of the case's failed groups:
that it passed since does not clear it, a fault may come and go. Who only filled all of them, having passed before, has
to pass the step again without those. Nobody is convicted on suspicion. A failed trial that has a
convicted or given-up node in it is explained, its other nodes just run again. Only passes later than a failure clear:
what passed before it, and then failed, has not been cleared by that.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal

from burnin.grouping import fill
from burnin.paths import group_id
from burnin.topology import Topology

Pair = tuple[str, str]

#: A fault that comes and goes is taken to show in a run with at least this chance ...
SHOWS = 0.5
#: ... and this chance to miss it is accepted.
MISS = 0.15


def repeats_for(shows: float = SHOWS, miss: float = MISS) -> int:
    """Return how many runs must pass so that a fault that shows with chance `shows` was missed with at most `miss`."""
    if not 0 < shows <= 1 or not 0 < miss < 1:
        raise ValueError("chances lie between 0 and 1")
    return 1 if shows == 1 else max(1, math.ceil(math.log(miss) / math.log(1 - shows)))


REPEATS = repeats_for()


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a group in a step. `failed`: None if it told nothing. `pair`: its suspects are ends of a path.

    One that passed without suspects tells who may be a partner (one half while the other did not finish).
    `unproven`: its partners that have passed the step only in smaller groups.
    """

    workload: str
    heat: int
    nodes: tuple[str, ...]
    suspects: tuple[str, ...]
    failed: bool | None
    pair: bool = False
    unproven: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the form in gate.json and plan.json."""
        return {
            "workload": self.workload, "heat": self.heat, "nodes": list(self.nodes),
            "suspects": list(self.suspects), "failed": self.failed, "pair": self.pair,
            "unproven": list(self.unproven),
        }  # fmt: skip

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Trial:
        """Return the trial of a document."""
        return cls(
            document["workload"], document["heat"], tuple(document["nodes"]), tuple(document["suspects"]),
            document["failed"], document["pair"], tuple(document.get("unproven", ())),
        )  # fmt: skip

    def where(self, step: str) -> str:
        """Return the evidence of the trial, relative to the campaign."""
        return f"{step}/heat{self.heat}/{self.workload}/{group_id(self.nodes)}/result.json:1"


@dataclass(frozen=True, slots=True)
class Test:
    """A group to run for a case. `suspects` are tested, the other nodes are trusted partners."""

    __test__ = False  # not for pytest

    of: tuple[str, ...]
    nodes: tuple[str, ...]
    suspects: tuple[str, ...]
    workloads: tuple[str, ...]
    part: int
    pair: bool


@dataclass(slots=True)
class Case:
    """What failures of one workload come to at the moment."""

    kind: Literal["nodes", "pairs", "vanished"]
    workload: str
    fails: list[Trial]
    suspects: tuple[str, ...]
    pairs: frozenset[Pair] = frozenset()
    waits: bool = False  # another case is looked at first
    given_up: str = ""  # why no test can tell any more
    held: tuple[str, ...] = ()  # who is given up: the suspects, and who was one and only passed since
    again: tuple[str, ...] = ()  # who only filled all of these groups: passes again without those, or is suspected then
    sure: bool = False  # one suspect, and nobody and nothing else explains its failures

    @property
    def size(self) -> int:
        """Return the size of the groups that can tell."""
        return min(len(f.nodes) for f in self.fails)

    @property
    def shared(self) -> set[str]:
        """Return the nodes that were in all of its failed groups."""
        return set.intersection(*(set(f.nodes) for f in self.fails))


@dataclass(slots=True)
class Conclusion:
    """What the trials up to a heat say. `convicted`: node -> the trials of the last heat that convict it."""

    convicted: dict[str, Trial] = field(default_factory=dict)
    open: list[Case] = field(default_factory=list)
    given_up: list[Case] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)  # what remains to be known


# ------------------------------------------------------------------------------------------------------- inference


def _pairs(nodes: Iterable[str]) -> set[Pair]:
    return set(combinations(sorted(nodes), 2))


def _tells(passed: Trial, failed: Trial, slack: int) -> bool:
    """Tell whether a pass says something about a failure: it came later, and the group was as large."""
    return passed.heat > failed.heat and len(passed.nodes) >= len(failed.nodes) - (
        slack if len(failed.nodes) > 2 else 0
    )


def cases(trials: Sequence[Trial], out: set[str], gone: set[str], slack: int = 0, repeats: int = REPEATS) -> list[Case]:
    """Return the open cases of one workload's trials.

    `out`: nodes that explain what they took part in (convicted, given up). `gone`: not available. `slack`: by how many
    nodes a group may be smaller and still tell (1 for halves, which differ by one).
    """
    fails = sorted(
        (t for t in trials if t.failed and not out & set(t.nodes)), key=lambda t: (t.heat, len(t.nodes), t.nodes)
    )
    passes = [t for t in trials if t.failed is False]
    under: list[tuple[Trial, tuple[str, ...]]] = []
    paths: list[tuple[Trial, set[Pair]]] = []
    for fail in fails:
        later = [set(p.nodes) for p in passes if _tells(p, fail, slack)]
        cleared: set[str] = set().union(*later) if later else set()
        left = () if fail.pair else tuple(n for n in fail.suspects if n not in cleared)
        if left:
            here = tuple(n for n in left if n not in gone)
            if here:
                under.append((fail, here))
            continue  # if only those who left are left, nobody here is suspected
        pairs = _pairs(fail.suspects if fail.pair else fail.nodes)
        for together in later:
            pairs -= _pairs(together & set(fail.nodes))
        if gone & set(fail.nodes) and (not pairs or any(gone & set(p) for p in pairs)):
            continue  # neither the path nor the group as it was can be tried
        paths.append((fail, pairs))
    found: list[Case] = []
    for fail, left in sorted(under, key=lambda f: (_later(f[0], fails), len(f[1]), f[0].heat, f[1])):
        same = next((c for c in found if c.suspects == left), None)
        if same:
            same.fails.append(fail)
            continue
        # what failed again among fewer nodes is followed there
        waits = _later(fail, fails) or any(not c.waits and set(c.suspects) & set(left) for c in found)
        found.append(Case("nodes", fails[0].workload, [fail], left, waits=waits))
    for case in [c for c in found if not c.waits]:
        alone = len(case.suspects) == 1 and len(case.shared) == 1
        case.sure = alone and any(_excludes_others(f, case.suspects[0], passes) for f in case.fails)
        if alone and not case.sure:
            case.given_up = (
                f"failed in {len(case.fails)} groups that have nobody else in common, but the others have only passed in "
                "smaller ones"
            )
        else:
            case.given_up = _hopeless(case, trials, fails, repeats)
    found += _path_cases(paths, found, trials, fails, slack, repeats)
    for case in (c for c in found if c.given_up):
        company = _company(case, fails)
        declared = set().union(*(f.suspects for f in [*case.fails, *_nested(case, fails)]))
        case.held = tuple(sorted({*case.suspects, *(company & declared)}))
        case.again = tuple(sorted(company - {*case.held}))
    return found


def _excludes_others(fail: Trial, suspect: str, passes: Sequence[Trial]) -> bool:
    """Tell whether all others of a failed group have passed in one as large, before or after."""
    large = [set(p.nodes) for p in passes if len(p.nodes) >= len(fail.nodes)]
    return {*fail.suspects, *fail.unproven} - {suspect} <= set().union(*large)


def _later(fail: Trial, fails: Sequence[Trial]) -> bool:
    """Tell whether some of a failure's suspects failed again later."""
    return any(f.heat > fail.heat and set(f.suspects) <= set(fail.suspects) for f in fails)


def _path_cases(
    paths: Sequence[tuple[Trial, set[Pair]]],
    under: Sequence[Case],
    trials: Sequence[Trial],
    fails: Sequence[Trial],
    slack: int,
    repeats: int,
) -> list[Case]:
    """Return the cases in which all nodes passed with others: a path, or a fault that comes and goes."""
    found: list[Case] = []
    for fail, pairs in paths:
        same = next((c for c in found if c.pairs & pairs), None)
        if same:
            same.fails.append(fail)
            same.pairs &= pairs
            continue
        found.append(Case("pairs" if pairs else "vanished", fail.workload, [fail], (), frozenset(pairs)))
    for case in found:
        ends, company = {n for p in case.pairs for n in p}, _company(case, fails)
        # one pair that failed twice is enough: whoever is in another pair of them is not suspected
        # what comes and goes may be anybody's of that group, also of one that only filled it: each has passed since
        case.suspects = tuple(sorted(ends or company))
        involved = set(case.suspects) | set(case.fails[0].nodes)
        if case.kind == "vanished":
            newer = [f for f in fails if f.heat > case.fails[0].heat and set(f.suspects) & set(case.suspects)]
            case.waits = bool(newer)
        case.waits = case.waits or any(set(c.suspects) & involved for c in under if not c.waits)
        if case.waits:
            continue
        again = [
            t
            for t in trials
            if t.failed is False and _tells(t, case.fails[0], slack) and set(case.fails[0].nodes) <= set(t.nodes)
        ]
        if len(case.pairs) == 1 and len(case.fails) > 1 and company == ends:
            case.given_up = "each passed with other partners, together they failed again: it is the path between them"
        elif case.kind == "vanished" and len(again) >= repeats:
            case.given_up = f"failed together once and passed together {len(again)} times after: it comes and goes"
        else:
            case.given_up = _hopeless(case, trials, fails, repeats)
    return found


def _company(case: Case, fails: Sequence[Trial]) -> set[str]:
    """Return the nodes that were in all failed groups of a case, and in those that its tests were to explain."""
    return case.shared.intersection(*(f.nodes for f in _nested(case, fails)))


def _nested(case: Case, fails: Sequence[Trial]) -> list[Trial]:
    """Return earlier failures of which a case's last one was to find the culprit: they had its suspects, and others."""
    last = max(case.fails, key=lambda f: f.heat)
    return [f for f in fails if f.heat < last.heat and set(last.suspects) <= set(f.suspects)]


def _hopeless(case: Case, trials: Sequence[Trial], fails: Sequence[Trial], repeats: int) -> str:
    """Return why no further test of a case makes sense, or ''."""
    mine = set(case.suspects)
    small = _small(case, trials)
    enough = 3 if len(mine) > 2 else 1
    if small and (len({t.heat for t in small}) >= enough or case.kind == "pairs"):
        return f"too few nodes that passed this step to fill groups of {case.size}: smaller groups passed, which says nothing"
    alike = Counter(frozenset(f.nodes) for f in case.fails)
    if len(mine) == 1 and max(alike.values()) > repeats:
        return f"failed in the same group {repeats + 1} times, and there are no other partners to tell who it is"
    root = min(f.heat for f in [*case.fails, *fails] if f in case.fails or set(f.suspects) & mine)
    rounds = {t.heat for t in trials if t.heat > root and t.failed is not None and set(t.suspects) & mine}
    most = 4 * math.ceil(math.log2(max(2, max(len(f.nodes) for f in fails)))) + 2 * repeats + 4
    return f"not found in {len(rounds)} rounds of tests" if len(rounds) >= most else ""


def _small(case: Case, trials: Sequence[Trial]) -> list[Trial]:
    """Return the passes of a case's suspects in groups that were too small to tell."""
    last, mine = max(f.heat for f in case.fails), set(case.suspects)
    least = case.size - (1 if case.size > 2 else 0)
    return [
        t
        for t in trials
        if t.failed is False and t.heat > last and len(t.nodes) < least and t.suspects and set(t.suspects) <= mine
    ]


def conclude(
    trials: Sequence[Trial],
    heat: int,
    out: Iterable[str] = (),
    gone: Iterable[str] = (),
    slack: int = 0,
    repeats: int = REPEATS,
) -> Conclusion:
    """Return what all trials so far say after heat number `heat`; see `cases` for the rest."""
    result = Conclusion()
    explains, absent = set(out), set(gone)
    workloads = dict.fromkeys(t.workload for t in trials)
    changed = True
    while changed:
        changed = False
        result.open = []
        for workload in workloads:
            mine = [t for t in trials if t.workload == workload]
            for case in cases(mine, explains, absent, slack, repeats):
                guilty = _guilty(case, heat)
                if guilty:
                    node, trial = guilty
                    result.convicted.setdefault(node, trial)
                    explains.add(node)
                    changed = True
                elif case.given_up and not explains & set(case.suspects):
                    result.given_up.append(case)
                    explains.update(case.held)
                    changed = True
                else:
                    result.open.append(case)
    # a failure of a group in which somebody is away is taken up again when that node returns
    held = [f for c in result.open for f in c.fails]
    held += [t for t in trials if t.failed and absent & set(t.nodes) and not explains & set(t.nodes) and t not in held]
    for workload in workloads:
        fails = [f for f in held if f.workload == workload]
        if fails:
            first = min(f.heat for f in fails)
            around = {n for f in fails for n in f.nodes}
            for trial in (t for t in trials if t.workload == workload):
                about = trial.heat > first and around & set(trial.nodes)
                partners = not trial.suspects and trial.heat >= first
                if trial in fails if trial.failed else about or partners:
                    result.trials.append(trial)
    return result


def _guilty(case: Case, heat: int) -> tuple[str, Trial] | None:
    """Return the one suspect of a case and the run of this heat that convicts it, or None."""
    if not case.sure:
        return None
    now = [f for f in case.fails if f.heat == heat]
    return (case.suspects[0], now[0]) if now else None


# --------------------------------------------------------------------------------------------------------- next tests


class _Bench:
    """The trusted partners that are still free in this heat."""

    def __init__(
        self,
        trusted: Sequence[str],
        roster: Iterable[str],
        topology: Topology | None,
        borrowed: Mapping[str, int],
        slack: int,
    ) -> None:
        self.free = list(trusted)
        self.slack = slack
        self.roster = frozenset(roster)
        self.topology, self.borrowed = topology, borrowed
        self.used: set[str] = set()
        self.second: list[
            tuple[Case, tuple[str, ...], set[str]]
        ] = []  # halves that are tested too if partners are left

    @contextmanager
    def partners_of(self, case: Case, others: Sequence[Case], trials: Sequence[Trial]) -> Iterator[None]:
        """Let those who passed here in a group as large be partners, too, although the step may want larger ones."""
        kept = set(self.free)
        for trial in trials:
            if trial.failed is False and len(trial.nodes) >= case.size - (self.slack if case.size > 2 else 0):
                self.free += [n for n in trial.nodes if n not in self.free and n not in self.used]
        suspected = {n for c in [case, *others] for n in c.suspects}
        lent = [n for n in self.free if n in suspected or n not in self.roster]
        self.free = [n for n in self.free if n not in set(lent)]
        yield
        self.free = [n for n in [*self.free, *lent] if n in kept]

    def count(self, avoid: set[str]) -> int:
        return sum(n not in avoid for n in self.free)

    def in_rank(self, nodes: Sequence[str]) -> list[str]:
        """Return nodes leaf by leaf, where that is known: what is split then points at one part of the fabric."""
        paths = self.topology.paths if self.topology is not None and self.topology.known else {}
        return sorted(nodes, key=lambda n: (paths.get(n, ()), n))

    def group(self, members: Sequence[str], size: int, rather_not: set[str], last: Set[str]) -> tuple[str, ...]:
        """Return `members` with partners; those of `rather_not` only if there are no others, `last` after them."""
        nodes = list(members)
        for rank in range(3):
            pool = [n for n in self.free if (2 if n in last else int(n in rather_not)) == rank and n not in nodes]
            nodes, _ = fill(nodes, size, pool, self.topology, self.borrowed)
        self.take(nodes)
        return tuple(nodes)

    def take(self, nodes: Iterable[str]) -> None:
        """Note that nodes are in a group of this heat."""
        self.used |= set(nodes)
        self.free = [n for n in self.free if n not in self.used]


def propose(
    trials: Sequence[Trial],
    workloads: Sequence[str],
    roster: Sequence[str],
    trusted: Sequence[str],
    topology: Topology | None = None,
    borrowed: Mapping[str, int] | None = None,
    slack: int = 0,
    repeats: int = REPEATS,
    keep: int = 0,
) -> tuple[list[Test], set[str]]:
    """Return the next tests of all open cases, no node in two of them, and all nodes under suspicion.

    `trusted`: nodes of the roster that passed all workloads of the step, in the order in which they are preferred. `keep`:
    so many of them are wanted elsewhere in this heat; what only saves rounds leaves them.
    """
    gone = {n for t in trials for n in t.nodes} - set(roster)
    tests: list[Test] = []
    suspected: set[str] = set()
    every = [(w, cases([t for t in trials if t.workload == w], set(), gone, slack, repeats)) for w in workloads]
    for _, found in every:
        suspected |= {n for c in found for n in c.suspects if n not in gone}
    bench = _Bench([n for n in trusted if n not in suspected], roster, topology, borrowed or {}, slack)
    for workload, found in every:
        mine = [t for t in trials if t.workload == workload]
        ready = [c for c in found if not c.waits and not set(c.suspects) & gone]
        rests = _rests(found, ready, gone)
        with_rests = []
        for number, case in enumerate(ready):
            same = [
                i for i, t in enumerate(tests) if set(t.of) == set(case.suspects) and t.pair == (case.kind != "nodes")
            ]
            for i in same:  # the same suspects for another workload: one job runs both
                old = tests[i]
                if workload not in old.workloads:
                    tests[i] = Test(old.of, old.nodes, old.suspects, (*old.workloads, workload), old.part, old.pair)
            if same or bench.used & set(case.suspects):
                continue
            others = [c for c in ready[number + 1 :] if c.kind == "nodes" and not bench.used & set(c.suspects)]
            with bench.partners_of(case, others, mine):
                if rests and _tight(case, bench):
                    with_rests.append(case)
                else:
                    tests += _tests(case, others, mine, bench)
        # a heat has room for many groups: what is left of the partners saves rounds
        for case, members, near in [*rests, *bench.second]:
            if not bench.used & set(members):
                with bench.partners_of(case, ready, mine):
                    if bench.count(set()) >= case.size - len(members) + (keep if len(members) < case.size else 0):
                        tests.append(_test(case, members, bench, near, 1))
        bench.second.clear()
        for case in with_rests:
            if not bench.used & set(case.suspects):
                with bench.partners_of(case, ready, mine):
                    tests += _tests(case, [], mine, bench)
    return tests, suspected


def _rests(
    found: Sequence[Case], ready: Sequence[Case], gone: set[str]
) -> list[tuple[Case, tuple[str, ...], set[str]]]:
    """Return what is left of groups that failed when one part of them failed again: nobody has tested it since.

    Most of it is healthy, so what is left of several groups is tested together where it fits: that takes fewer partners.
    """
    covered = {n for c in ready for n in c.suspects} | gone
    rests: list[tuple[Case, tuple[str, ...], set[str]]] = []
    for case in sorted((c for c in found if c.waits and c.kind == "nodes"), key=lambda c: len(c.suspects)):
        rest = tuple(n for n in case.suspects if n not in covered)
        covered |= set(rest)
        if rest and len(rest) < len(case.suspects):
            rests.append((case, rest, {n for f in case.fails for n in f.nodes}))
    packed: list[tuple[Case, tuple[str, ...], set[str]]] = []
    for case, rest, near in sorted(rests, key=lambda r: -len(r[1])):
        for i, (other, members, around) in enumerate(packed):
            if other.size == case.size and len(members) + len(rest) <= case.size:
                packed[i] = (other, (*members, *rest), around | near)
                break
        else:
            packed.append((case, rest, near))
    return packed


def _tight(case: Case, bench: _Bench) -> bool:
    """Tell whether one suspect has to meet partners again that it failed with: those of a rest that passes are new ones."""
    return case.kind == "nodes" and len(case.suspects) == 1 and bench.count(case.shared) < case.size - 1


def _tests(case: Case, others: Sequence[Case], trials: Sequence[Trial], bench: _Bench) -> list[Test]:
    """Return the next tests of one case."""
    near = {n for f in case.fails for n in f.nodes}
    if case.kind == "vanished":
        fail = case.fails[0]
        if bench.used & set(fail.nodes):
            return []
        bench.take(fail.nodes)
        return [Test(case.suspects, fail.nodes, fail.suspects, (case.workload,), 0, False)]
    if case.kind == "pairs":
        return _path_tests(case, near, bench)
    if len(case.suspects) == 1:
        # every group leaves out some of those who were in all before, until nobody but the suspect was
        enough = bench.count(set()) >= case.size - 1
        return [_test(case, case.suspects, bench, near, 0, case.shared)] if enough or not bench.used else []
    return _node_tests(case, others, trials, near, bench)


def _test(
    case: Case,
    members: Sequence[str],
    bench: _Bench,
    rather_not: set[str],
    part: int,
    last: Set[str] = frozenset(),
) -> Test:
    nodes = bench.group(members, case.size, rather_not, last)
    return Test(case.suspects, nodes, tuple(members), (case.workload,), part, case.kind == "pairs")


def _node_tests(
    case: Case, others: Sequence[Case], trials: Sequence[Trial], near: set[str], bench: _Bench
) -> list[Test]:
    """Return tests that split the suspects of a case."""
    suspects, size = case.suspects, case.size
    middle = (len(suspects) + 1) // 2
    parts = [suspects[:middle], suspects[middle:]]
    free = bench.count(set())
    if free >= size - middle:
        bench.second.append((case, parts[1], near))
        return [_test(case, parts[0], bench, near, 0)]
    if bench.used:
        return []  # others have the partners in this heat
    if free:
        # too few partners for half of them: leave as many out as there are partners
        few = min(free, middle)
        return [_test(case, suspects[few:], bench, near, 0)]
    for other in others:
        if other.size != size or len(other.suspects) < 2:
            continue
        half = (len(other.suspects) + 1) // 2
        theirs = [other.suspects[:half], other.suspects[half:]]
        done = {frozenset(t.nodes) for t in trials if t.heat > case.fails[0].heat and t.failed is not None}
        for mix in ([(0, 0), (1, 1)], [(0, 1), (1, 0)]):
            groups = [(*parts[i], *theirs[j]) for i, j in mix]
            if any(frozenset(g) in done or len(g) != size for g in groups):
                continue
            bench.take(n for g in groups for n in g)
            of = (*suspects, *other.suspects)
            return [Test(of, g, g, (case.workload,), i, False) for i, g in enumerate(groups)]
    # no partner at all: smaller groups. That they pass says little, but one that fails says much, and then the others are
    # its partners. Three ways to put quarters together bring every two suspects together once.
    quarters = [suspects[i * len(suspects) // 4 : (i + 1) * len(suspects) // 4] for i in range(4)]
    number = len({t.heat for t in _small(case, trials)}) % 3
    mate = number + 1
    one = [*quarters[0], *quarters[mate]]
    two = [n for i in range(1, 4) if i != mate for n in quarters[i]]
    return [_test(case, p, bench, near, i) for i, p in enumerate([one, two]) if p]


def sides(pairs: Iterable[Pair]) -> list[tuple[list[str], list[str]]]:
    """Return the connected parts of pairs, each as its two sides; (all, []) where it has none."""
    beside: dict[str, set[str]] = {}
    for a, b in pairs:
        beside.setdefault(a, set()).add(b)
        beside.setdefault(b, set()).add(a)
    colour: dict[str, int] = {}
    found = []
    for start in sorted(beside):
        if start in colour:
            continue
        colour[start] = 0
        queue, fits = [start], True
        for node in queue:
            for other in sorted(beside[node]):
                if other not in colour:
                    colour[other] = 1 - colour[node]
                    queue.append(other)
                fits = fits and colour[other] != colour[node]
        one, two = ([n for n in sorted(queue) if colour[n] == c] for c in (0, 1))
        found.append((one, two) if fits else (sorted(queue), []))
    return found


def _half(one: Sequence[str], two: Sequence[str]) -> list[str]:
    """Return the nodes of one half of the pairs between two sides: the larger side is halved."""
    small, large = sorted((one, two), key=len)
    return [*small, *large[: (len(large) + 1) // 2]]


def _two_groups(parts: Sequence[tuple[list[str], list[str]]]) -> list[list[str]]:
    """Return groups that hold a quarter of the pairs each (or what is nearest): this round then has three outcomes.

    More cannot be learnt from groups without a common node: 1.5 bits a round.
    """
    if len(parts) > 3:
        return [[*a, *b] for a, b in parts]
    if len(parts) > 1:
        return [_half(a, b) for a, b in parts]  # one of them holds the path
    ((one, two),) = parts
    if not two:
        return [one[: (len(one) + 1) // 2], one[(len(one) + 1) // 2 :]]
    if len(one) == 1 or len(two) == 1:
        return [_half(one, two)]
    a, b = (len(one) + 1) // 2, (len(two) + 1) // 2
    return [[*one[:a], *two[:b]], [*one[a:], *two[b:]]]


def _one_group(parts: Sequence[tuple[list[str], list[str]]]) -> list[str]:
    """Return one group that holds about half of the pairs."""
    counts = [len(a) * len(b) if b else len(a) * (len(a) - 1) // 2 for a, b in parts]
    members: list[str] = []
    held = 0
    for (one, two), count in sorted(zip(parts, counts, strict=True), key=lambda p: -p[1]):
        if 2 * (held + count) <= sum(counts):
            members += [*one, *two]
            held += count
    if members:
        return members
    ((one, two),) = parts[:1]
    return _half(one, two) if two else one[: math.ceil(len(one) * math.sqrt(0.5))]


def _path_tests(case: Case, near: set[str], bench: _Bench) -> list[Test]:
    """Return tests that halve the pairs of a case. Who else was in all its groups is the last to fill them."""
    parts = [(bench.in_rank(one), bench.in_rank(two)) for one, two in sides(case.pairs)]
    ends = set(case.suspects)
    last = case.shared - ends
    bench.free = [n for n in bench.free if n not in ends]
    wanted = [w for w in _two_groups(parts) if any(set(p) <= set(w) for p in case.pairs)]
    idle = [n for n in case.suspects if not any(n in w for w in wanted)]
    lack = sum(max(0, case.size - len(w)) for w in wanted) - bench.count(set())
    if len(wanted) > 1 and lack > len(idle):
        wanted, idle = [_one_group(parts)], []
    made: list[Test] = []
    for part, members in enumerate(wanted):
        nodes = list(members)
        for node in idle if lack > 0 else []:
            # an end that is not tested now may fill a group in which none of its own paths is
            if len(nodes) < case.size and not any((min(node, n), max(node, n)) in case.pairs for n in nodes):
                nodes.append(node)
        idle = [n for n in idle if n not in nodes]
        if (made or bench.used) and bench.count(set()) < case.size - len(nodes):
            break
        test = _test(case, nodes, bench, near, part, last)
        made.append(Test(test.of, test.nodes, tuple(members), test.workloads, part, True))
    return made
