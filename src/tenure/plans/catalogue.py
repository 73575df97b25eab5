"""The catalogue: every plan that this process can perform, by name and version.

The plan of an operation is stored as data.  The functions of its steps are found in the catalogue
by plan@version/step.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NoReturn

from tenure.core.errors import Conflict, ConflictCode, Defect, Invalid, NotFound, PlanUnknown
from tenure.core.plan import Plan, Step, missing_from, plan_from_body
from tenure.ports.subject import PLAIN_SUBJECT, Subject


async def _not_performed(_: object) -> NoReturn:
    raise Defect("an operation that has ended is not performed")


SHOWN_ONLY_STEP = Step("over", do=_not_performed, undo=_not_performed, inspect=_not_performed)
"""Replaces every step of a stored plan that is only shown and never performed."""


class Catalogue:
    """Registered plans by name and version, and stored plans of operations by digest."""

    def __init__(
        self, plans: Iterable[Plan] = (), subjects: Mapping[str, Subject] | None = None
    ) -> None:
        """Register these plans, and the subjects that they name."""
        self._subjects = {**(subjects or {}), "": PLAIN_SUBJECT}
        self._plans: dict[tuple[str, int], Plan] = {}
        self._newest: dict[str, Plan] = {}
        self._by_digest: dict[str, Plan] = {}
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
        self._by_digest[plan.digest] = plan

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
            known = ", ".join(sorted(filter(None, self._subjects))) or "none"
            message = (
                f"plan {name} names the subject {plan.subject!r}, which this process does not have;"
                f" it has: {known}. Leave `subject` out of a plan of your own. Nothing was changed"
            )
            raise Invalid(message)
        return subject

    def names(self) -> list[str]:
        """The names of all plans, sorted."""
        return sorted(self._newest)

    def find(self, digest: str) -> Plan | None:
        """The plan that was registered or restored under this digest; None if there is none."""
        return self._by_digest.get(digest)

    def restore(self, body: str, digest: str) -> Plan:
        """The stored plan of an operation; PlanUnknown if it cannot be performed here."""
        plan = self._by_digest.get(digest)
        if plan is None:
            plan = self._by_digest[digest] = _from_body(body, digest, self._step)
        return plan

    def restore_to_show(self, body: str) -> Plan:
        """The stored plan of an operation that is only shown; its steps need not be known here.

        PlanUnknown if the stored form itself is unknown.
        """
        return _from_body(body, "", lambda *_: SHOWN_ONLY_STEP)

    def missing(self, body: str) -> list[str]:
        """Every plan@version/step of a stored plan that this process cannot perform."""
        return missing_from(body, self._step)

    def _step(self, name: str, version: int, step: str) -> Step | None:
        plan = self._plans.get((name, version))
        return plan.steps.get(step) if plan else None


def _from_body(body: str, digest: str, find: Callable[[str, int, str], Step | None]) -> Plan:
    try:
        return plan_from_body(body, find)
    except Invalid as error:
        raise PlanUnknown(str(error), plan=digest) from None
    except (KeyError, TypeError, ValueError) as error:  # a newer release stores it in another form
        sentence = f"a plan is stored in a form that is unknown here ({error!r}): {body:.100}"
        raise PlanUnknown(sentence, plan=digest) from None
