"""The encryption keys that devices publish on the fake Matrix homeserver."""

from typing import Any


class FakeKeys:
    """Implements the key endpoints of a homeserver."""

    def __init__(self) -> None:
        self._devices: dict[str, dict[str, Any]] = {}
        """Published identity keys: by user, then by device."""
        self._one_time: dict[tuple[str, str], dict[str, Any]] = {}
        self.identities: dict[str, dict[str, Any]] = {}
        """The cross-signing keys of users."""

    def upload(self, user: str, device: str, body: dict[str, Any]) -> bool:
        """Store the keys of a device. Return whether its identity keys are new."""
        known = self._devices.setdefault(user, {})
        is_new = "device_keys" in body and device not in known
        if is_new:
            known[device] = body["device_keys"]
        self._one_time.setdefault((user, device), {}).update(body.get("one_time_keys", {}))
        return is_new

    def count(self, user: str, device: str) -> dict[str, int]:
        """Return how many one-time keys of a device are left."""
        return {"signed_curve25519": len(self._one_time.get((user, device), {}))}

    def query(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the identity keys of users."""
        users = list(body["device_keys"])
        found: dict[str, Any] = {
            "device_keys": {user: self._devices.get(user, {}) for user in users},
            "failures": {},
        }
        for kind in ("master_key", "self_signing_key"):
            known = {user: self.identities[user][kind] for user in users if user in self.identities}
            found[f"{kind}s"] = known
        return found

    def sign(self, body: dict[str, Any]) -> None:
        """Add signatures to the keys of devices."""
        for user, devices in body.items():
            for device, signed in devices.items():
                signatures = self._devices[user][device].setdefault("signatures", {})
                signatures.setdefault(user, {}).update(signed["signatures"][user])

    def claim(self, body: dict[str, Any]) -> dict[str, Any]:
        """Take a one-time key of each device."""
        taken: dict[str, dict[str, Any]] = {}
        for user, devices in body["one_time_keys"].items():
            for device in devices:
                left = self._one_time.get((user, device), {})
                if left:
                    name = next(iter(left))
                    taken.setdefault(user, {})[device] = {name: left.pop(name)}
        return {"one_time_keys": taken, "failures": {}}
