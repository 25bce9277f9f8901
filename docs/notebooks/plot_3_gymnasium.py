"""
Learn on your Gymnasium environment
===================================

Any Gymnasium environment with discrete observations and actions can be learned in, and costs come from
``info["cost"]``. This notebook writes a small environment, lets an algorithm learn in it, and looks at the
policy that it returns.
"""

# %%
# An environment
# --------------
#
# A delivery robot has four rooms to cross. Running is fast and sometimes breaks something; walking is slow and
# safe. An episode has twelve steps, and crossing all rooms earns 1.

import gymnasium
import numpy as np

import cmdpkit as ck

WALK, RUN = 0, 1


class Delivery(gymnasium.Env):
    observation_space = gymnasium.spaces.Discrete(4)
    action_space = gymnasium.spaces.Discrete(2)
    metadata = {"reward_range": (0.0, 1.0)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.room, self.time = 0, 0
        return self.room, {}

    def step(self, action):
        self.time += 1
        moved = action == RUN or self.np_random.random() < 0.5
        broken = float(action == RUN and self.np_random.random() < 0.3)
        self.room = (self.room + moved) % 4
        arrived = moved and self.room == 0
        return self.room, float(arrived), False, self.time == 12, {"cost": broken}


# %%
# Give what the environment does not declare: the length of an episode, and the bound. At most one thing may
# break per episode, on average.

world = ck.gym.GymWorld(Delivery(), constraints=[ck.at_most("broken", 1.0)], horizon=12)

# %%
# Learn
# -----
#
# ``cl-pri`` is our own algorithm and the default. It has no model of the environment, so there is no exact regret;
# the record has the observed rewards and shortfalls. The certificate at the end
# holds with 95 % probability, however the policy was found.

run = ck.learn(world, "cl-pri", episodes=4_000, seed=1)
run

# %%
# The shortfall of the bound over the run, which the algorithm repays on the way.

import matplotlib.pyplot as plt

episodes, missed = run.curves["episode"], run.curves["realised_violation"][0]
fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.plot(episodes, missed)
ax.axhline(0, color="0.6", lw=0.8)
_ = ax.set(xscale="log", xlabel="episodes", ylabel="broken more than allowed")

# %%
# The policy
# ----------
#
# In which room and at which step does it run? The darker, the more likely.

fig, ax = plt.subplots(figsize=(6, 2.2), layout="constrained")
ax.imshow(run.policy.pi[:, :4, RUN].T, cmap="Blues", vmin=0, vmax=1, aspect="auto")
ax.set(xlabel="step", xticks=range(12), xticklabels=range(1, 13))
_ = ax.set(ylabel="room", yticks=range(4), yticklabels=range(1, 5))

# %%
# With a model
# ------------
#
# If you can write the model down as well, the exact optimum says how much learning has cost.


def step(room, action):
    return {room: 0.5, (room + 1) % 4: 0.5} if action == "walk" else {(room + 1) % 4: 1.0}


model = ck.CMDP.from_function(
    start=0,
    horizon=12,
    actions=["walk", "run"],
    step=step,
    reward=lambda room, action: float(room == 3) * (0.5 if action == "walk" else 1.0),
    constraints=[ck.at_most("broken", 1.0, lambda room, action: 0.3 * (action == "run"))],
)
optimum = ck.solve(model)
handed_over = ck.evaluate(model, ck.Policy.of(model, run.policy.pi[:, : model.S]))
print(f"optimum {optimum.value:.3f}, returned policy {handed_over.v:.3f} with {handed_over.w[0]:.3f} broken")
assert np.isclose(optimum.utilities[0], 1.0)
