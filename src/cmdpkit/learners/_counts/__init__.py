"""What learners share that plan exactly in the model their counts suggest.

memory          transitions that were seen, as lists, and moments of what each step earned
estimate        the model that the memory suggests, the best policy in it, and how far both can be trusted
hand_over       the policy to hand over, with a margin for the error of its own prediction
homogeneity     whether data contradict the declaration that a world does not depend on the step
"""
