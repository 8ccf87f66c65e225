"""The imaginary shop that the agent works on: its files, and the tools that look at them.

What a tool answers is either found in the files of shop.txt (list, read, search) or written here as such tools write it (test runs, logs).
Nothing depends on time or chance, so every run of the demonstration sends the same conversations.
"""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path

_TESTS = """
test_money.py rounds_half_even keeps_two_places percent_is_unrounded parses_thousands parses_spaces refuses_words refuses_nothing
test_models.py gross_of_a_line gross_of_an_order a_new_order_is_a_draft status_is_text lines_keep_their_order notes_start_empty
test_discounts.py campaign_between_its_moments campaign_ends_before_its_end best_campaign_wins campaigns_never_add_up loyalty_on_the_rest
test_discounts.py coupon_once_per_order coupon_never_below_zero coupon_needs_its_minimum no_loyalty_by_default tags_are_exact
test_pricing.py one_line_without_discounts a_campaign_covers_its_tag_only loyalty_comes_after_the_campaign a_coupon_needs_its_minimum
test_pricing.py an_unknown_coupon_is_an_error
test_invoice.py rows_are_aligned one_row_per_line no_discount_no_row coupon_row_is_negative number_is_kept total_of_rows long_names_fit
test_checkout.py a_draft_is_placed a_placed_order_is_refused refused_payment_keeps_the_order invoice_follows_payment notes_name_the_payment
test_checkout.py saved_before_charged saved_after_paid a_difference_is_logged cancelled_stays_cancelled currency_goes_along
test_api.py places_an_order lists_orders pages_orders hides_other_customers refuses_bad_json answers_404 answers_409_twice rate_limits
""".strip()

_FAILURE = """
=================================== FAILURES ===================================
______________________________ test_{name} ______________________________

checkout = <shop.checkout.Checkout object at 0x7f1c5e0b3d90>

    def test_{name}(checkout: Checkout) -> None:
        order = reported("ORD-20418")
        price, invoice = checkout.place(order)
>       assert invoice.total == price.total
E       AssertionError: assert Decimal('87.44') == Decimal('87.43')
E         +  where Decimal('87.44') = Invoice(number='R-1', rows=[InvoiceRow(text='1 x Bird Bath', amount=Decimal('27.26')), \
InvoiceRow(text='3 x Herb Box', amount=Decimal('62.52')), InvoiceRow(text='1 x Trellis', amount=Decimal('18.50')), \
InvoiceRow(text='Campaign discount', amount=Decimal('-16.24')), InvoiceRow(text='Loyalty discount', amount=Decimal('-4.60'))]).total
E         +  and   Decimal('87.43') = Price(loyalty=Decimal('4.60'), coupon=Decimal('0'), total=Decimal('87.43')).total

tests/test_checkout.py:88: AssertionError
------------------------------ Captured log call -------------------------------
WARNING  shop.checkout:checkout.py:61 invoice differs order=ORD-20418 charged=87.43 invoice=87.44
"""


@cache
def files() -> dict[str, str]:
    """Path -> text of every file in the shop."""
    parts = Path(__file__).with_name("shop.txt").read_text().removeprefix("=== ").split("\n=== ")
    return {path: text.rstrip("\n") + "\n" for path, _, text in (part.partition("\n") for part in parts)}


def list_files() -> str:
    return "\n".join(f"{len(text.splitlines()):>4} {path}" for path, text in sorted(files().items()))


def read_file(path: str, first: int = 1, last: int = 10_000) -> str:
    """A file with line numbers."""
    lines = files()[path].splitlines()[first - 1 : last]
    return "\n".join(f"{number:>4}  {line}" for number, line in enumerate(lines, first))


def search(pattern: str, context: int = 0) -> str:
    """Lines that match, with so many lines around them."""
    found: list[str] = []
    for path, text in sorted(files().items()):
        lines = text.splitlines()
        hits = [at for at, line in enumerate(lines) if re.search(pattern, line)]
        near = sorted({at + step for at in hits for step in range(-context, context + 1)} & set(range(len(lines))))
        found += [f"{path}:{at + 1}{':' if at in hits else '-'} {lines[at]}" for at in near]
    return "\n".join(found)


def run_tests(failing: str = "", extra: tuple[str, ...] = ()) -> str:
    """What a verbose test run prints. `extra` are tests of test_checkout.py that were added since; `failing` names one of them."""
    names = [
        f"tests/{file}::test_{test}"
        for file, *tests in (line.split() for line in _TESTS.splitlines())
        for test in tests
    ]
    names += [f"tests/test_checkout.py::test_{test}" for test in extra]
    head = f"============================= test session starts ==============================\ncollected {len(names)} items\n\n"
    failed = [name for name in names if failing and name.endswith(f"test_{failing}")]
    lines = [
        f"{name} {'FAILED' if name in failed else 'PASSED':<10}[{100 * (n + 1) // len(names):>3}%]"
        for n, name in enumerate(names)
    ]
    tail = _FAILURE.format(name=failing) if failed else ""
    verdict = f"{len(failed)} failed, " if failed else ""
    return (
        head
        + "\n".join(lines)
        + f"\n{tail}\n================ {verdict}{len(names) - len(failed)} passed in 1.84s ================"
    )


def read_log(seed: int, count: int, differing: dict[int, str]) -> str:
    """So many lines of the checkout's log. `differing`: line number -> `order charged invoice` of a warning that stands there."""
    chance = random.Random(seed)
    lines = []
    for number in range(count):
        clock = f"2026-10-14T12:{number * 7 // 60 % 60:02d}:{number * 7 % 60:02d}.{chance.randrange(1000):03d}Z"
        if number in differing:
            order, charged, invoice = differing[number].split()
            lines.append(
                f"{clock} WARNING shop.checkout invoice differs order={order} charged={charged} invoice={invoice} loyalty=5 campaign=autumn"
            )
            continue
        order = f"ORD-{chance.randrange(20100, 20900)}"
        what = chance.choice(("placed", "paid", "paid", "shipped", "cart updated", "coupon checked"))
        lines.append(
            f"{clock} INFO    shop.checkout {what} order={order} lines={chance.randrange(1, 9)}"
            f" total={chance.randrange(900, 29_000) / 100:.2f}"
            f" currency=EUR customer=C-{chance.randrange(1000, 9999)} trace={chance.getrandbits(64):016x}"
            f" took={chance.randrange(8, 90)}ms"
        )
    return "\n".join(lines)
