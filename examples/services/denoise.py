"""Draws an image from noise, step by step, as a diffusion model does; the model is a formula."""

import numpy as np

SIDE = 16
MOST = 250


class Denoise:
    """One object in each replica; each request has a state of its own."""

    def start(self, call):
        """Returns the state of a request: noise, and how many steps it takes."""
        steps = max(1, min(MOST, int(call["steps"])))
        noise = np.random.default_rng(int(call["seed"])).normal(size=(SIDE, SIDE))
        return {"image": noise, "prompt": call["prompt"], "step": 0, "steps": steps}

    def step(self, states):
        """Takes one step of each image; True for those that are finished."""
        images = np.stack([state["image"] for state in states])
        targets = np.stack([target_of(state["prompt"]) for state in states])
        left = np.array([state["steps"] - state["step"] for state in states])
        images += (targets - images) / left[:, None, None]
        for state, image in zip(states, images, strict=True):
            state["image"] = image.copy()
            state["step"] += 1
        return [state["step"] == state["steps"] for state in states]

    def remaining(self, state):
        """Returns the steps that are left: the host refuses or delays what cannot be in time."""
        return state["steps"] - state["step"]

    def finish(self, state):
        """Returns the reply of a request."""
        rows = ["".join(" .:*#"[int(level)] for level in row) for row in 4.99 * state["image"]]
        return {"rows": rows, "steps": state["step"]}


def target_of(prompt):
    """Returns what the model would predict: a disc, or a square for other prompts."""
    y, x = np.mgrid[-1 : 1 : SIDE * 1j, -1 : 1 : SIDE * 1j]
    distance = np.hypot(x, y) if "disc" in prompt else np.maximum(abs(x), abs(y))
    return np.clip(1.5 * (1 - distance), 0, 1)
