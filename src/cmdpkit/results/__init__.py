"""Records read again: what can be said about runs and models, and every form in which it is shown.

Finished records enter (`study.Study` loads them), and so do models, solutions, diagnoses and logs. One module is about
one thing that a user sees, and holds its tables, then its text for the terminal, then its JSON: `solution` (an optimum,
or a simple policy next to it), `diagnosis` (with trade-offs), `policies`, `log`, `runs`, `study`, and `catalogue` (the
lists of environments and algorithms). `simplify` makes an optimum simple enough for people to follow.

They share `groups` (the numbers), `tables` (one description for every form of a table) and `wording`.
`figures` draws, `report` makes one page of a study or a plan, and `showing` registers what Python and notebooks print.
Nothing here changes a record or runs a learner; files are written only where the caller says so. Other rooms may import
all of this.
"""
