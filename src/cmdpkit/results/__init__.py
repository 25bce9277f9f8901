"""Records read again: what can be said about runs and models, and every form in which it is shown.

Finished records enter (`study.Study` loads them), and so do solutions and diagnoses of the room exact. Out come numbers
(`study`, `statistics`, `published`), tables (`tables`; what is in them is described in `model_tables`,
`policy_tables`, `log_tables` and `run_tables`), figures (`figures`), the report (`report`), text for the terminal
(`text`), JSON (`json`), what Python and notebooks print (`showing`) and files for TensorBoard (`tensorboard`). Nothing
here changes a record or runs a learner; files are written only where the caller says so. Other rooms may import `Study`
and `Group`, the functions that make tables, everything in `text`, `json` and `wording`, and the figures.
"""
