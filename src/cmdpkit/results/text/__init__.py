"""Results for the terminal, as objects that rich can print.

Solutions, diagnoses, records and lists enter; nothing is printed here. Each module is about one of them: `solution`
and `stationary` (without a horizon), `policy`, `policies` (given ones), `simplified`, `diagnosis` (with trade-offs),
`learning`, `logs` and `catalogue` (the lists of environments and algorithms); `layout` is how tables look. The command
line may import all of them.
"""
