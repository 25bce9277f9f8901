"""The published experiments again, next to the published figures.

A number of seeds and a folder enter; runs, the report and the paper's figures are written into the folder, and a
`reproduce.Reproduction` with every published figure next to the measured one leaves. `reproduce` runs,
compares, draws, and says what each phase of the published algorithm costs. The command line may import all of them; no
other room does.
"""
