"""`python -m seep.simulator soak | replay | demo`: runs many schedules, shows one, or gives a guided tour."""

from __future__ import annotations

import argparse
import json
import sys

from seep.simulator.demo import demo
from seep.simulator.faults import What
from seep.simulator.schedule import Plan, Verdict, minimise, run_schedule
from seep.simulator.soak import report, soak


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    match options.command:
        case "soak":
            return _soak(range(options.seed, options.seed + options.schedules), options)
        case "replay":
            return _replay(options.seed, Plan(only=options.only), options.messages, options.whole)
        case _:
            return demo(_say)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m seep.simulator", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    many = commands.add_parser("soak", help="run random schedules with faults, e.g. soak --schedules 5000 --seed 1")
    many.add_argument("--schedules", type=_count, default=5000, help="how many (default 5000)")
    many.add_argument("--seed", type=int, default=1, help="the first seed; schedule i has seed SEED + i (default 1)")
    many.add_argument("--jobs", type=_count, default=None, help="processes (default: one per core)")
    many.add_argument("--json", action="store_true", help="print one flat JSON object as the last line")
    one = commands.add_parser("replay", help="run one schedule and show what happens, e.g. replay 1869")
    one.add_argument("seed", type=int)
    one.add_argument("--messages", action="store_true", help="show every message, not only events")
    one.add_argument("--whole", action="store_true", help="keep all faults of a failing schedule, do not minimise")
    for command in (many, one):
        command.add_argument(
            "--only", type=_kinds, default=(), help="kinds of fault, e.g. kill,blind_move (default: all)"
        )
    commands.add_parser("demo", help="a narrated run: a node is lost, its instances recover, an operator scales out")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def _kinds(text: str) -> tuple[What, ...]:
    try:
        return tuple(What[name.strip().upper()] for name in text.split(","))
    except KeyError as unknown:
        known = ", ".join(kind.name.lower() for kind in What)
        raise argparse.ArgumentTypeError(
            f"{unknown.args[0].lower()} is no kind of fault; choose from {known}"
        ) from None


def _soak(seeds: range, options: argparse.Namespace) -> int:
    plan = Plan(only=options.only)
    summary = soak(seeds, plan, options.jobs, progress=True)
    _say(report(summary, plan))
    if options.json:
        counts = {verdict.name.lower(): summary.verdicts[verdict] for verdict in Verdict}
        _say(json.dumps({"schedules": summary.schedules, "seconds": round(summary.seconds, 1), **counts}))
    return 1 if summary.violations else 0


def _replay(seed: int, plan: Plan, messages: bool, whole: bool) -> int:
    outcome = run_schedule(seed, plan)
    if outcome.verdict is Verdict.VIOLATION and not whole:
        outcome = minimise(outcome, plan)

    def trace(step: int, text: str, is_event: bool) -> None:
        if messages or is_event:
            _say(f"{step:>6}  {text}")

    outcome = run_schedule(seed, plan, list(outcome.faults), trace)
    _say(f"{outcome.verdict.value} after {outcome.steps} steps and {outcome.epochs} epochs {outcome.note}".rstrip())
    return 1 if outcome.verdict is Verdict.VIOLATION else 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
