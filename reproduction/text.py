"""Numbers and tables in Markdown, which is what is printed and what the pages of the documentation include."""


def short(x, digits=4):
    """A few significant digits, thousands apart.

    >>> short(1234567.0), short(-62.4251), short(0.01234, 3), short(-6510, 5)
    ('1,235,000', '-62.43', '0.0123', '-6,510')
    """
    rounded = float(f"{x:.{digits}g}") + 0.0
    whole = abs(rounded) >= 10 ** (digits - 1) or rounded == round(rounded)
    return f"{rounded:,.0f}" if whole else f"{rounded:.{digits}g}"


def interval(measured):
    """A mean with its interval, where there is one.

    >>> import cmdpkit as ck
    >>> interval(ck.seed_mean([99.0, 100.0, 101.0])), interval(ck.seed_mean([2.0, 2.0]))
    ('100 (97.52 … 102.5)', '2')
    """
    spread = measured.low is not None and measured.low != measured.high
    return short(measured.mean) + (f" ({short(measured.low)} … {short(measured.high)})" if spread else "")


def table(title, headings, rows):
    """A table with its title in bold above it.

    >>> print(table("Sums", ("name", "sum"), [("a|b", "1")]))
    **Sums**
    <BLANKLINE>
    | name | sum |
    | --- | --- |
    | a\\|b | 1 |
    <BLANKLINE>
    """
    lines = [headings, ["---"] * len(headings), *rows]
    escaped = [[str(cell).replace("|", "\\|").replace("*", "\\*") for cell in line] for line in lines]
    return "\n".join([f"**{title}**", "", *(f"| {' | '.join(cells)} |" for cells in escaped), ""])
