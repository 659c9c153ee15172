"""Finding a fabric and talking to it: target, state folder, API client."""
