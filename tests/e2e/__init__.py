"""End-to-end tests in real browsers and terminals and with programs of others. `make e2e` runs them."""
