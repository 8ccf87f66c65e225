"""What is said: two sessions of a coding agent, as neutral values. A client writes them in its own wire format.

`FIX` is one question and a long tool loop: the current turn is the whole conversation, and old tool results are what there is to clear.
`REVIEW` is a talk of many turns with few tools: old turns are what there is to drop.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from deploy.demo import shop


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call and what the tool answers."""

    name: str
    arguments: dict[str, Any]
    result: str


@dataclass(frozen=True, slots=True)
class Step:
    """One answer of the model: a request has to be made for it."""

    says: str
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    asks: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Story:
    """`name` is that of its policy, and the end of its model's name; `strategy` is what the policy does."""

    name: str
    strategy: str
    turns: tuple[Turn, ...]
    tools: tuple[str, ...] = field(
        default=("list_files", "read_file", "search", "run_tests", "read_log", "edit_file", "run_python")
    )


SYSTEM = (
    "You are a careful software engineer who works in the repository `shop`. Look before you change anything, keep "
    "public names, change as little as needed, add a regression test for every bug, and never touch released "
    "migrations. Say in a sentence what you do next."
)
TOOLS = {
    "list_files": ("All files of the repository with their number of lines.", {}),
    "read_file": ("A file with line numbers.", {"path": "string", "first": "integer", "last": "integer"}),
    "search": ("Lines that match a regular expression.", {"pattern": "string", "context": "integer"}),
    "run_tests": ("Runs pytest, verbosely.", {"path": "string"}),
    "read_log": ("Lines of a service's log.", {"service": "string", "around": "string"}),
    "edit_file": ("Replaces a text that stands once in a file.", {"path": "string", "old": "string", "new": "string"}),
    "run_python": ("Runs a Python snippet in the repository.", {"code": "string"}),
}
"""Tool -> what it does, and its parameters with their JSON types."""


def _list() -> Call:
    return Call("list_files", {}, shop.list_files())


def _read(path: str, **lines: int) -> Call:
    return Call("read_file", {"path": path, **lines}, shop.read_file(path, **lines))


def _search(pattern: str, context: int = 0) -> Call:
    return Call("search", {"pattern": pattern, "context": context}, shop.search(pattern, context))


def _test(**run: Any) -> Call:
    return Call("run_tests", {"path": "tests"}, shop.run_tests(**run))


def _log(around: str, seed: int, differing: dict[int, str], count: int = 56) -> Call:
    return Call("read_log", {"service": "checkout", "around": around}, shop.read_log(seed, count, differing))


def _edit(path: str, old: str, new: str) -> Call:
    removed = "\n".join(f"-{line}" for line in old.splitlines())
    added = "\n".join(f"+{line}" for line in new.splitlines())
    return Call("edit_file", {"path": path, "old": old, "new": new}, f"--- {path}\n+++ {path}\n{removed}\n{added}")


_OLD_TOTAL = "        total = (order.gross - off - loyalty - price.coupon).quantize(CENT, rounding=ROUND_HALF_UP)"
_OLD_LINE = "        return PricedLine(line, campaign.name if campaign else None, to_cents(discount), to_cents(line.gross - discount))"
_NEW_LINE = """        discount = to_cents(discount)
        return PricedLine(line, campaign.name if campaign else None, discount, line.gross - discount)"""
_REGRESSION = """def test_reported_order(checkout: Checkout) -> None:
    order = reported("ORD-20418")
    price, invoice = checkout.place(order)
    assert invoice.total == price.total


@pytest.mark.parametrize("loyalty", ["0", "2.5", "5", "10"])
def test_invoice_equals_charge(checkout: Checkout, loyalty: str) -> None:
    for cents in range(500, 8000, 7):
        order = basket(Decimal(cents) / 100, quantity=3, loyalty=loyalty)
        price, invoice = checkout.place(order)
        assert invoice.total == price.total, cents"""
_PROBE = """from tests.baskets import reported, pricer, invoicer
order = reported("ORD-20418")
price = pricer.price(order)
for line in price.lines: print(line.line.product.name, line.line.gross, line.discount, line.total)
print(price.loyalty, price.total, invoicer.invoice("R-1", order, price).total)"""
_NEW_INVOICE = """        for line, priced in zip(order.lines, price.lines, strict=True):
            off += priced.discount
        loyalty = price.loyalty
        total = price.total"""
_PROBED = "Bird Bath 27.26 4.09 23.17\nHerb Box 62.52 9.38 53.14\nTrellis 18.50 2.78 15.72\n4.60 87.43 87.44"
_ADDED = ("reported_order", "invoice_equals_charge[0]", "invoice_equals_charge[2.5]", "invoice_equals_charge[5]")

FIX = Story(
    "agent",
    "tool_result_clearing",
    (
        Turn(
            "Support reports that some customers are charged one cent less than their invoice says. Order ORD-20418: "
            "charged 87.43 EUR, invoice 87.44 EUR. It has a campaign and a loyalty discount. Find the cause, fix it "
            "so that charge and invoice can't differ, keep all public names, and add a regression test. Don't touch "
            "the migrations.",
            (
                Step("I'll look at what there is.", (_list(), _read("README.md"))),
                Step("The charge is made up in pricing; I read that first.", (_read("shop/pricing.py"),)),
                Step("Now the invoice, which computes its own total.", (_read("shop/invoice.py"),)),
                Step("Both round. Which rounding is used where?", (_search("ROUND_|quantize|to_cents", 2),)),
                Step(
                    "The two differ in mode and in place. I check the helper.",
                    (_read("shop/money.py"), _read("shop/discounts.py")),
                ),
                Step("Do the tests pass as they are?", (_test(),)),
                Step(
                    "They do. How often does it happen in production?",
                    (_log("12:03", 20418, {3: "ORD-20418 87.43 87.44", 21: "ORD-20466 41.90 41.91"}),),
                ),
                Step("I take the reported order apart.", (Call("run_python", {"code": _PROBE}, _PROBED),)),
                Step(
                    "There it is: 18.50 less 15 % is 15.725. Pricing rounds that line half to even, 15.72; the "
                    "invoice adds unrounded discounts and rounds half up at the end. I look at who else prices.",
                    (_read("shop/checkout.py"), _search("Pricer|Invoicer")),
                ),
                Step(
                    "First the regression test; it has to fail now.",
                    (_edit("tests/test_checkout.py", "", _REGRESSION),),
                ),
                Step("Does it?", (_test(failing="reported_order", extra=_ADDED),)),
                Step(
                    "It does. In pricing the rounded discount is taken off, so that a line adds up.",
                    (_edit("shop/pricing.py", _OLD_LINE, _NEW_LINE),),
                ),
                Step("Is that enough?", (_test(failing="reported_order", extra=_ADDED),)),
                Step(
                    "It isn't: the invoice still adds up by itself. It has to show what was priced.",
                    (_edit("shop/invoice.py", _OLD_TOTAL, _NEW_INVOICE),),
                ),
                Step(
                    "Does the reported order add up now?",
                    (Call("run_python", {"code": _PROBE}, _PROBED.replace("87.44", "87.43")),),
                ),
                Step("And all tests?", (_test(extra=_ADDED),)),
                Step(
                    "All pass. Is anything left that rounds by itself?",
                    (_search("ROUND_HALF_UP|best_campaign", 3), _read("shop/models.py")),
                ),
                Step(
                    "I check a day's log for other differences this fix should cover.",
                    (_log("18:40", 20500, {9: "ORD-20566 12.40 12.41", 17: "ORD-20571 260.12 260.13"}, 64),),
                ),
                Step(
                    "Done. Pricing rounded every line half to even, the invoice rounded the sum half up. The invoice "
                    "now shows what was priced, line by line, and computes no money of its own; a line's discount is "
                    "rounded once. Charge and invoice are the same number. Public names are unchanged, migrations "
                    "untouched. `test_reported_order` and `test_invoice_equals_charge` cover it."
                ),
            ),
        ),
    ),
)

REVIEW = Story(
    "review",
    "sliding_window",
    (
        Turn(
            "You review the order code with me. Read the tests for prices and tell me what they don't cover.",
            (
                Step("I read them.", (_read("tests/test_pricing.py"),)),
                Step(
                    "They cover one discount at a time. Not covered: campaign plus loyalty plus coupon in one order; "
                    "quantities above one with a campaign; two campaigns on one product; an amount whose discount "
                    "falls on half a cent; a coupon that is worth more than the order; an order without lines. The "
                    "half cent matters most, because `to_cents` rounds half to even and nobody has written down "
                    "whether that is meant."
                ),
            ),
        ),
        Turn(
            "Finance says: half a cent goes up, always, as on the invoices. Which places have to change?",
            (
                Step("I look for them.", (_search("ROUND_|to_cents|quantize", 3),)),
                Step(
                    "`money.to_cents` is the only place that rounds half to even; `invoice.py` has three of its own "
                    "with ROUND_HALF_UP. I'd make `to_cents` round half up and have the invoice call it. Negative "
                    "amounts: ROUND_HALF_UP rounds away from zero, so -0.005 becomes -0.01; a refund then mirrors "
                    "its charge, which is what finance wants."
                ),
            ),
        ),
        Turn(
            "Here is what the log says since the fix. Anything odd?\n\n"
            + shop.read_log(31, 84, {12: "ORD-20702 64.10 71.22"}),
            (
                Step(
                    "One line: ORD-20702, charged 64.10, invoice 71.22. That is no rounding, it is 10 % of the "
                    "campaign part. The order was placed at the last minute of the campaign, so I suspect that "
                    "pricing and invoice looked at different moments."
                ),
            ),
        ),
        Turn(
            "Can that be? Show me in the code.",
            (
                Step("I read the checkout.", (_read("shop/checkout.py"),)),
                Step(
                    "Yes. `Checkout.place` prices the order with the `placed_at` of the draft, then sets `placed_at` "
                    "to now, then invoices. If a campaign ends between the two, the invoice no longer finds it. Set "
                    "`placed_at` before pricing, or let the invoice take the discounts from the price. With the "
                    "second, nothing can differ, whatever changes later."
                ),
            ),
        ),
        Turn(
            "Also: what if the payment is refused? The order was saved as placed before that.",
            (
                Step(
                    "Then it stays `placed` although `PaymentRefused` says that the order stays as it was. Stock is "
                    "reserved for placed orders, so refused ones hold stock until somebody cancels them. Either "
                    "charge first and save after, or catch the refusal and put the order back to `draft`. I'd do the "
                    "second: a crash between charge and save must not lose a payment."
                ),
            ),
        ),
        Turn(
            "This is the run of your branch:\n\n"
            + shop.run_tests(failing="reported_order", extra=_ADDED)
            + "\n\nWhat is wrong?",
            (
                Step(
                    "The test is right and the branch isn't: the invoice still adds `campaign.amount(line)`, which "
                    "is unrounded. With 5 % loyalty on top the sum lands on the other side of half a cent. The "
                    "branch lost a line in the merge: take `priced.discount` from the price instead."
                ),
            ),
        ),
        Turn(
            "Write the paragraph for the changelog.",
            (
                Step(
                    "Fixed: the charged amount and the invoice could differ by one cent where a discount fell on "
                    "half a cent, and by a whole campaign where it ended during checkout. Invoices now show the "
                    "prices that were charged. A refused payment puts the order back to draft."
                ),
            ),
        ),
        Turn(
            "And one more pair of eyes on discounts.py before we merge, please.",
            (
                Step("I read it once more.", (_read("shop/discounts.py"),)),
                Step(
                    "Three remarks. `best_campaign` compares percentages, which is right only while campaigns are "
                    "percentages. `covers` has an open end, good, and says so nowhere. `coupon_amount` never exceeds "
                    "the order, but a coupon below its minimum is silently nothing: the customer should be told. "
                    "None of them blocks the merge."
                ),
            ),
        ),
    ),
)

STORIES = (FIX, REVIEW)
