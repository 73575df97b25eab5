"""The catalogue: every plan this process can perform, by name and version.

An operation keeps its plan as data; do and undo are looked up here as plan@version/step.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NoReturn

from tenure.core.errors import Conflict, ConflictCode, Defect, Invalid, NotFound, PlanUnknown
from tenure.core.plan import Plan, Step, missing_from, plan_from_body
from tenure.ports.subject import PLAIN_SUBJECT, Subject


async def _over(_: object) -> NoReturn:
    raise Defect("an operation that has ended is not performed")


OVER = Step("over", do=_over, undo=_over, inspect=_over)
"""Stands for every step of a plan that is only looked at."""


class Catalogue:
    """Plans by name and version, and plans as operations have kept them."""

    def __init__(
        self, plans: Iterable[Plan] = (), subjects: Mapping[str, Subject] | None = None
    ) -> None:
        """Register these plans, and the subjects that they name."""
        self._subjects = {**(subjects or {}), "": PLAIN_SUBJECT}
        self._plans: dict[tuple[str, int], Plan] = {}
        self._newest: dict[str, Plan] = {}
        self._kept: dict[str, Plan] = {}
        for plan in plans:
            self.register(plan)

    def __iter__(self) -> Iterator[Plan]:
        """Every registered plan."""
        return iter(self._plans.values())

    def register(self, plan: Plan) -> None:
        """Add a plan; another one under the same name and version is a Conflict."""
        known = self._plans.get((plan.name, plan.version))
        if known is not None and known.digest != plan.digest:
            message = (
                f"plan {plan.name}@{plan.version} is registered already with other steps; "
                f"a changed plan needs a new version"
            )
            raise Conflict(message, code=ConflictCode.PLAN_EXISTS, holder=known.digest)
        self._plans[plan.name, plan.version] = plan
        newest = self._newest.get(plan.name, plan)
        if newest.subject != plan.subject:
            message = f"plan {plan.name}: all of its versions act on {newest.subject or 'a lock'!r}"
            raise Conflict(message, code=ConflictCode.PLAN_EXISTS, holder=newest.digest)
        self._newest[plan.name] = plan if plan.version >= newest.version else newest
        self._kept[plan.digest] = plan

    def newest(self, name: str) -> Plan:
        """The newest version of a plan."""
        plan = self._newest.get(name)
        if plan is None:
            message = f"there is no plan {name!r}; known are: {', '.join(self.names()) or 'none'}"
            raise NotFound(message)
        return plan

    def subject_of(self, name: str) -> Subject:
        """The subject of the plan of this name; a plan that is unknown here has a plain one.

        Invalid if the plan names a subject that this process does not have.
        """
        plan = self._newest.get(name)
        if plan is None:
            return PLAIN_SUBJECT
        subject = self._subjects.get(plan.subject)
        if subject is None:
            raise Invalid(f"plan {name} acts on {plan.subject!r}, which this process does not know")
        return subject

    def names(self) -> list[str]:
        """The names of all plans, sorted."""
        return sorted(self._newest)

    def kept(self, digest: str) -> Plan | None:
        """A plan that was registered or restored under this digest."""
        return self._kept.get(digest)

    def restore(self, body: str, digest: str) -> Plan:
        """The plan that an operation has kept; PlanUnknown if it cannot be performed here."""
        plan = self._kept.get(digest)
        if plan is None:
            plan = self._kept[digest] = _from_body(body, digest, self._step)
        return plan

    def shown(self, body: str) -> Plan:
        """The plan of an operation that has ended: known here or not, it is only looked at.

        PlanUnknown if not even that can be done.
        """
        return _from_body(body, "", lambda *_: OVER)

    def missing(self, body: str) -> list[str]:
        """Every plan@version/step of a kept plan that this process cannot perform."""
        return missing_from(body, self._step)

    def _step(self, name: str, version: int, step: str) -> Step | None:
        plan = self._plans.get((name, version))
        return plan.steps.get(step) if plan else None


def _from_body(body: str, digest: str, find: Callable[[str, int, str], Step | None]) -> Plan:
    try:
        return plan_from_body(body, find)
    except Invalid as error:
        raise PlanUnknown(str(error), plan=digest) from None
    except (KeyError, TypeError, ValueError) as error:  # a newer release says more of it
        sentence = f"a plan is kept in a way that is unknown here ({error!r}): {body:.100}"
        raise PlanUnknown(sentence, plan=digest) from None
