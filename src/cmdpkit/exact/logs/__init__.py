"""What a log of past decisions says: a model, how far it can be trusted, and policies that can be promised.

A `Log` enters, which `cmdpkit.io.logs` reads from tables and files. In the order of the imports:

    log           the recorded transitions as arrays of indices
    fitted        the model that a log suggests, exact totals in it, and their standard errors
    homogeneity   whether the log contradicts that all steps behave alike
    coverage      what was never tried, and what the best policy rests on
    promise       a policy chosen on one half of the log and tested on the other
    estimate      `Estimate`, which offers all of this to the user
"""
