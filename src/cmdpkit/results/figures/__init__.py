"""Figures of studies, drawn with matplotlib.

A study or a policy enters, a `matplotlib.figure.Figure` leaves. No window is opened, pyplot is not imported and
matplotlib's global settings stay as they are. `draw` finds a figure by its name, `curves` draws regret, violation and
prices, `boards` draws policies on their grid and `maps` draws them without one, `totals` draws how totals of episodes
spread, and `style` holds the look and how figures are saved. Other rooms may import all of these.
"""
