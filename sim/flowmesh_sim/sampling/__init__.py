"""How soon a worker that lies is found by sampled audits: a modelled world in virtual time."""
