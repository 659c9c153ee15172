"""Online requests in virtual time, batched by the shipped functions and by published systems."""
